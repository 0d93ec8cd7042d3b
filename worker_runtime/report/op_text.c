/* Writes operations as text, for error texts and flight records. */
#include "worker_runtime/report/report.h"

#include "base/memory.h"

#include <stdio.h>

static const char *const kind_names[] = {
    [CRUNRT_OP_ALL_REDUCE] = "all_reduce",
    [CRUNRT_OP_REDUCE] = "reduce",
    [CRUNRT_OP_BROADCAST] = "broadcast",
    [CRUNRT_OP_ALL_GATHER] = "all_gather",
    [CRUNRT_OP_GATHER] = "gather",
    [CRUNRT_OP_SCATTER] = "scatter",
    [CRUNRT_OP_REDUCE_SCATTER] = "reduce_scatter",
    [CRUNRT_OP_ALL_TO_ALL] = "all_to_all",
    [CRUNRT_OP_ALL_TO_ALL_COUNTS] = "all_to_all_counts",
    [CRUNRT_OP_BARRIER] = "barrier",
    [CRUNRT_OP_SEND] = "send",
    [CRUNRT_OP_RECV] = "recv",
};

const char *op_kind_name(crunrt_op_kind kind) {
    return (size_t) kind < CR_ARRAY_LEN(kind_names) ? kind_names[kind] : "unknown operation";
}

static const char *dtype_name(crunrt_dtype t) {
    static const char *const names[] = {"int8",    "uint8",   "int32",    "uint32",
                                        "int64",   "uint64",  "float16",  "float32",
                                        "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
    return (size_t) t < CR_ARRAY_LEN(names) ? names[t] : "unknown type";
}

static const char *reduce_name(crunrt_reduce_op op) {
    static const char *const names[] = {"sum", "product", "max", "min", "avg",
                                        "and", "or",      "xor", "premul_sum"};
    return (size_t) op < CR_ARRAY_LEN(names) ? names[op] : "unknown operation";
}

void op_describe(const crunrt_op *op, char out[OP_TEXT_MAX]) {
    const char *name = op_kind_name(op->kind), *type = dtype_name(op->dtype);
    switch (op->kind) {
    case CRUNRT_OP_ALL_REDUCE:
    case CRUNRT_OP_REDUCE_SCATTER:
        (void) snprintf(out, OP_TEXT_MAX, "%s(%s x %zu, %s)", name, type, op->count,
                        reduce_name(op->reduce));
        return;
    case CRUNRT_OP_REDUCE:
        (void) snprintf(out, OP_TEXT_MAX, "%s(%s x %zu, %s, root %d)", name, type, op->count,
                        reduce_name(op->reduce), op->root);
        return;
    case CRUNRT_OP_BROADCAST:
    case CRUNRT_OP_GATHER:
    case CRUNRT_OP_SCATTER:
        (void) snprintf(out, OP_TEXT_MAX, "%s(%s x %zu, root %d)", name, type, op->count, op->root);
        return;
    case CRUNRT_OP_SEND:
    case CRUNRT_OP_RECV:
        (void) snprintf(out, OP_TEXT_MAX, "%s(%s x %zu, peer %d, tag %u)", name, type, op->count,
                        op->root, op->tag);
        return;
    case CRUNRT_OP_ALL_TO_ALL_COUNTS:
        (void) snprintf(out, OP_TEXT_MAX, "%s(%s)", name, type);
        return;
    case CRUNRT_OP_BARRIER: (void) snprintf(out, OP_TEXT_MAX, "%s()", name); return;
    case CRUNRT_OP_ALL_GATHER:
    case CRUNRT_OP_ALL_TO_ALL: break;
    }
    (void) snprintf(out, OP_TEXT_MAX, "%s(%s x %zu)", name, type, op->count);
}
