/* Replies in: the other half of the clients' codec, incremental like the server's parser.
 *
 *     store_answer_begin(&a, shape, item_count);
 *     do {
 *         void *at = store_answer_room(&a, &room);    where to receive, and at most how much
 *         n = recv(fd, at, room);
 *     } while (store_answer_put(&a, n) == 0);
 *     store_answer_take_…(&a, …); store_answer_done(&a);
 *
 * Never asks for bytes behind the reply where another may follow (a byte or a number); where nothing
 * else can be under way it reads ahead, and bytes too many are a protocol error. Lengths are
 * checked before anything is allocated, and memory grows with what has come, not with what was
 * announced. Pure: no sockets, no clock. */
#ifndef STORE_WIRE_ANSWER_H
#define STORE_WIRE_ANSWER_H

#include "store/wire/wire.h"

struct store_answer {
    enum store_reply shape;
    size_t head;            /* bytes in front of the items, 0 once read */
    uint8_t byte;           /* BYTE */
    int64_t number;         /* NUMBER, NONCE; POP and KEYS: the count in front */
    struct cr_buffer bytes; /* what has come; of VALUE and POP, only the value */
    size_t pos;             /* bytes understood */
    int in_item;            /* item_len is known, the item's bytes come next */
    size_t item_len;
    size_t item_count; /* elements of the whole reply */
    size_t item_seen;
    size_t item_cap;
    struct store_bytes *items; /* data is an offset until the list is taken */
    const char *reason;        /* why it failed; static text */
};

/* Starts a reply. item_count matters for VALUES only: the keys asked for. Zero-initialise the
 * struct before the first time; memory of an earlier reply is released. */
void store_answer_begin(struct store_answer *a, enum store_reply shape, size_t item_count);

/* Where the next bytes belong and how many at most, or NULL when memory is short. */
void *store_answer_room(struct store_answer *a, size_t *room);

/* n bytes came. Returns 1 when the reply is whole, 0 when more is needed, or -EPROTO, -EMSGSIZE
 * (longer than STORE_REPLY_MAX), -ENOMEM, with a->reason. n = 0 is allowed: an empty VALUES reply
 * is whole before anything comes. */
int store_answer_put(struct store_answer *a, size_t n);

/* The value of VALUE and POP, malloc'ed, a NUL behind it; 0 or -ENOMEM. */
int store_answer_take_value(struct store_answer *a, void **value, size_t *len);

/* The elements of VALUES and KEYS. */
void store_answer_take_list(struct store_answer *a, struct store_list *out);

/* Of listed raw keys, the user's, as the user names them: those have one '/' in front, torch's own
 * have none. */
void store_list_keep_users(struct store_list *list);

void store_answer_done(struct store_answer *a);

#endif
