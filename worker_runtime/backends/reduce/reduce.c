/* The reductions, generated from a list of types and a list of operations.
 *
 * Integers wrap around: they are added as unsigned numbers. Half-width floats are widened to float
 * for each operation and rounded to nearest even, so that every step of a ring gives the same bits
 * on every machine. */
#include "worker_runtime/backends/reduce/reduce.h"

#include <stdint.h>
#include <string.h>

/* ---- half-width floats ---- */

static uint32_t float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static float from_half(uint16_t h) {
    uint32_t sign = (uint32_t) (h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return bits_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent > 0) return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
    return bits_float(sign | float_bits((float) mantissa * 0x1p-24f));
}

static uint16_t to_half(float f) {
    uint32_t bits = float_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t half;
    if (magnitude > 0x7f800000)
        half = 0x7e00; /* not a number */
    else if (magnitude >= 0x477ff000)
        half = 0x7c00; /* 65520 and more round to infinity */
    else if (magnitude < 0x38800000) {
        /* Subnormal: in [0.5, 1) a float's last bit is worth 2^-24, as a half's here. */
        half = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
    } else {
        half = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
    }
    return (uint16_t) (sign | half);
}

static float from_bfloat(uint16_t b) { return bits_float((uint32_t) b << 16); }

static uint16_t to_bfloat(float f) {
    uint32_t bits = float_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t) (bits >> 16 | 0x40); /* keep it a NaN */
    return (uint16_t) ((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- the loops ---- */

/* Lets gcc vectorise the loops: out is the same as a or b, or does not overlap them. clang checks
 * the addresses at run time instead, and would warn about such a pragma. */
#ifdef __clang__
#define NO_ALIASES
#else
#define NO_ALIASES _Pragma("GCC ivdep")
#endif

/* One loop: load two elements as `wide`, compute, store. */
#define LOOP(name, type, wide, load, store, expr)                                                  \
    static void name(void *out_, const void *a_, const void *b_, size_t n) {                       \
        type *out = out_; /* NOLINT(bugprone-macro-parentheses): a type has none */                \
        const type *a = a_, *b = b_;                                                               \
        NO_ALIASES for (size_t i = 0; i < n; i++) {                                                \
            wide x = (wide) load(a[i]), y = (wide) load(b[i]);                                     \
            out[i] = (type) store(expr);                                                           \
        }                                                                                          \
    }

#define AS_IS(v) (v)

/* `sum` is a type in which an addition that overflows is defined. */
#define ARITHMETIC(t, type, sum, wide, load, store)                                                \
    LOOP(t##_sum, type, sum, load, store, x + y)                                                   \
    LOOP(t##_product, type, sum, load, store, x *y)                                                \
    LOOP(t##_max, type, wide, load, store, x > y ? x : y)                                          \
    LOOP(t##_min, type, wide, load, store, x < y ? x : y)

#define BITWISE(t, type)                                                                           \
    LOOP(t##_and, type, type, AS_IS, AS_IS, x &y)                                                  \
    LOOP(t##_or, type, type, AS_IS, AS_IS, x | y)                                                  \
    LOOP(t##_xor, type, type, AS_IS, AS_IS, x ^ y)

#define INTEGER(t, type, sum)                                                                      \
    ARITHMETIC(t, type, sum, type, AS_IS, AS_IS)                                                   \
    BITWISE(t, type)

INTEGER(int8, int8_t, uint32_t)
INTEGER(uint8, uint8_t, uint32_t)
INTEGER(int32, int32_t, uint32_t)
INTEGER(uint32, uint32_t, uint32_t)
INTEGER(int64, int64_t, uint64_t)
INTEGER(uint64, uint64_t, uint64_t)
ARITHMETIC(half, uint16_t, float, float, from_half, to_half)
ARITHMETIC(float32, float, float, float, AS_IS, AS_IS)
ARITHMETIC(float64, double, double, double, AS_IS, AS_IS)
ARITHMETIC(bfloat, uint16_t, float, float, from_bfloat, to_bfloat)

#define FLOATING_ROW(t)                                                                            \
    { t##_sum, t##_product, t##_max, t##_min, t##_sum, NULL, NULL, NULL }
#define INTEGER_ROW(t)                                                                             \
    { t##_sum, t##_product, t##_max, t##_min, NULL, t##_and, t##_or, t##_xor }

static const reduce_fn functions[10][8] = {
    [CRUNRT_INT8] = INTEGER_ROW(int8),        [CRUNRT_UINT8] = INTEGER_ROW(uint8),
    [CRUNRT_INT32] = INTEGER_ROW(int32),      [CRUNRT_UINT32] = INTEGER_ROW(uint32),
    [CRUNRT_INT64] = INTEGER_ROW(int64),      [CRUNRT_UINT64] = INTEGER_ROW(uint64),
    [CRUNRT_FLOAT16] = FLOATING_ROW(half),    [CRUNRT_FLOAT32] = FLOATING_ROW(float32),
    [CRUNRT_FLOAT64] = FLOATING_ROW(float64), [CRUNRT_BFLOAT16] = FLOATING_ROW(bfloat),
};

reduce_fn reduce_function(crunrt_dtype dtype, crunrt_reduce_op op) {
    if ((unsigned) dtype >= 10 || (unsigned) op >= 8) return NULL;
    return functions[dtype][op];
}

void reduce_finish(void *data, size_t n, crunrt_dtype dtype, crunrt_reduce_op op, int ranks) {
    if (op != CRUNRT_AVG) return;
    if (dtype == CRUNRT_FLOAT32) {
        float *v = data;
        for (size_t i = 0; i < n; i++) v[i] /= (float) ranks;
    } else if (dtype == CRUNRT_FLOAT64) {
        double *v = data;
        for (size_t i = 0; i < n; i++) v[i] /= ranks;
    } else if (dtype == CRUNRT_FLOAT16) {
        uint16_t *v = data;
        for (size_t i = 0; i < n; i++) v[i] = to_half(from_half(v[i]) / (float) ranks);
    } else if (dtype == CRUNRT_BFLOAT16) {
        uint16_t *v = data;
        for (size_t i = 0; i < n; i++) v[i] = to_bfloat(from_bfloat(v[i]) / (float) ranks);
    }
}
