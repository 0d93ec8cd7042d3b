/* What every chamber of the store speaks of: byte strings, lists of them, and the limits. */
#ifndef STORE_TYPES_H
#define STORE_TYPES_H

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
