/* The arithmetic of NCCL's reductions on host memory. */
#ifndef HOST_NCCL_ARITHMETIC_H
#define HOST_NCCL_ARITHMETIC_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns the size of an element in bytes, or 0 for a number that is no data type. */
size_t arithmetic_size(ncclDataType_t type);

enum arithmetic_kind {
    ARITHMETIC_SUM,
    ARITHMETIC_PRODUCT,
    ARITHMETIC_MAX,
    ARITHMETIC_MIN,
    ARITHMETIC_PRE_MUL_SUM,  /* every input is multiplied by the scalar; the products are added */
    ARITHMETIC_SUM_POST_DIV, /* the inputs are added; the sum is divided by the number of ranks */
};

struct arithmetic {
    enum arithmetic_kind kind;
    ncclDataType_t type;
    double scalar; /* only for ARITHMETIC_PRE_MUL_SUM */
    int ranks;
};

/* Stores in *out how to compute one of NCCL's predefined operators, for example ncclSum. Returns
 * false if `op` is not a predefined operator. */
bool arithmetic_of(ncclRedOp_t op, ncclDataType_t type, int ranks, struct arithmetic *out);

/* Returns the element at an address. */
double arithmetic_get(ncclDataType_t type, const void *at);

/* Sets to[i] to the reduction of from[0][i] … from[ranks - 1][i], in this order, for n elements.
 * Each intermediate result is rounded to the data type. */
void arithmetic_reduce(const struct arithmetic *how, void *to, const void *const *from, size_t n);

#endif
