/* Remains: the table of a cleared key space, which is freed in pieces.
 *
 *     store_keyspace_clear():      turns the table into remains, in constant time
 *     store_keyspace_free_some():  frees one piece of the remains, some hundred blocks of memory
 *
 * To free a million keys takes most of a second. As it is done in pieces, the longest GET of
 * another client meanwhile takes 1.5 to 3.7 ms instead of 747 to 900 ms (docs/benchmarks.md, "What
 * one client notices of another"). The memory counts toward the memory limit until it is freed. */
#ifndef STORE_KEYSPACE_REMAINS_H
#define STORE_KEYSPACE_REMAINS_H

#include "store/keyspace/key_table.h"

#include <stdbool.h>

struct store_remains {
    struct store_remains *next;   /* remains of an earlier store_keyspace_clear(), or NULL */
    struct store_key_table table; /* its entries have no waits and no watches */
    /* index of the next bucket to free, counted through both arrays; all buckets before it are
     * empty */
    size_t bucket;
};

/* work of one piece in the units of remains.c; it takes about a quarter of a millisecond */
#define STORE_FREE_STEP 2048u

/* Frees one piece of the remains and subtracts the freed bytes from *memory. Returns true while
 * there is more to free; after false, the caller only has to free the struct itself. */
bool store_remains_free_some(struct store_remains *r, size_t *memory, size_t work_max);

#endif
