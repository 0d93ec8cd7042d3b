/* Makes a communicator, in four phases. Each phase has the group's timeout.
 *
 *   probe     checks libraries, driver and device, so that a rank without a usable GPU fails before
 *             any rank waits
 *   arrival   all ranks report in the store (in worker_runtime/group). Ids are made only after this
 *             phase, because an id that is not used leaves a thread and a socket behind
 *   ids       each root makes an id of 128 bytes and sets "nccl/<root>"; the other ranks read it
 *   init      a call of NCCL; if it is not over in time, the overseer aborts the communicator */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include "base/memory.h"
#include "base/text/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_PER_ROOT 128 /* the value that torch uses, too */

/* ---- nccl_probe() ---- */

static int probe_device(const struct nccl_api *api, int device, struct cr_error *err) {
    int driver = 0, count = 0, e = api->cuInit(0);
    (void) api->cuDriverGetVersion(&driver);
    if (e == 0) e = api->cuDeviceGetCount(&count);
    if (e == CUDA_STUB_LIBRARY || e == CUDA_NO_DEVICE || e == CUDA_OLD_DRIVER ||
        (e == 0 && count == 0)) {
        char what[96];
        (void) snprintf(what, sizeof(what),
                        "find a GPU: none is usable here (" DRIVER_NAME " version %d)", driver);
        return fail_cuda(api, e != 0 ? e : CUDA_NO_DEVICE, -ENODEV, err, what);
    }
    if (e != 0)
        return fail_cuda(api, e, -ENODEV, err, "find a GPU: the driver or device is at fault");
    if (device < 0) {
        return cr_fail(err, -ENODEV,
                       "choose a GPU: no device was given and LOCAL_RANK is not known");
    }
    if (device >= count) {
        return cr_fail(err, -ENODEV,
                       "choose GPU %d: only %d visible; start fewer workers on this node, or "
                       "check " VISIBLE_DEVICES "; if each worker sees only its own GPU, set "
                       "`device` in the group's options to 0, or start crun with "
                       "--virtual-local-rank",
                       device, count);
    }
    return 0;
}

static int refuse_variable(const char *name, const char *bad, const char *why,
                           struct cr_error *err) {
    const char *value = getenv(name);
    if (value == NULL || value[0] == '\0' || (bad != NULL && strcmp(value, bad) != 0)) return 0;
    return cr_fail(err, -EINVAL, "use NCCL: %s='%s' %s; unset it", name, value, why);
}

int nccl_probe(const struct backend_group *group, struct cr_error *err) {
    const struct nccl_api *api = NULL;
    int rc = nccl_recoverable(err);
    if (rc == 0) rc = nccl_api_load(&api, err);
    if (rc == 0) rc = probe_device(api, group->device, err);
    if (rc == 0)
        rc = refuse_variable("NCCL_COMM_ID", NULL,
                             "fixes one address for every communicator, which no restart survives",
                             err);
    if (rc == 0)
        rc = refuse_variable("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1",
                             "gives a group and its splits one abort flag, so that the abort of "
                             "one ends operations of the other as if they had succeeded",
                             err);
    return rc;
}

/* ---- exchanging ids of communicators ---- */

static int ranks_per_root(void) {
    int64_t n = RANKS_PER_ROOT;
    const char *text = getenv("CRUNRT_NCCL_RANKS_PER_ROOT");
    if (text != NULL && cr_parse_i64(text, 1, INT_MAX, &n) < 0) n = RANKS_PER_ROOT;
    return (int) n;
}

static int root_count(const struct nccl_api *api, int size) {
    if (api->ncclCommInitRankScalable == NULL) return 1;
    int per_root = ranks_per_root();
    return size > per_root ? (size + per_root - 1) / per_root : 1;
}

/* Returns the rank of root number `root`. NCCL divides the ranks into `roots` blocks; each of the
 * first size % roots blocks has one rank more than the others. A block's first rank is its root. */
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
        if (r != ncclSuccess) return fail_nccl(api, NULL, r, err, "make the unique id");
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

