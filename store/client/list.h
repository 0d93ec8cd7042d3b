/* Building a struct store_list of copies, one item at a time. Zero-initialise the builder. */
#ifndef STORE_CLIENT_LIST_H
#define STORE_CLIENT_LIST_H

#include "store/types.h"

struct store_list_builder {
    struct store_list list; /* `data` of the items is an offset until the list is built */
    char *block;
    size_t block_len, block_cap, item_cap;
};

int store_list_add(struct store_list_builder *b, const void *data, size_t len); /* 0 or -ENOMEM */
/* Moves the list out of the builder. */
struct store_list store_list_build(struct store_list_builder *b);
void store_list_drop(struct store_list_builder *b);

#endif
