/* A request as text, for the error messages of the clients: "get 'k'", "wait for 'a', 'b', 'c' and
 * 3 more". Bytes that are not printable UTF-8 are written as \xNN. */
#ifndef STORE_WIRE_CALL_TEXT_H
#define STORE_WIRE_CALL_TEXT_H

#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

#define STORE_CALL_TEXT_MAX 400
void store_call_text(enum store_op op, const struct store_bytes *keys, size_t key_count,
                     char out[STORE_CALL_TEXT_MAX]);

#endif
