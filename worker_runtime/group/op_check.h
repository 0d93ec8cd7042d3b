/* What holds of a described operation whatever the group does with it. Pure. */
#ifndef RUNTIME_OP_CHECK_H
#define RUNTIME_OP_CHECK_H

#include "base/error.h"

#include <crunrt.h>

#include <stdbool.h>
#include <stdint.h>

/* Send or receive. */
bool op_is_p2p(crunrt_op_kind kind);

/* No elements: there is nothing to do. A barrier is never empty. All-to-all with counts is not
 * looked into and counts as not empty. */
bool op_is_empty(const crunrt_op *op);

/* Checks kind, types, ranks, counts and pointers for `rank` in a group of `size` ranks.
 * 0, or -EINVAL with what is wrong. */
int op_check(const crunrt_op *op, int rank, int size, struct cr_error *err);

/* A number that is the same on ranks that make the same call, and otherwise most likely differs. Of
 * a send and a receive only the length must agree; of a collective everything that is not each
 * rank's own. */
uint32_t op_signature(const crunrt_op *op);

#endif
