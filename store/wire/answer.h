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
    size_t head; /* bytes of the reply before its items; 0 once these bytes are parsed */
    uint8_t byte;           /* value of a BYTE reply */
    /* value of a NUMBER or NONCE reply; in POP and KEYS, the number before the items */
    int64_t number;
    struct cr_buffer bytes; /* received bytes; in VALUE and POP, only those of the value */
    size_t pos;             /* number of bytes of `bytes` that are parsed */
    bool in_item;           /* true if item_len is parsed and the bytes of the item are not */
    size_t item_len;
    size_t item_count; /* number of items in the complete reply */
    size_t item_seen;
    size_t item_cap;
    struct store_bytes *items; /* the parsed items; until store_answer_take_list(), `data` is an
                                * offset in `bytes` */
    const char *reason;        /* static text that says why parsing failed; set on error */
};

/* Begins to parse a reply, and frees what an earlier reply has left. For the shape VALUES,
 * item_count is the number of keys in the request; otherwise it is ignored. Zero-initialise the
 * struct before the first call. */
void store_answer_begin(struct store_answer *a, enum store_reply shape, size_t item_count);

/* Returns the address at which to receive the next bytes, and sets *room to the largest number of
 * bytes. Returns NULL if memory is short. */
void *store_answer_room(struct store_answer *a, size_t *room);

/* Call this when n bytes were received. Returns 1 if the reply is complete, 0 if more bytes are
 * needed, or -EPROTO, -EMSGSIZE (longer than STORE_REPLY_MAX) or -ENOMEM and sets a->reason. Call
 * it with n = 0 before the first receive, because a VALUES reply without items has no bytes. */
int store_answer_put(struct store_answer *a, size_t n);

/* Moves the value of a VALUE or POP reply to *value, which is malloc'ed. A NUL byte, which *len
 * does not count, follows the value. Returns 0 or -ENOMEM. */
int store_answer_take_value(struct store_answer *a, void **value, size_t *len);

/* Moves the items of a VALUES or KEYS reply to *out. */
void store_answer_take_list(struct store_answer *a, struct store_list *out);

/* Takes a list of keys as they stand on the wire, keeps only the keys that users have set, and
 * removes their leading '/'. Keys that torch creates for itself, such as "init/", have no leading
 * '/'. */
void store_list_keep_users(struct store_list *list);

void store_answer_done(struct store_answer *a);

#endif
