/* Random names: a nursery's mark, a worker's token, a socket's address. */
#ifndef BASE_TOKEN_H
#define BASE_TOKEN_H

#include <stddef.h>

#define TOKEN_BYTES_MAX 16

/* Writes `bytes` random bytes (TOKEN_BYTES_MAX at most) as twice as many hexadecimal digits and a NUL.
 * 0 or -EIO. */
int token_draw(char *out, size_t bytes);

#endif
