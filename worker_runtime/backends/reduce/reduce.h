/* Element-wise reductions on host memory, for backends that bring none. */
#ifndef BACKENDS_REDUCE_H
#define BACKENDS_REDUCE_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = a[i] op b[i], n elements; out may be a or b. */
typedef void (*reduce_fn)(void *out, const void *a, const void *b, size_t n);

/* NULL where the type has no such operation. CRUNRT_AVG gives the sum; reduce_finish() divides. */
reduce_fn reduce_function(crunrt_dtype dtype, crunrt_reduce_op op);

/* For CRUNRT_AVG: data[i] /= ranks, floating types. Nothing for the other operations. */
void reduce_finish(void *data, size_t n, crunrt_dtype dtype, crunrt_reduce_op op, int ranks);

#ifdef __cplusplus
}
#endif

#endif
