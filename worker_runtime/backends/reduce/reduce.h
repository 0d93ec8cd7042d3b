/* Element-wise reductions of buffers in host memory, for backends whose library does not have all
 * of them. */
#ifndef BACKENDS_REDUCE_H
#define BACKENDS_REDUCE_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function that sets out[i] to the reduction of a[i] and b[i], for n elements. `out` may be the
 * same buffer as `a` or `b`. */
typedef void (*reduce_fn)(void *out, const void *a, const void *b, size_t n);

/* Returns the function for a type and operation, or NULL if the type does not have the operation.
 * For CRUNRT_AVG the function adds; the caller must divide the sum by calling reduce_finish(). */
reduce_fn reduce_function(crunrt_dtype dtype, crunrt_reduce_op op);

/* If `op` is CRUNRT_AVG, divides each of data[n] by `ranks`; the type must be a floating type. For
 * any other operation it does nothing. */
void reduce_finish(void *data, size_t n, crunrt_dtype dtype, crunrt_reduce_op op, int ranks);

#ifdef __cplusplus
}
#endif

#endif
