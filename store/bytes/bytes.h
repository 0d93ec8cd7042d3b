/* The types that every chamber of the store uses: byte strings, lists of byte strings, and the
 * default limits of requests. */
#ifndef STORE_BYTES_BYTES_H
#define STORE_BYTES_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A byte string. The struct does not own the memory, which must stay valid while the struct is in
 * use. */
struct store_bytes {
    const void *data; /* may be NULL when len is 0 */
    size_t len;
};

#define STORE_BYTES(text) ((struct store_bytes){(text), strlen(text)})

/* The byte strings that a call returned. All of them lie in one block; behind each item stands a
 * NUL byte that its len does not count. The caller frees the list with store_list_done(). */
struct store_list {
    struct store_bytes *items;
    size_t count;
    void *block; /* the memory that the items point into; only store/ code uses it */
};

void store_list_done(struct store_list *list);

/* Builds a store_list by copying one item after the other. Zero-initialise the builder; end it with
 * store_list_build() or store_list_drop(). */
struct store_list_builder {
    /* until store_list_build(), `data` of an item is its offset in `block`, because realloc moves
     * `block` */
    struct store_list list;
    char *block;
    size_t block_len, block_cap, item_cap;
};

int store_list_add(struct store_list_builder *b, const void *data, size_t len); /* 0 or -ENOMEM */
/* Returns the finished list and leaves the builder empty. The caller frees the list. */
struct store_list store_list_build(struct store_list_builder *b);
void store_list_drop(struct store_list_builder *b);

/* The default limits of our server (options can change them) and the fixed limits of our client. No
 * limit is smaller than that of torch's libuv server; docs/protocols/store.md, section 7, compares
 * them. */
#define STORE_KEY_MAX   ((size_t) 64 << 10) /* bytes of a key, without torch's leading '/' */
#define STORE_VALUE_MAX ((size_t) 64 << 20) /* bytes of one value in one request */
#define STORE_LIST_MAX  ((size_t) 131072)   /* keys or pairs in one request */
/* bytes of one request; also bytes of the replies that one client has not read */
#define STORE_CLIENT_BUFFER_MAX ((size_t) 256 << 20)

/* The client fails a call with -EMSGSIZE if the value, or the sum of the values of one multi_get,
 * is larger than this. It is larger than STORE_VALUE_MAX, because a value that grew by APPEND can
 * be larger than any value that fits into one request. */
#define STORE_REPLY_MAX ((size_t) 1 << 30)

#endif
