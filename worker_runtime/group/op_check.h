/* Checks an operation's description, and computes properties that depend on nothing else. Pure. */
#ifndef RUNTIME_OP_CHECK_H
#define RUNTIME_OP_CHECK_H

#include "base/error.h"

#include <crunrt.h>

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the operation is a send or a receive. */
bool op_is_p2p(crunrt_op_kind kind);

/* Returns whether the operation has no elements, so that nothing is to be done. A barrier is never
 * empty. An all-to-all with counts is taken as not empty, because this function does not examine
 * its counts. */
bool op_is_empty(const crunrt_op *op);

/* Checks kind, types, ranks, counts and pointers of an operation that `rank` calls in a group of
 * `size` ranks. Returns 0; or -EINVAL, and sets err to what is wrong. */
int op_check(const crunrt_op *op, int rank, int size, struct cr_error *err);

/* Returns a hash that is equal on all ranks that make the same call, and most likely different if
 * the calls differ. Of a send and its receive, only the length enters the hash. Of a collective,
 * kind, type, count, reduction and root enter it, which must be equal on all ranks. */
uint32_t op_signature(const crunrt_op *op);

#endif
