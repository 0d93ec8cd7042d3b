/* Writes all bytes to a descriptor, in as many calls of write(2) as that takes. */
#ifndef CR_WRITE_ALL_H
#define CR_WRITE_ALL_H

#include <stddef.h>

/* Writes data[0..len). A write that a signal has interrupted is made again. The descriptor must be
 * in blocking mode. May be called in a signal handler; changes errno. Returns 0 or a negative
 * errno. */
int cr_write_all(int fd, const void *data, size_t len);

#endif