static ncclResult_t begin_init(struct nccl_state *s, ncclUniqueId *ids, int roots,
                               ncclComm_t *comm) {
    union nccl_config config = config_of(s);
    if (roots > 1)
        return s->api->ncclCommInitRankScalable(comm, s->size, s->rank, roots, ids, &config.passed);
    return s->api->ncclCommInitRankConfig(comm, s->size, ids[0], s->rank, &config.passed);
}

static void set_comm(struct nccl_state *s, ncclComm_t comm) {
    nccl_lock();
    s->comm = comm;
    nccl_unlock();
}

/* Initialises the communicator between ncclGroupStart() and ncclGroupEnd(). In such a group
 * ncclCommInitRankConfig() only makes the handle, and ncclGroupEnd() waits for the other ranks. So
 * this thread gets the handle before it waits, and can store it for the overseer, which aborts the
 * communicator at the deadline. */
static ncclResult_t init_comm(struct nccl_state *s, ncclUniqueId *ids, int roots) {
    ncclComm_t comm = NULL;
    ncclResult_t r = s->api->ncclGroupStart();
    if (r != ncclSuccess) return r;
    r = begin_init(s, ids, roots, &comm);
    if (r == ncclSuccess || r == ncclInProgress) set_comm(s, comm);
    ncclResult_t end = s->api->ncclGroupEnd();
    return r == ncclSuccess || r == ncclInProgress ? end : r;
}

/* Call this when this rank's communicator is initialised. The last rank that calls this deletes all
 * ids from the store, so that the store does not fill up. */
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

/* Exchanges the ids of all roots. A root sets its own id before it waits for the ids of other
 * roots, so that two roots do not wait for each other. */
static int exchange_ids(const struct backend_group *g, const struct nccl_api *api, int roots,
                        ncclUniqueId *ids, struct cr_error *err) {
    for (int waits = 0; waits <= 1; waits++) {
        for (int root = 0; root < roots; root++) {
            if ((g->rank != rank_of_root(root, roots, g->size)) != waits) continue;
            int rc = exchange_id(g, api, root, roots, &ids[root], err);
            if (rc < 0) return rc;
        }
    }
    return 0;
}

static int connect_with(struct nccl_state *s, const struct backend_group *g, ncclUniqueId *ids,
                        int roots, struct cr_error *err) {
    static const char phase[] = "initialise the communicator";
    int64_t deadline_ms = cr_deadline_ms(g->timeout_ms);
    struct visit v;
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    rc = call_begin(s, NULL, phase, g->timeout_ms, deadline_ms, err);
    if (rc == 0) {
        ncclResult_t r = init_comm(s, ids, roots);
        rc = call_end(s, err);
        if (rc == 0 && r != ncclSuccess && r != ncclInProgress)
            rc = fail_nccl(s->api, s, r, err, phase);
        if (r != ncclSuccess && r != ncclInProgress) repair_group_depth(s->api);
    }
    if (rc == 0) rc = wait_for_comm(s, &s->store, phase, g->timeout_ms, deadline_ms, err);
    visit_end(s, &v);
    return rc;
}

static int connect_comm(struct nccl_state *s, const struct backend_group *g, struct cr_error *err) {
    int roots = root_count(s->api, s->size);
    CR_AUTO_FREE ncclUniqueId *ids = calloc((size_t) roots, sizeof(*ids));
    if (ids == NULL) return cr_fail(err, -ENOMEM, "exchange ids: out of memory");
    int rc = exchange_ids(g, s->api, roots, ids, err);
    if (rc == 0) rc = connect_with(s, g, ids, roots, err);
    if (rc == 0) delete_ids(g, roots);
    return rc;
}

int nccl_open(const struct backend_group *group, void **out, struct cr_error *err) {
    struct nccl_state *s = state_new(group, err);
    if (s == NULL) return -ENOMEM;
    int rc = nccl_api_load(&s->api, err);
    if (rc == 0) rc = read_config(s, group->nccl, err);
    if (rc == 0) rc = prepare_device(s, err);
    int made = rc == 0 && group->is_whole ? reform_comm(s, group, err) : 0;
    if (rc == 0) rc = made < 0 ? made : made == 0 ? connect_comm(s, group, err) : 0;
    if (rc < 0) {
        if (s->api != NULL) nccl_abort(s);
        nccl_close(s);
        return rc;
    }
    set_connected(s);
    *out = s;
    return 0;
}
