/* Reads a small file, such as one of /proc or /sys, with one call. */
#ifndef CR_READ_FILE_H
#define CR_READ_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Reads the first `cap` - 1 bytes of the file, or all if it has fewer, and appends a NUL. Returns
 * the number of bytes without the NUL. On error returns a negative errno, and `out` is "". */
ssize_t cr_read_file(const char *path, char *out, size_t cap);

#endif
