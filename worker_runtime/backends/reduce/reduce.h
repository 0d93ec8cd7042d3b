/* Element-wise reductions on host memory, for backends whose library has none, or not all. */
#ifndef BACKENDS_REDUCE_H
#define BACKENDS_REDUCE_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = a[i] op b[i], n elements; out may be a or b. */
typedef void (*reduce_fn)(void *out, const void *a, const void *b, size_t n);

/* NULL if the type does not have this operation. For CRUNRT_AVG the sum; reduce_finish() then
 * divides. */
reduce_fn reduce_function(crunrt_dtype dtype, crunrt_reduce_op op);

/* data[i] /= ranks for CRUNRT_AVG, which only floating types have. Does nothing for other
 * operations. */
void reduce_finish(void *data, size_t n, crunrt_dtype dtype, crunrt_reduce_op op, int ranks);

#ifdef __cplusplus
}
#endif

#endif
