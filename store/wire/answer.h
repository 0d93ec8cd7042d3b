/* A client's parser of one reply, which may arrive in pieces of any size.
 *
 *     store_answer_begin(&a, shape, item_count);
 *     do {
 *         void *at = store_answer_room(&a, &room);    receive at most `room` bytes at address `at`
 *         n = recv(fd, at, room);
 *     } while (store_answer_put(&a, n) == 0);
 *     store_answer_take_…(&a, …); store_answer_done(&a);
 *
 * If the reply is a byte or a number, `room` is never more than the missing bytes of this reply,
 * because the next bytes may belong to another reply. For other shapes, `room` may be more: no
 * other request is in progress, so bytes after the end of the reply are a protocol error. Each
 * length in the reply is checked before memory is allocated. Memory grows with the bytes received,
 * not with the length that the server has announced. */
#ifndef STORE_WIRE_ANSWER_H
#define STORE_WIRE_ANSWER_H

#include "base/buffer.h"
#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

struct store_answer {
    enum store_reply shape;
    size_t head; /* number of bytes of the reply before its items; 0 once these are parsed */
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
    struct store_bytes *items; /* the parsed items. Before store_answer_take_list(), `data` is not
                                * an address but an offset in `bytes`. */
    const char *reason;        /* static text that says why parsing failed; set on error */
};

/* Begins to parse a reply. Zero-initialise the struct before the first call; later calls free the
 * memory of the previous reply. For the shape VALUES, item_count is the number of keys in the
 * request; for other shapes it is ignored. */
void store_answer_begin(struct store_answer *a, enum store_reply shape, size_t item_count);

/* Returns the address at which to receive the next bytes, and sets *room to the largest number of
 * bytes to receive. Returns NULL if memory is short. */
void *store_answer_room(struct store_answer *a, size_t *room);

/* Call this when n bytes were received, and once with n = 0 before the first receive, because a
 * VALUES reply without items has no bytes. Returns 1 if the reply is complete, or 0 if more bytes
 * are needed. On error sets a->reason and returns -EPROTO, -EMSGSIZE (the reply is longer than
 * STORE_REPLY_MAX) or -ENOMEM. */
int store_answer_put(struct store_answer *a, size_t n);

/* Moves the value of a VALUE or POP reply to *value, which is malloc'ed. A NUL byte, which *len
 * does not count, follows the value. Returns 0 or -ENOMEM. */
int store_answer_take_value(struct store_answer *a, void **value, size_t *len);

/* Moves the items of a VALUES or KEYS reply to *out. */
void store_answer_take_list(struct store_answer *a, struct store_list *out);

/* Changes a list of keys as they stand on the wire into a list of users' keys. On the wire, a key
 * that a user has set begins with '/'; a key that torch creates for itself, such as "init/", does
 * not. This function removes the leading '/' of the former keys, and removes the latter from the
 * list. */
void store_list_keep_users(struct store_list *list);

void store_answer_done(struct store_answer *a);

#endif
