/* The table of a key space that was cleared, freed in pieces.
 *
 *     store_keyspace_clear():      the table becomes "remains", in constant time
 *     store_keyspace_free_some():  frees one piece, some hundred blocks of memory
 *
 * Freeing a million keys takes most of a second. In pieces, the longest GET of another client
 * meanwhile takes 1.5 to 3.7 ms instead of 747 to 900 ms (docs/benchmarks.md, "What one client
 * notices of another"). Until it is freed, the memory counts toward the limit, because it is
 * still in use. */
#ifndef STORE_KEYSPACE_REMAINS_H
#define STORE_KEYSPACE_REMAINS_H

#include "store/keyspace/key_table.h"

#include <stdbool.h>

struct store_remains {
    struct store_remains *next;   /* of an earlier clear */
    struct store_key_table table; /* without waiters and watches */
    size_t bucket; /* counted through both arrays, one behind the other: those before are empty */
};

#define STORE_FREE_STEP 2048u /* work of one piece, about a quarter of a millisecond */

/* Frees one piece and subtracts from *memory what it counted for. Returns true while there is more;
 * after the last piece there is nothing left to release. */
bool store_remains_free_some(struct store_remains *r, size_t *memory, size_t work_max);

#endif
