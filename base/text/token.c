/* Draws random names: implements base/text/token.h. */
#include "base/text/token.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

int token_draw(char *out, size_t bytes) {
    unsigned char random[TOKEN_BYTES_MAX];
    CR_ASSERT(bytes <= sizeof(random));
    if (getrandom(random, bytes, 0) != (ssize_t) bytes) return -EIO;
    for (size_t i = 0; i < bytes; i++) (void) snprintf(out + 2 * i, 3, "%02x", random[i]);
    return 0;
}
