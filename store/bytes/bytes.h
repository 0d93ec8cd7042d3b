/* Types that every chamber of the store uses: byte strings, lists of byte strings, and the default
 * limits of requests. */
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

/* A list of byte strings that a call has returned. All items lie in one block of memory; a NUL
 * byte, which `len` does not count, follows each item. The caller frees the list with
 * store_list_done(). */
struct store_list {
    struct store_bytes *items;
    size_t count;
    void *block; /* memory that the items point into; only code in store/ uses it */
};

void store_list_done(struct store_list *list);

/* Builds a store_list by copying one item after the other. Zero-initialise the builder; end it with
 * store_list_build() or store_list_drop(). */
struct store_list_builder {
    /* the items added so far. Before store_list_build(), `data` of each item is not an address but
     * an offset in `block`, because realloc() may still move `block`. */
    struct store_list list;
    char *block;
    size_t block_len, block_cap, item_cap;
};

/* returns 0 or -ENOMEM */
int store_list_add(struct store_list_builder *b, const void *data, size_t len);
/* Returns the finished list and leaves the builder empty. The caller frees the list. */
struct store_list store_list_build(struct store_list_builder *b);
void store_list_drop(struct store_list_builder *b);

/* The fixed limits of crun's client, which are at the same time the default limits of crun's
 * server; options of the server change them. No limit is smaller than that of torch's server;
 * docs/protocols/store.md, section 7, has a table of both servers' limits. */
#define STORE_KEY_MAX   ((size_t) 64 << 10) /* longest key in bytes, without the '/' that torch's
                                             * clients put in front of it */
#define STORE_VALUE_MAX ((size_t) 64 << 20) /* bytes of one value in one request */
#define STORE_LIST_MAX  ((size_t) 131072)   /* keys or pairs in one request */
/* longest request in bytes; also, the largest number of bytes of replies that the server keeps for
 * a client that does not read its replies */
#define STORE_CLIENT_BUFFER_MAX ((size_t) 256 << 20)

/* Largest number of bytes that the client receives as one value, or as all values of one multi_get.
 * If there are more, the call fails with -EMSGSIZE. The limit is larger than STORE_VALUE_MAX,
 * because APPEND can make a value longer than any value that fits into one request. */
#define STORE_REPLY_MAX ((size_t) 1 << 30)

#endif
