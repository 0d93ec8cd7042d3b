/* The wire of torch's TCPStore: requests and replies as bytes, in both directions.
 *
 * A request is one opcode byte and fields in a fixed order. Numbers are little-endian; keys and
 * values are a u64 length and bytes; lists a u64 count and elements. No field has the length of the
 * whole request. docs/protocols/store.md describes all of it.
 *
 *   operation.h   the table of operations, dialects, the first bytes of a connection
 *   parser.h      the server reads requests       answer.h      a client reads replies
 *   encoder.h     a client writes requests        call_text.h   a request in words, for errors
 *   number.h      little-endian numbers
 *
 * Pure: bytes in, structs out, and back. No sockets, no clock; libcrunrt links all of it. */
#ifndef STORE_WIRE_WIRE_H
#define STORE_WIRE_WIRE_H

#include "store/wire/answer.h"
#include "store/wire/call_text.h"
#include "store/wire/encoder.h"
#include "store/wire/number.h"
#include "store/wire/operation.h"
#include "store/wire/parser.h"

#endif
