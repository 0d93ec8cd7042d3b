/* Reductions in all types of nccl.h, rounded as a GPU rounds them.
 *
 * Modelled on NCCL 2.28 and 2.30. device/reduce_kernel.h: fp8 is added and multiplied as half and
 * the result is rounded to fp8; half and bfloat16 are computed in their own precision. enqueue.cc,
 * hostToDevRedOp: for floating types the average is the sum of the inputs multiplied by 1/n; for
 * integers it is the sum divided by n. Values too large for fp8 become the largest fp8 value, as in
 * the CUDA Math API.
 *
 * The ranks are reduced in the order 0, 1, 2 …. NCCL's order depends on its algorithm, so on a GPU
 * the last bit of a sum may differ. */
#include "tests/host_nccl/arithmetic.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The numbers of ncclBfloat16 and of NCCL's fp8 types. They are here because the nccl.h of some
 * releases defines these names for CUDA C++ only. */
enum { BFLOAT16 = 9, FLOAT8_E4M3 = 10, FLOAT8_E5M2 = 11, TYPES = 12 };

size_t arithmetic_size(ncclDataType_t type) {
    static const size_t sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (size_t) type < TYPES ? sizes[type] : 0;
}

/* ---- half, bfloat16 and fp8, which C lacks ---- */

struct small_float {
    /* number of mantissa bits; bias of the exponent; stored exponent of the largest finite number
     */
    int mantissa, bias, largest_exponent;
    /* codes of the largest finite number and of infinity; an infinity of 0 means that the type has
     * none, so larger values become the largest finite number */
    uint32_t largest, infinity;
    uint32_t nan, sign; /* code of NaN, and the sign bit */
};

static const struct small_float half = {10, 15, 30, 0x7bff, 0x7c00, 0x7e00, 0x8000};
static const struct small_float bfloat = {7, 127, 254, 0x7f7f, 0x7f80, 0x7fc0, 0x8000};
static const struct small_float e4m3 = {3, 7, 15, 0x7e, 0, 0x7f, 0x80};
static const struct small_float e5m2 = {2, 15, 30, 0x7b, 0, 0x7e, 0x80};

static double decode(const struct small_float *f, uint32_t code) {
    uint32_t magnitude = code & (f->sign - 1);
    int exponent = (int) (magnitude >> f->mantissa);
    int mantissa = (int) (magnitude & ((1U << f->mantissa) - 1));
    double value = 0;
    if (magnitude > f->largest) {
        value = f->mantissa == 3 || mantissa != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = ldexp(mantissa, 1 - f->bias - f->mantissa);
    } else {
        value = ldexp(mantissa + (1 << f->mantissa), exponent - f->bias - f->mantissa);
    }
    return (code & f->sign) != 0 ? -value : value;
}

/* Returns the code of the number that is nearest to `value`. If two numbers are equally near,
 * returns the even one of their codes. */
static uint32_t encode(const struct small_float *f, double value) {
    uint32_t sign = signbit(value) ? f->sign : 0;
    int exponent = 0, smallest = 1 - f->bias;
    if (isnan(value)) return f->nan;
    value = fabs(value);
    if (isinf(value)) return sign | (f->infinity != 0 ? f->infinity : f->largest);
    if (value == 0) return sign;
    (void) frexp(value, &exponent);
    exponent = exponent - 1 < smallest ? smallest : exponent - 1;
    int64_t m = (int64_t) nearbyint(ldexp(value, f->mantissa - exponent)), one = 1 << f->mantissa;
    if (m == 2 * one) {
        m = one;
        exponent++;
    }
    if (m < one) return sign | (uint32_t) m;
    int64_t code = ((int64_t) (exponent - smallest + 1) << f->mantissa) | (m - one);
    if (code > (int64_t) f->largest) return sign | (f->infinity != 0 ? f->infinity : f->largest);
    return sign | (uint32_t) code;
}

static const struct small_float *small_float_of(ncclDataType_t type) {
    switch ((int) type) {
    case ncclFloat16: return &half;
    case BFLOAT16: return &bfloat;
    case FLOAT8_E4M3: return &e4m3;
    case FLOAT8_E5M2: return &e5m2;
    default: return NULL;
    }
}

static uint32_t code_at(const void *at, size_t size) {
    uint16_t two;
    if (size == 1) return *(const uint8_t *) at;
    memcpy(&two, at, sizeof(two));
    return two;
}

static void put_code(void *at, size_t size, uint32_t code) {
    uint16_t two = (uint16_t) code;
    if (size == 1)
        *(uint8_t *) at = (uint8_t) code;
    else
        memcpy(at, &two, sizeof(two));
}

/* ---- predefined operators, and reading one element ---- */

static bool is_floating(ncclDataType_t type) {
    return small_float_of(type) != NULL || type == ncclFloat32 || type == ncclFloat64;
}

bool arithmetic_of(ncclRedOp_t op, ncclDataType_t type, int ranks, struct arithmetic *out) {
    *out = (struct arithmetic){.type = type, .ranks = ranks};
    switch ((int) op) {
    case ncclSum: out->kind = ARITHMETIC_SUM; return true;
    case ncclProd: out->kind = ARITHMETIC_PRODUCT; return true;
    case ncclMax: out->kind = ARITHMETIC_MAX; return true;
    case ncclMin: out->kind = ARITHMETIC_MIN; return true;
    case ncclAvg:
        out->kind = is_floating(type) ? ARITHMETIC_PRE_MUL_SUM : ARITHMETIC_SUM_POST_DIV;
        out->scalar = 1.0 / ranks;
        return true;
    default: return false;
    }
}

