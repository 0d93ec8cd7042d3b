/* MPI's names for data types and reductions. MPI has no half-width floats (float16, bfloat16): they
 * are sent as 16-bit integers, and the functions of backends/reduce reduce them. */
#include "worker_runtime/backends/mpi/mpi_internal.h"

#include "worker_runtime/backends/reduce/reduce.h"

#define HALF_OP(name, dtype, reduce)                                                               \
    static void name(void *in, void *inout, int *len, MPI_Datatype *type) {                        \
        (void) type;                                                                               \
        reduce_function(dtype, reduce)(inout, in, inout, (size_t) *len);                           \
    }

HALF_OP(half_sum, CRUNRT_FLOAT16, CRUNRT_SUM)
HALF_OP(half_product, CRUNRT_FLOAT16, CRUNRT_PRODUCT)
HALF_OP(half_max, CRUNRT_FLOAT16, CRUNRT_MAX)
HALF_OP(half_min, CRUNRT_FLOAT16, CRUNRT_MIN)
HALF_OP(bfloat_sum, CRUNRT_BFLOAT16, CRUNRT_SUM)
HALF_OP(bfloat_product, CRUNRT_BFLOAT16, CRUNRT_PRODUCT)
HALF_OP(bfloat_max, CRUNRT_BFLOAT16, CRUNRT_MAX)
HALF_OP(bfloat_min, CRUNRT_BFLOAT16, CRUNRT_MIN)

static MPI_Op half_ops[2][4]; /* [float16, bfloat16][sum, product, max, min] */

int make_ops(struct cr_error *err) {
    static MPI_User_function *const functions[2][4] = {
        {half_sum, half_product, half_max, half_min},
        {bfloat_sum, bfloat_product, bfloat_max, bfloat_min},
    };
    static bool are_made;
    if (are_made) return 0;
    for (size_t i = 0; i < 8; i++) {
        int code = MPI_Op_create(functions[i / 4][i % 4], 1, &half_ops[i / 4][i % 4]);
        if (code != MPI_SUCCESS) return fail_mpi(code, err, "make the half-width reductions");
    }
    are_made = true;
    return 0;
}

MPI_Op operation_of(crunrt_dtype dtype, crunrt_reduce_op reduce) {
    if (reduce == CRUNRT_AVG) reduce = CRUNRT_SUM; /* reduce_finish() divides */
    if (dtype == CRUNRT_FLOAT16) return half_ops[0][reduce];
    if (dtype == CRUNRT_BFLOAT16) return half_ops[1][reduce];
    switch (reduce) {
    case CRUNRT_AVG:
    case CRUNRT_SUM: return MPI_SUM;
    case CRUNRT_PRODUCT: return MPI_PROD;
    case CRUNRT_MAX: return MPI_MAX;
    case CRUNRT_MIN: return MPI_MIN;
    case CRUNRT_BAND: return MPI_BAND;
    case CRUNRT_BOR: return MPI_BOR;
    case CRUNRT_BXOR: return MPI_BXOR;
    case CRUNRT_PREMUL_SUM: break; /* MPI has no such operator; check_supported() refuses it */
    }
    return MPI_OP_NULL;
}

MPI_Datatype type_of(crunrt_dtype dtype) {
    switch (dtype) {
    case CRUNRT_INT8: return MPI_INT8_T;
    case CRUNRT_UINT8: return MPI_UINT8_T;
    case CRUNRT_INT32: return MPI_INT32_T;
    case CRUNRT_UINT32: return MPI_UINT32_T;
    case CRUNRT_INT64: return MPI_INT64_T;
    case CRUNRT_UINT64: return MPI_UINT64_T;
    case CRUNRT_FLOAT32: return MPI_FLOAT;
    case CRUNRT_FLOAT64: return MPI_DOUBLE;
    case CRUNRT_FLOAT16:
    case CRUNRT_BFLOAT16: return MPI_UINT16_T;
    case CRUNRT_FLOAT8_E4M3:
    case CRUNRT_FLOAT8_E5M2: return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}
