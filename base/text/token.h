/* Draws tokens: random hexadecimal names that nobody can guess and that are unique without a
 * central list. The agent uses tokens to mark the processes of a nursery, to admit a worker to its
 * channel, and as names of sockets. */
#ifndef CR_TOKEN_H
#define CR_TOKEN_H

#include <stddef.h>

#define TOKEN_BYTES_MAX 16

/* Draws `bytes` random bytes (at most TOKEN_BYTES_MAX) and writes them to `out` as twice as many
 * hexadecimal digits and a NUL. Returns 0, or -EIO if getrandom(2) fails. */
int token_draw(char *out, size_t bytes);

#endif
