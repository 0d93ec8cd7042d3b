/* Makes a communicator by splitting its parent with ncclCommSplit() (NCCL 2.18), which needs no
 * ids. With non-blocking communicators it waits until the parent is no longer "in progress", until
 * NCCL has written the child's handle, and until the child is initialised. The group's timeout
 * limits the three waits together. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int nccl_can_split(void *arg, const struct backend_group *g) {
    struct nccl_state *parent = arg;
    const char *wanted = getenv("CRUNRT_NCCL_SPLIT");
    if (wanted != NULL && strcmp(wanted, "0") == 0) return 0;
    if (!has_comm(parent) || parent->api->ncclCommSplit == NULL) return 0;
    return g->rank < 0 || g->device == parent->device;
}

#ifndef NCCL_SPLIT_NOCOLOR /* headers before 2.18 */
#define NCCL_SPLIT_NOCOLOR (-1)
#endif

/* Waits until NCCL has written the child's handle to *child, and until the child is initialised.
 * With the releases of NCCL up to now, the handle may appear a moment after the parent has left the
 * state "in progress", because a separate thread of NCCL writes it. */
static int wait_for_child(struct nccl_state *s, ncclComm_t *child, int64_t timeout_ms,
                          int64_t deadline_ms, struct cr_error *err) {
    struct wait w = wait_until(&s->store, deadline_ms);
    while (__atomic_load_n(child, __ATOMIC_ACQUIRE) == NULL) {
        int rc = wait_turn(&w, "split: wait for the new communicator", timeout_ms, err);
        if (rc < 0) return rc;
    }
    nccl_lock();
    s->comm = *child;
    nccl_unlock();
    return wait_for_comm(s, &s->store, "initialise the communicator", timeout_ms, deadline_ms, err);
}

/* Calls ncclCommSplit() and waits until the parent is no longer in progress. */
static int call_split(struct nccl_state *parent, struct nccl_state *s,
                      const struct backend_group *g, int64_t deadline_ms, ncclComm_t *child,
                      struct cr_error *err) {
    static const char phase[] = "split the communicator";
    bool is_member = g->rank >= 0;
    ncclComm_t comm = NULL;
    union nccl_config config = config_of(s);
    int rc = call_begin(parent, &comm, phase, g->timeout_ms, deadline_ms, err);
    if (rc < 0) return rc;
    ncclResult_t r = parent->api->ncclCommSplit(comm, is_member ? 0 : NCCL_SPLIT_NOCOLOR,
                                                is_member ? g->rank : 0, child, &config.passed);
    rc = call_end(parent, err);
    if (rc == 0 && r != ncclSuccess && r != ncclInProgress) {
        rc = fail_nccl(parent->api, parent, r, err, phase);
        repair_group_depth(parent->api);
    }
    if (rc < 0) return rc;
    return wait_for_comm(parent, &s->store, phase, g->timeout_ms, deadline_ms, err);
}

/* Splits the parent. Every rank of the parent calls this. On a rank that is not in the new group,
 * only the store of `s` is used. */
static int split_off(struct nccl_state *parent, struct nccl_state *s, const struct backend_group *g,
                     ncclComm_t *child, struct cr_error *err) {
    bool is_member = g->rank >= 0;
    int64_t deadline_ms = cr_deadline_ms(g->timeout_ms);
    struct visit v;
    int rc = nccl_flush(parent, err);
    if (rc == 0 && is_member) rc = read_config(s, g->nccl, err);
    if (rc == 0 && is_member) rc = prepare_device(s, err);
    if (rc == 0) rc = visit_begin(parent, &v, err);
    if (rc < 0) return rc;
    rc = call_split(parent, s, g, deadline_ms, child, err);
    if (rc == 0 && is_member) rc = wait_for_child(s, child, g->timeout_ms, deadline_ms, err);
    visit_end(parent, &v);
    return rc;
}

/* Aborts the parent and then the child. This order is needed: the abort of the parent ends the
 * child's initialisation, and after it NCCL does not write the child's handle any more. */
static void abort_split(struct nccl_state *parent, struct nccl_state *s, ncclComm_t *child) {
    nccl_abort(parent);
    if (parent->is_wedged) {
        /* NCCL may still use *s and *child, so neither is freed */
        s->is_wedged = true;
        return;
    }
    nccl_lock();
    s->comm = *child;
    nccl_unlock();
    nccl_abort(s);
    free(child);
}

int nccl_split(void *arg, const struct backend_group *g, void **out, struct cr_error *err) {
    struct nccl_state *parent = arg;
    *out = NULL;
    /* The child's handle is in allocated memory, because NCCL may write to it after this function
     * has failed and returned. */
    ncclComm_t *child = calloc(1, sizeof(ncclComm_t));
    struct nccl_state *s = child == NULL ? NULL : state_new(g, err);
    if (s == NULL) {
        free(child);
        nccl_abort(parent);
        return cr_fail(err, -ENOMEM, "split the communicator: out of memory");
    }
    s->api = parent->api;
    s->is_blocking = parent->is_blocking;
    int rc = split_off(parent, s, g, child, err);
    if (rc < 0) {
        abort_split(parent, s, child);
        nccl_close(s);
        return rc;
    }
    free(child);
    if (g->rank < 0) {
        nccl_close(s);
    } else {
        set_connected(s);
        *out = s;
    }
    return 0;
}
