/* What every chamber of the store uses: byte strings, lists of them, and the limits. */
#ifndef STORE_BYTES_BYTES_H
#define STORE_BYTES_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Borrowed bytes. */
struct store_bytes {
    const void *data; /* may be NULL when len is 0 */
    size_t len;
};

#define STORE_BYTES(text) ((struct store_bytes){(text), strlen(text)})

/* Bytes that a call returned, all in one block. Behind each item stands a NUL that its len does not
 * count. store_list_done() frees them. */
struct store_list {
    struct store_bytes *items;
    size_t count;
    void *block; /* private: what the items point into */
};

void store_list_done(struct store_list *list);

/* Builds a list of copies, one item at a time. Zero-initialise. */
struct store_list_builder {
    struct store_list list; /* `data` of the items is an offset until the list is built */
    char *block;
    size_t block_len, block_cap, item_cap;
};

int store_list_add(struct store_list_builder *b, const void *data, size_t len); /* 0 or -ENOMEM */
/* Moves the list out of the builder. */
struct store_list store_list_build(struct store_list_builder *b);
void store_list_drop(struct store_list_builder *b);

/* Limits of our server (options can change them) and of our client. None is smaller than the limit
 * of torch's libuv server; docs/protocols/store.md, section 7, compares them. */
#define STORE_KEY_MAX   ((size_t) 64 << 10) /* bytes of a key, without torch's leading '/' */
#define STORE_VALUE_MAX ((size_t) 64 << 20) /* bytes of one value in one request */
#define STORE_LIST_MAX  ((size_t) 131072)   /* keys or pairs in one request */
#define STORE_CLIENT_BUFFER_MAX ((size_t) 256 << 20) /* bytes of one request, of unread replies */

/* Largest value, and largest sum of the values of one multi_get, that the client accepts.
 * APPEND can make a value larger than one request can carry. */
#define STORE_REPLY_MAX ((size_t) 1 << 30)

#endif
