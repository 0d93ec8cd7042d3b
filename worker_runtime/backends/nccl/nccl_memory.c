/* Allocates memory by NCCL's allocator, and registers memory with a communicator. NCCL reaches
 * registered memory of other ranks without copies. All ranks register a window together. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include <errno.h>

#define WINDOW_SYMMETRIC 1 /* NCCL_WIN_COLL_SYMMETRIC */

int nccl_memory_new(void *arg, size_t size, void **out, struct cr_error *err) {
    struct nccl_state *s = arg;
    struct visit v;
    if (s->api->ncclMemAlloc == NULL || s->api->ncclMemFree == NULL)
        return cr_fail(err, -ENOTSUP, "allocate memory: NCCL %d has no ncclMemAlloc; it needs 2.19",
                       s->api->nccl_version);
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    ncclResult_t r = s->api->ncclMemAlloc(out, size);
    if (r != ncclSuccess) rc = fail_nccl(s->api, s, r, err, "allocate memory");
    visit_end(s, &v);
    return rc;
}

void nccl_memory_free(void *arg, void *memory) {
    struct nccl_state *s = arg;
    struct visit v;
    struct cr_error ignored;
    if (s->is_wedged || visit_begin(s, &v, &ignored) < 0) return;
    (void) s->api->ncclMemFree(memory);
    visit_end(s, &v);
}

static int call_register(struct nccl_state *s, void *buffer, size_t size, crunrt_register_kind kind,
                         void **out, struct cr_error *err) {
    static const char phase[] = "register memory";
    ncclComm_t comm = NULL;
    int64_t deadline_ms = cr_deadline_ms(s->timeout_ms);
    int rc = call_begin(s, &comm, phase, s->timeout_ms, deadline_ms, err);
    if (rc < 0) return rc;
    ncclResult_t r = kind == CRUNRT_REGISTER_LOCAL
                         ? s->api->ncclCommRegister(comm, buffer, size, out)
                         : s->api->ncclCommWindowRegister(comm, buffer, size, out,
                                                          WINDOW_SYMMETRIC);
    rc = call_end(s, err);
    if (rc < 0) return rc;
    if (r != ncclSuccess && r != ncclInProgress) return fail_nccl(s->api, s, r, err, phase);
    return wait_for_comm(s, &s->store, phase, s->timeout_ms, deadline_ms, err);
}

int nccl_register(void *arg, void *buffer, size_t size, crunrt_register_kind kind, void **out,
                  struct cr_error *err) {
    struct nccl_state *s = arg;
    struct visit v;
    bool is_local = kind == CRUNRT_REGISTER_LOCAL;
    if (is_local ? s->api->ncclCommRegister == NULL || s->api->ncclCommDeregister == NULL
                 : s->api->ncclCommWindowRegister == NULL ||
                       s->api->ncclCommWindowDeregister == NULL)
        return cr_fail(err, -ENOTSUP, "NCCL %d cannot; it needs %s", s->api->nccl_version,
                       is_local ? "2.19" : "2.27");
    int rc = nccl_flush(s, err);
    if (rc == 0) rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = call_register(s, buffer, size, kind, out, err);
    visit_end(s, &v);
    return rc;
}

/* Ends a registration. If the communicator has been aborted, this function does nothing, because
 * NCCL has ended the registration together with the communicator. */
void nccl_deregister(void *arg, crunrt_register_kind kind, void *handle) {
    struct nccl_state *s = arg;
    struct visit v;
    struct cr_error ignored;
    ncclComm_t comm = NULL;
    int64_t deadline_ms = cr_deadline_ms(s->timeout_ms);
    if (s->is_wedged || visit_begin(s, &v, &ignored) < 0) return;
    if (call_begin(s, &comm, "deregister memory", s->timeout_ms, deadline_ms, &ignored) == 0) {
        if (kind == CRUNRT_REGISTER_LOCAL)
            (void) s->api->ncclCommDeregister(comm, handle);
        else
            (void) s->api->ncclCommWindowDeregister(comm, handle);
        (void) call_end(s, &ignored);
    }
    visit_end(s, &v);
}