double arithmetic_get(ncclDataType_t type, const void *at) {
    float f;
    double d;
    const struct small_float *s = small_float_of(type);
    if (s != NULL) return decode(s, code_at(at, arithmetic_size(type)));
    switch ((int) type) {
    case ncclFloat32: memcpy(&f, at, sizeof(f)); return (double) f;
    case ncclFloat64: memcpy(&d, at, sizeof(d)); return d;
    case ncclInt8: return *(const int8_t *) at;
    case ncclUint8: return *(const uint8_t *) at;
    case ncclInt32: return *(const int32_t *) at;
    case ncclUint32: return *(const uint32_t *) at;
    case ncclInt64: return (double) *(const int64_t *) at;
    default: return (double) *(const uint64_t *) at;
    }
}

/* ---- reductions for each type ---- */

/* Defines a function that reduces two integers. It computes in the unsigned type U, because
 * integers must wrap around on overflow. */
#define DEFINE_INTEGER(name, T, U)                                                                 \
    static T combine_##name(const struct arithmetic *how, T a, T b) {                              \
        if (how->kind == ARITHMETIC_PRODUCT) return (T) ((uint64_t) (U) a * (uint64_t) (U) b);     \
        if (how->kind == ARITHMETIC_MAX) return a > b ? a : b;                                     \
        if (how->kind == ARITHMETIC_MIN) return a < b ? a : b;                                     \
        return (T) ((U) a + (U) b);                                                                \
    }                                                                                              \
    static void reduce_##name(const struct arithmetic *how, T *to, const void *const *from,        \
                              size_t n) {                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            T acc = 0;                                                                             \
            for (int r = 0; r < how->ranks; r++) {                                                 \
                T v = ((const T *) from[r])[i];                                                    \
                if (how->kind == ARITHMETIC_PRE_MUL_SUM) v = (T) ((U) v * (U) (T) how->scalar);    \
                acc = r == 0 ? v : combine_##name(how, acc, v);                                    \
            }                                                                                      \
            if (how->kind == ARITHMETIC_SUM_POST_DIV) acc = (T) (acc / (T) how->ranks);            \
            to[i] = acc;                                                                           \
        }                                                                                          \
    }

DEFINE_INTEGER(int8, int8_t, uint8_t)
DEFINE_INTEGER(uint8, uint8_t, uint8_t)
DEFINE_INTEGER(int32, int32_t, uint32_t)
DEFINE_INTEGER(uint32, uint32_t, uint32_t)
DEFINE_INTEGER(int64, int64_t, uint64_t)
DEFINE_INTEGER(uint64, uint64_t, uint64_t)

#define DEFINE_FLOATING(name, T)                                                                   \
    static void reduce_##name(const struct arithmetic *how, T *to, const void *const *from,        \
                              size_t n) {                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            T acc = 0;                                                                             \
            for (int r = 0; r < how->ranks; r++) {                                                 \
                T v = ((const T *) from[r])[i];                                                    \
                if (how->kind == ARITHMETIC_PRE_MUL_SUM) v *= (T) how->scalar;                     \
                acc = r == 0                            ? v                                        \
                      : how->kind == ARITHMETIC_PRODUCT ? acc * v                                  \
                      : how->kind == ARITHMETIC_MAX     ? (v > acc ? v : acc)                      \
                      : how->kind == ARITHMETIC_MIN     ? (v < acc ? v : acc)                      \
                                                        : acc + v; \
            }                                                                                      \
            to[i] = acc;                                                                           \
        }                                                                                          \
    }

DEFINE_FLOATING(float32, float)
DEFINE_FLOATING(float64, double)

/* Rounds an intermediate result to the type. For fp8 it rounds to half first and then to fp8,
 * because the GPU's kernels compute fp8 in half precision. */
static double rounded(const struct small_float *f, size_t size, double value) {
    if (size == 1) value = decode(&half, encode(&half, value));
    return decode(f, encode(f, value));
}

static void reduce_small(const struct arithmetic *how, const struct small_float *f, size_t size,
                         char *to, const void *const *from, size_t n) {
    double scalar = rounded(f, size, how->scalar);
    for (size_t i = 0; i < n; i++) {
        double acc = 0;
        for (int r = 0; r < how->ranks; r++) {
            double v = decode(f, code_at((const char *) from[r] + i * size, size));
            if (how->kind == ARITHMETIC_PRE_MUL_SUM) v = rounded(f, size, v * scalar);
            acc = r == 0                            ? v
                  : how->kind == ARITHMETIC_PRODUCT ? rounded(f, size, acc * v)
                  : how->kind == ARITHMETIC_MAX     ? (v > acc ? v : acc)
                  : how->kind == ARITHMETIC_MIN     ? (v < acc ? v : acc)
                                                    : rounded(f, size, acc + v);
        }
        put_code(to + i * size, size, encode(f, acc));
    }
}

void arithmetic_reduce(const struct arithmetic *how, void *to, const void *const *from, size_t n) {
    const struct small_float *f = small_float_of(how->type);
    if (f != NULL) {
        reduce_small(how, f, arithmetic_size(how->type), to, from, n);
        return;
    }
    switch ((int) how->type) {
    case ncclInt8: reduce_int8(how, to, from, n); return;
    case ncclUint8: reduce_uint8(how, to, from, n); return;
    case ncclInt32: reduce_int32(how, to, from, n); return;
    case ncclUint32: reduce_uint32(how, to, from, n); return;
    case ncclInt64: reduce_int64(how, to, from, n); return;
    case ncclUint64: reduce_uint64(how, to, from, n); return;
    case ncclFloat32: reduce_float32(how, to, from, n); return;
    case ncclFloat64: reduce_float64(how, to, from, n); return;
    default: return;
    }
}
