/* Makes a communicator, in four phases, each with the group's timeout:
 *
 *   probe     checks libraries, driver and device, so that a rank without a usable GPU fails before
 *             any rank waits
 *   arrival   all ranks report in the store; the group does this. Ids are made only after it,
 *             because an id that is not used leaves a thread and a socket behind
 *   ids       each root makes an id of 128 bytes and sets "nccl/<root>"; the other ranks read it
 *   init      a nonblocking call, which is polled until it is done, has failed, or its time is over
 */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/memory.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_PER_ROOT 128 /* the value that torch uses, too */

/* ---- nccl_probe() ---- */

static int probe_device(const struct nccl_api *api, int device, struct cr_error *err) {
    int driver = 0, count = 0;
    /* 0 means that there is no driver; the next call returns the reason */
    (void) api->cudaDriverGetVersion(&driver);
    cudaError_t e = api->cudaGetDeviceCount(&count);
    if (e == 35 || e == 34 || e == 100) {
        char what[96];
        (void) snprintf(what, sizeof(what),
                        "find a GPU: none is usable here (CUDA driver version %d)", driver);
        return fail_cuda(api, e, -ENODEV, err, what);
    }
    if (e != cudaSuccess)
        return fail_cuda(api, e, -ENODEV, err, "find a GPU: the driver or device is at fault");
    if (device < 0) {
        return cr_fail(err, -ENODEV,
                       "choose a GPU: no device was given and LOCAL_RANK is not known");
    }
    if (device >= count) {
        return cr_fail(err, -ENODEV,
                       "choose GPU %d: only %d visible; start fewer workers on this node, or "
                       "check CUDA_VISIBLE_DEVICES",
                       device, count);
    }
    return 0;
}

int nccl_probe(const struct backend_group *group, struct cr_error *err) {
    const struct nccl_api *api = NULL;
    if (has_wedged_comm()) {
        return cr_fail(err, -EIO,
                       "use NCCL: a communicator of this process could not be aborted and holds "
                       "the GPU; end the process");
    }
    int rc = nccl_api_load(&api, err);
    if (rc == 0) rc = probe_device(api, group->device, err);
    if (rc < 0) return rc;
    const char *fixed = getenv("NCCL_COMM_ID");
    if (fixed != NULL && fixed[0] != '\0') {
        return cr_fail(err, -EINVAL,
                       "use NCCL: NCCL_COMM_ID='%s' fixes one address for every communicator, "
                       "which no restart survives; unset it",
                       fixed);
    }
    return 0;
}

/* ---- exchanging ids of communicators ---- */

static int ranks_per_root(void) {
    int64_t n = RANKS_PER_ROOT;
    const char *text = getenv("CRUNRT_NCCL_RANKS_PER_ROOT");
    if (text != NULL && cr_parse_i64(text, 1, INT_MAX, &n) < 0) n = RANKS_PER_ROOT;
    return (int) n;
}

static int root_count(const struct nccl_api *api, int size) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    if (api->ncclCommInitRankScalable == NULL) return 1;
    int per_root = ranks_per_root();
    return size > per_root ? (size + per_root - 1) / per_root : 1;
#else
    (void) api;
    (void) size;
    (void) ranks_per_root;
    return 1;
#endif
}

/* Returns the rank of a root, by NCCL's rule: the ranks are divided into as many blocks as there
 * are roots, the first size % roots blocks have one rank more, and the first rank of each block is
 * its root. */
static int rank_of_root(int root, int roots, int size) {
    int q = size / roots, m = size % roots;
    return root < m ? root * (q + 1) : m * (q + 1) + (root - m) * q;
}

static int exchange_id(const struct backend_group *g, const struct nccl_api *api, int root,
                       int roots, ncclUniqueId *id, struct cr_error *err) {
    char key[32];
    (void) snprintf(key, sizeof(key), "nccl/%d", root);
    if (g->rank == rank_of_root(root, roots, g->size)) {
        ncclResult_t r = api->ncclGetUniqueId(id);
        if (r != ncclSuccess) return fail_nccl(api, r, err, "make the unique id");
        return g->store.set(g->store.arg, key, id, sizeof(*id), err);
    }
    CR_AUTO_FREE void *value = NULL;
    size_t len = 0;
    int rc = g->store.get(g->store.arg, key, g->timeout_ms, &value, &len, err);
    if (rc < 0) return cr_wrap(err, "get the unique id of root %d", root);
    if (len != sizeof(*id)) {
        return cr_fail(err, -EPROTO, "get the unique id of root %d: %zu bytes instead of %zu", root,
                       len, sizeof(*id));
    }
    memcpy(id, value, sizeof(*id));
    return 0;
}

/* ---- connecting a communicator ---- */

static ncclResult_t init_comm(struct nccl_state *s, ncclUniqueId *ids, int roots) {
    ncclConfig_t config = config_of(s);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    if (roots > 1) {
        return s->api->ncclCommInitRankScalable(&s->comm, s->size, s->rank, roots, ids, &config);
    }
#endif
    (void) roots;
    return s->api->ncclCommInitRankConfig(&s->comm, s->size, ids[0], s->rank, &config);
}

/* Deletes the ids if this rank is the last to be initialised, so that they do not fill the store.
 */
static void delete_ids(const struct backend_group *g, int roots) {
    int64_t through = 0;
    if (g->store.add(g->store.arg, "nccl/through", 1, &through, NULL) < 0 || through < g->size)
        return;
    for (int root = 0; root < roots; root++) {
        char key[32];
        (void) snprintf(key, sizeof(key), "nccl/%d", root);
        (void) g->store.remove(g->store.arg, key, NULL);
    }
}

static int connect_comm(struct nccl_state *s, const struct backend_group *g, struct cr_error *err) {
    int roots = root_count(s->api, s->size);
    CR_AUTO_FREE ncclUniqueId *ids = calloc((size_t) roots, sizeof(*ids));
    if (ids == NULL) return cr_fail(err, -ENOMEM, "exchange ids: out of memory");
    for (int root = 0; root < roots; root++) {
        int rc = exchange_id(g, s->api, root, roots, &ids[root], err);
        if (rc < 0) return rc;
    }
    ncclResult_t r = init_comm(s, ids, roots);
    if (r != ncclSuccess && r != ncclInProgress) {
        int rc = fail_nccl(s->api, r, err, "initialise the communicator");
        s->comm = NULL; /* NCCL may have written an invalid pointer to it */
        repair_group_depth(s->api);
        return rc;
    }
    int rc = wait_for_comm(s, "initialise the communicator", g->timeout_ms, err);
    if (rc < 0) return rc;
    delete_ids(g, roots);
    return 0;
}

int nccl_open(const struct backend_group *group, void **out, struct cr_error *err) {
    struct nccl_state *s = state_new(group, err);
    if (s == NULL) return -ENOMEM;
    int rc = nccl_api_load(&s->api, err);
    if (rc == 0) rc = prepare_device(s, err);
    if (rc == 0) rc = connect_comm(s, group, err);
    if (rc < 0) {
        if (s->api != NULL) nccl_abort(s);
        nccl_close(s);
        return rc;
    }
    join_live(s);
    *out = s;
    return 0;
}
