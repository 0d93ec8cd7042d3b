/* Element-wise reductions of buffers in host memory, for backends whose library lacks some or all
 * reductions. */
#ifndef BACKENDS_REDUCE_H
#define BACKENDS_REDUCE_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function that sets out[i] to a[i] op b[i] for n elements. `out` may be the same buffer as `a`
 * or `b`. */
typedef void (*reduce_fn)(void *out, const void *a, const void *b, size_t n);

/* Returns the function for a type and operation, or NULL if the type does not have the operation.
 * For CRUNRT_AVG it returns the sum; call reduce_finish() after it, which divides. */
reduce_fn reduce_function(crunrt_dtype dtype, crunrt_reduce_op op);

/* For CRUNRT_AVG, divides data[n] by `ranks`; the type must be a floating type. For other
 * operations it does nothing. */
void reduce_finish(void *data, size_t n, crunrt_dtype dtype, crunrt_reduce_op op, int ranks);

#ifdef __cplusplus
}
#endif

#endif
