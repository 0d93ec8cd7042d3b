/* Random names that cannot be guessed: the mark of a nursery, a worker's token, the address of a
 * socket. */
#ifndef CR_TOKEN_H
#define CR_TOKEN_H

#include <stddef.h>

#define TOKEN_BYTES_MAX 16

/* Draws `bytes` random bytes (TOKEN_BYTES_MAX at most) and writes them to `out` as hexadecimal
 * digits, two per byte, and a NUL. Returns 0, or -EIO if the kernel has no random bytes. */
int token_draw(char *out, size_t bytes);

#endif
