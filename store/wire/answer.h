/* Replies in, for the clients: one reply, received in whatever pieces it comes.
 *
 *     store_answer_begin(&a, shape, item_count);
 *     do {
 *         void *at = store_answer_room(&a, &room);    where to receive, and at most how much
 *         n = recv(fd, at, room);
 *     } while (store_answer_put(&a, n) == 0);
 *     store_answer_take_…(&a, …); store_answer_done(&a);
 *
 * For a byte or a number it never asks for more than the reply has, because another reply may
 * follow. For other shapes it reads ahead: nothing else is under way then, so more bytes than
 * the reply has are a protocol error. Every announced length is checked before memory is
 * allocated, and memory grows with what was received, not with what was announced. */
#ifndef STORE_WIRE_ANSWER_H
#define STORE_WIRE_ANSWER_H

#include "base/buffer.h"
#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

struct store_answer {
    enum store_reply shape;
    size_t head;            /* bytes in front of the items; 0 once they were read */
    uint8_t byte;           /* BYTE */
    int64_t number;         /* NUMBER, NONCE; POP and KEYS: the count in front */
    struct cr_buffer bytes; /* what has been received; of VALUE and POP, only the value */
    size_t pos;             /* bytes understood */
    bool in_item;           /* item_len is known, the item's bytes come next */
    size_t item_len;
    size_t item_count; /* elements of the whole reply */
    size_t item_seen;
    size_t item_cap;
    struct store_bytes *items; /* `data` is an offset until the list is taken */
    const char *reason;        /* why it failed; static text */
};

/* Begins a reply. item_count matters for VALUES only: the number of keys that were asked for.
 * Zero-initialise the struct before the first time; memory of an earlier reply is released. */
void store_answer_begin(struct store_answer *a, enum store_reply shape, size_t item_count);

/* Returns where the next bytes go and, in *room, how many at most; NULL when memory is short. */
void *store_answer_room(struct store_answer *a, size_t *room);

/* Takes note of n received bytes. Returns 1 when the reply is whole, 0 when more is needed, or
 * -EPROTO, -EMSGSIZE (longer than STORE_REPLY_MAX), -ENOMEM, with a->reason. n = 0 is allowed: an
 * empty VALUES reply is whole before anything is received. */
int store_answer_put(struct store_answer *a, size_t n);

/* The value of VALUE and POP, malloc'ed, a NUL behind it. Returns 0 or -ENOMEM. */
int store_answer_take_value(struct store_answer *a, void **value, size_t *len);

/* The elements of VALUES and KEYS. */
void store_answer_take_list(struct store_answer *a, struct store_list *out);

/* Reduces a list of raw keys to the keys that users named, without their leading '/'. The keys that
 * torch keeps for itself, such as "init/", have none. */
void store_list_keep_users(struct store_list *list);

void store_answer_done(struct store_answer *a);

#endif
