/* A client's parser of one reply, which may arrive in pieces of any size.
 *
 *     store_answer_begin(&a, shape, item_count);
 *     do {
 *         void *at = store_answer_room(&a, &room);    where to receive, and how many bytes at most
 *         n = recv(fd, at, room);
 *     } while (store_answer_put(&a, n) == 0);
 *     store_answer_take_…(&a, …); store_answer_done(&a);
 *
 * If the reply is a byte or a number, `room` is never more than the rest of the reply, because
 * another reply may follow. For other shapes `room` may be more, because no other request is in
 * progress; if more bytes than those of the reply arrive, that is a protocol error. Each length in
 * the reply is checked before memory is allocated, and memory grows with the bytes received, not
 * with the length that the server announced. */
#ifndef STORE_WIRE_ANSWER_H
#define STORE_WIRE_ANSWER_H

#include "base/buffer.h"
#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

struct store_answer {
    enum store_reply shape;
    size_t head; /* bytes of the reply in front of its items; 0 once they have been parsed */
    uint8_t byte;           /* the reply of shape BYTE */
    /* the reply of shape NUMBER or NONCE; for POP and KEYS the count in front of the items */
    int64_t number;
    struct cr_buffer bytes; /* bytes received; for VALUE and POP only those of the value */
    size_t pos;             /* bytes of `bytes` that are parsed */
    bool in_item;           /* item_len has been read; the item's bytes come next */
    size_t item_len;
    size_t item_count; /* items of the complete reply */
    size_t item_seen;
    size_t item_cap;
    struct store_bytes *items; /* `data` is an offset in `bytes` until store_answer_take_list() */
    const char *reason;        /* static text that says why parsing failed; set on error */
};

/* Begins to parse a reply and frees what is left of an earlier one. item_count is the number of
 * keys in the request if the shape is VALUES, else it is ignored. Zero-initialise the struct before
 * the first call. */
void store_answer_begin(struct store_answer *a, enum store_reply shape, size_t item_count);

/* Returns where to receive the next bytes, and sets *room to how many bytes at most. Returns NULL
 * if memory is short. */
void *store_answer_room(struct store_answer *a, size_t *room);

/* Call this after n bytes were received. Returns 1 if the reply is complete, 0 if more bytes are
 * needed, or -EPROTO, -EMSGSIZE (longer than STORE_REPLY_MAX) or -ENOMEM and sets a->reason. n may
 * be 0, because a VALUES reply without items is complete before any byte is received. */
int store_answer_put(struct store_answer *a, size_t n);

/* Moves the value of a VALUE or POP reply to *value: malloc'ed, with a NUL byte behind it that *len
 * does not count. Returns 0 or -ENOMEM. */
int store_answer_take_value(struct store_answer *a, void **value, size_t *len);

/* Moves the items of a VALUES or KEYS reply to *out. */
void store_answer_take_list(struct store_answer *a, struct store_list *out);

/* Reduces a list of keys as they stand on the wire to the keys that users have set, and removes
 * their leading '/'. Keys that torch creates for itself, such as "init/", have no leading '/' and
 * are dropped. */
void store_list_keep_users(struct store_list *list);

void store_answer_done(struct store_answer *a);

#endif
