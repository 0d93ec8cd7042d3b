/* Builds and frees lists of byte strings. A list consists of two blocks of memory: the bytes of all
 * items, and the array of items, each of which points to its bytes in the first block. */
#include "store/bytes/bytes.h"

#include <errno.h>
#include <stdlib.h>

void store_list_done(struct store_list *list) {
    free(list->items);
    free(list->block);
    *list = (struct store_list){0};
}

static int grow(void **block, size_t *cap, size_t need, size_t unit) {
    if (need <= *cap) return 0;
    size_t n = *cap == 0 ? 64 : *cap;
    while (n < need) n *= 2;
    void *more = realloc(*block, n * unit);
    if (more == NULL) return -ENOMEM;
    *block = more;
    *cap = n;
    return 0;
}

int store_list_add(struct store_list_builder *b, const void *data, size_t len) {
    void *block = b->block, *items = b->list.items;
    int rc = grow(&block, &b->block_cap, b->block_len + len + 1, 1);
    b->block = block;
    if (rc == 0) rc = grow(&items, &b->item_cap, b->list.count + 1, sizeof(*b->list.items));
    b->list.items = items;
    if (rc < 0) return rc;
    if (len > 0) memcpy(b->block + b->block_len, data, len);
    b->block[b->block_len + len] = '\0';
    b->list.items[b->list.count++] = (struct store_bytes){(const void *) b->block_len, len};
    b->block_len += len + 1;
    return 0;
}

struct store_list store_list_build(struct store_list_builder *b) {
    struct store_list list = b->list;
    for (size_t i = 0; i < list.count; i++)
        list.items[i].data = b->block + (size_t) list.items[i].data;
    list.block = b->block;
    *b = (struct store_list_builder){0};
    return list;
}

void store_list_drop(struct store_list_builder *b) {
    free(b->block);
    free(b->list.items);
    *b = (struct store_list_builder){0};
}
