/* Remains: the table of a cleared key space, which is freed in pieces.
 *
 *     store_keyspace_clear():      turns the table into remains, in constant time
 *     store_keyspace_free_some():  frees one piece of the remains, some hundred blocks of memory
 *
 * To free a million keys takes most of a second. If this were done at once, a GET of another client
 * could take 747 to 900 ms; as it is done in pieces, the longest GET takes 1.5 to 3.7 ms
 * (docs/benchmarks.md, "What one client notices of another"). The memory of the remains counts
 * toward the memory limit until it is freed. */
#ifndef STORE_KEYSPACE_REMAINS_H
#define STORE_KEYSPACE_REMAINS_H

#include "store/keyspace/key_table.h"

#include <stdbool.h>

struct store_remains {
    struct store_remains *next;   /* remains of an earlier store_keyspace_clear(), or NULL */
    struct store_key_table table; /* its entries have no waits and no watches */
    /* index of the next bucket to free; the buckets of the second array follow those of the first.
     * All buckets before this one are empty. */
    size_t bucket;
};

/* work of one piece, in the units of work of remains.c: about a quarter of a millisecond */
#define STORE_FREE_STEP 2048u

/* Frees one piece of the remains, which takes about `work_max` units of work, and subtracts the
 * freed bytes from *memory. Returns true if entries are left, which later calls have to free; false
 * if the caller only has to free `r` itself. */
bool store_remains_free_some(struct store_remains *r, size_t *memory, size_t work_max);

#endif
