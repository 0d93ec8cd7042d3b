/* Random hexadecimal names that nothing else can guess or has by accident: the mark of a nursery,
 * the token with which a worker connects, the address of a socket. */
#ifndef CR_TOKEN_H
#define CR_TOKEN_H

#include <stddef.h>

#define TOKEN_BYTES_MAX 16

/* Draws `bytes` random bytes (at most TOKEN_BYTES_MAX) and writes them as twice as many hexadecimal
 * digits and a NUL. Returns 0, or -EIO if the kernel gives no random numbers. */
int token_draw(char *out, size_t bytes);

#endif
