/* The nccl backend: collectives on GPU memory. This file contains its table of functions.
 *
 *   nccl_open.c    makes a communicator: probe, exchange of ids, initialisation
 *   nccl_split.c   makes a communicator by splitting another
 *   nccl_ops.c     operations
 *   nccl_state.c   a communicator's device and its end: finalize, destroy, abort
 *   nccl_wait.c    waits, and errors as texts
 *   nccl_api.c     loads NCCL and the CUDA runtime */
#include "worker_runtime/backends/nccl/nccl_internal.h"

static void *nccl_native(void *arg) { return ((struct nccl_state *) arg)->comm; }

__attribute__((visibility("default"))) const struct crunrt_backend crunrt_backend;
const struct crunrt_backend crunrt_backend = {
    .abi = CRUNRT_BACKEND_ABI,
    .name = "nccl",
    .probe = nccl_probe,
    .open = nccl_open,
    .run = nccl_run,
    .batch = nccl_batch,
    .start = nccl_start,
    .wait = nccl_wait,
    .release = nccl_release,
    .abort = nccl_abort,
    .close = nccl_close,
    .native = nccl_native,
    .can_split = nccl_can_split,
    .split = nccl_split,
    .looks_every_ms = STORE_LOOK_EVERY_MS,
};
