/* The value of a signpost's key, and the requests by which it is read and written. Pure.
 *
 * A signpost is a TCPStore at the endpoint that another program than crun serves. One key of the
 * store says which node hosts the coordinator of a job. The value of this key is the line
 *
 *     crun-rendezvous 1 EPOCH TURN PORT ADDRESS NONCE
 *
 * A value with a larger epoch replaces one with a smaller epoch; of two values with one epoch, the
 * one with the larger turn is newer. An heir writes a larger epoch. A node that has reached no
 * coordinator yet, and finds that the named node does not answer, writes the same epoch and the
 * next turn. An empty value, or no key, means that no node hosts. */
#ifndef RENDEZVOUS_SIGNPOST_VALUE_INTERNAL_H
#define RENDEZVOUS_SIGNPOST_VALUE_INTERNAL_H

#include "base/buffer.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

#define SIGNPOST_VALUE_MAX 256 /* bytes of a value, NUL included */

struct signpost_value {
    uint64_t epoch, turn;
    char addr[RDZV_ADDR_MAX];
    uint16_t port;
    uint64_t nonce; /* random; tells apart two nodes that publish the same address */
};

/* Writes the value as text. */
void signpost_format(const struct signpost_value *v, char out[SIGNPOST_VALUE_MAX]);
/* Reads a value of `len` bytes. Returns false if it is not one that a crun has written. */
bool signpost_parse(const char *text, size_t len, struct signpost_value *out);
bool signpost_is_newer(const struct signpost_value *a, const struct signpost_value *b);

/* Appends the requests VALIDATE and COMPARE_SET for the key of the job `run_id`: if the value is
 * `expected`, it becomes `desired`. If is_old is true, appends only COMPARE_SET, in the protocol of
 * torch 2.0 and earlier. Returns 0 or -ENOMEM. */
int signpost_ask(struct cr_buffer *out, bool is_old, const char *run_id, const char *expected,
                 const char *desired);
/* To read the key without changing it, pass this text to signpost_ask() as `expected` and as
 * `desired`. If there is no key, the store answers with this text. */
#define SIGNPOST_NOTHING "?"

enum signpost_answer {
    SIGNPOST_INCOMPLETE, /* more bytes are needed */
    SIGNPOST_ANSWERED,
    SIGNPOST_STRANGE,    /* the store does not answer as a TCPStore of torch 2.1 or later does */
};
/* Reads the answer to signpost_ask(), and stores the value that the key has now in `value`. */
enum signpost_answer signpost_read(const char *data, size_t len, char value[SIGNPOST_VALUE_MAX]);

#endif
