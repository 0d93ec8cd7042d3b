/* The nccl backend, and for AMD's GPUs the rccl backend: collectives on GPU memory. This file
 * contains the table of functions.
 *
 *   nccl_open.c    makes a communicator: probe, exchange of ids, initialisation
 *   nccl_split.c   makes a communicator by splitting another
 *   nccl_memory.c  memory that NCCL reaches without copies
 *   nccl_reform.c  makes a communicator out of that of the last round, after a failure
 *   reform_plan.c  decides how nccl_reform.c makes that communicator; does no I/O
 *   nccl_launch.c  operations on streams, and works
 *   nccl_ops.c     operations as calls of NCCL
 *   nccl_overseer.c  a thread that keeps the deadlines of calls and operations
 *   nccl_state.c   what a communicator has on its device
 *   nccl_end.c     the end of communicators: finalize, destroy, abort
 *   nccl_wait.c    waits, and errors as texts
 *   nccl_api.c     loads NCCL and the CUDA driver
 *   driver_cuda.h, driver_hip.h   what differs between NVIDIA's and AMD's GPUs */
#include "worker_runtime/backends/nccl/nccl_internal.h"

/* Returns the communicator. The program may use it for operations of its own. These must run after
 * the group's pending sends and receives, so this function first puts the pending ones on the
 * stream. */
static void *nccl_native(void *arg) {
    struct nccl_state *s = arg;
    struct cr_error ignored;
    (void) nccl_flush(s, &ignored);
    nccl_lock();
    ncclComm_t comm = s->comm;
    nccl_unlock();
    return comm;
}

__attribute__((visibility("default"))) const struct crunrt_backend crunrt_backend;
const struct crunrt_backend crunrt_backend = {
    .abi = CRUNRT_BACKEND_ABI,
    .name = BACKEND_NAME,
    .probe = nccl_probe,
    .open = nccl_open,
    .run = nccl_run,
    .batch = nccl_batch,
    .start = nccl_start,
    .start_batch = nccl_start_batch,
    .wait = nccl_wait,
    .wait_stream = nccl_wait_stream,
    .release = nccl_release,
    .abort = nccl_abort,
    .close = nccl_close,
    .native = nccl_native,
    .can_split = nccl_can_split,
    .split = nccl_split,
    .recoverable = nccl_recoverable,
    .memory_new = nccl_memory_new,
    .memory_free = nccl_memory_free,
    .register_memory = nccl_register,
    .deregister_memory = nccl_deregister,
    .looks_every_ms = STORE_LOOK_EVERY_MS,
};
