/* What is in flight, in words. */
#ifndef STORE_WIRE_CALL_TEXT_H
#define STORE_WIRE_CALL_TEXT_H

#include "store/wire/wire.h"

/* "get 'k'", "wait for 'a', 'b' and 3 more": what is in flight. Control bytes are escaped. */
#define STORE_CALL_TEXT_MAX 400
void store_call_text(enum store_op op, const struct store_bytes *keys, size_t key_count,
                     char out[STORE_CALL_TEXT_MAX]);

#endif
