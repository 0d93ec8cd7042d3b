/* What a cleared key space leaves behind: its table, freed a piece at a time.
 *
 *     clear:  the table ──► remains         at once, whatever is in it
 *     later:  free_some(), free_some(), …   each about as long as the others
 *
 * A million keys take the better part of a second to free, so whoever has other clients frees them in
 * between. Until then they are counted: they are still there. */
#ifndef STORE_KEYSPACE_REMAINS_H
#define STORE_KEYSPACE_REMAINS_H

#include "store/keyspace/key_table.h"

#include <stdbool.h>

struct store_remains {
    struct store_remains *next;   /* of an earlier clear */
    struct store_key_table table; /* nobody waits for or watches anything in it */
    size_t bucket;                /* of both arrays, one behind the other: those before are empty */
};

#define STORE_FREE_STEP 2048u /* work of a piece: a quarter of a millisecond, or about */

/* Frees a piece, and takes what that counted off *memory. True while there is more; after the last
 * piece there is nothing to let go of. */
bool store_remains_free_some(struct store_remains *r, size_t *memory, size_t work_max);

#endif
