/* The names of operations, as texts and flight records show them. */
#include "worker_runtime/report/report.h"

#include "base/cleanup.h"

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
