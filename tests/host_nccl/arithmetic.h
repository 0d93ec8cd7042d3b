/* The arithmetic of NCCL's reductions on host memory. */
#ifndef HOST_NCCL_ARITHMETIC_H
#define HOST_NCCL_ARITHMETIC_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes of an element; 0 if there is no such type. */
size_t arithmetic_size(ncclDataType_t type);

enum arithmetic_kind {
    ARITHMETIC_SUM,
    ARITHMETIC_PRODUCT,
    ARITHMETIC_MAX,
    ARITHMETIC_MIN,
    ARITHMETIC_PRE_MUL_SUM,  /* each input is multiplied by the scalar first */
    ARITHMETIC_SUM_POST_DIV, /* the sum is divided by the number of ranks */
};

struct arithmetic {
    enum arithmetic_kind kind;
    ncclDataType_t type;
    double scalar; /* of PRE_MUL_SUM, already rounded to the type */
    int ranks;
};

/* One of NCCL's own reductions; false if there is none of that number. */
bool arithmetic_of(ncclRedOp_t op, ncclDataType_t type, int ranks, struct arithmetic *out);

double arithmetic_get(ncclDataType_t type, const void *at);

/* to[n] = the reduction of from[0][n] … from[ranks - 1][n], in the order of the ranks, rounded to
 * the type after every step. */
void arithmetic_reduce(const struct arithmetic *how, void *to, const void *const *from, size_t n);

#endif
