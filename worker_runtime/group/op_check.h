/* Checks the description of an operation, and computes properties of it. Pure. */
#ifndef RUNTIME_OP_CHECK_H
#define RUNTIME_OP_CHECK_H

#include "base/error.h"

#include <crunrt.h>

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the operation is a send or a receive. */
bool op_is_p2p(crunrt_op_kind kind);

/* Returns true if the operation has no elements, so that there is no data to move. Returns false
 * for each barrier, and for each all-to-all with counts, because this function does not read the
 * counts. */
bool op_is_empty(const crunrt_op *op);

/* Checks kind, types, ranks, counts and pointers of an operation that `rank` calls in a group of
 * `size` ranks. Returns 0; or -EINVAL, and sets err to a text that says what is wrong. */
int op_check(const crunrt_op *op, int rank, int size, struct cr_error *err);

/* Returns a hash of what must be equal on all ranks that take part in the operation. For a
 * collective, these are kind, type, count, reduction and root; for a send and its receive, only the
 * length. If the ranks' calls differ, their hashes differ with high probability. */
uint32_t op_signature(const crunrt_op *op);

#endif
