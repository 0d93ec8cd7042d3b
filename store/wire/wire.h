/* The wire format of torch's TCPStore: encoding and decoding of requests and replies.
 *
 * A request is one opcode byte and fields in a fixed order. Numbers are little-endian. A key or
 * value is a u64 length and its bytes; a list is a u64 count and its elements. A request does not
 * contain its total length. docs/protocols/store.md describes the format completely.
 *
 *   operation.h   the table of operations, dialects, the first bytes of a connection
 *   parser.h      the server's parser of requests
 *   answer.h      a client's parser of replies
 *   encoder.h     a client's encoder of requests
 *   call_text.h   a request as text, for error messages
 *   number.h      little-endian numbers
 *
 * Pure: the code uses no sockets and no clock, so that libcrunrt and tests can link all of it. */
#ifndef STORE_WIRE_WIRE_H
#define STORE_WIRE_WIRE_H

#include "store/wire/answer.h"
#include "store/wire/call_text.h"
#include "store/wire/encoder.h"
#include "store/wire/number.h"
#include "store/wire/operation.h"
#include "store/wire/parser.h"

#endif
