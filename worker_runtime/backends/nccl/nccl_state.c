/* The state of one communicator: what it has on its device, and its configuration. */
#include "worker_runtime/backends/nccl/nccl_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_DEPTH_REPAIRS 8

_Static_assert(offsetof(struct nccl_config_layout, blocking) == offsetof(ncclConfig_t, blocking),
               "the layout is that of ncclConfig_t");
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
_Static_assert(offsetof(struct nccl_config_layout, nvlinkCentricSched) ==
                   offsetof(ncclConfig_t, nvlinkCentricSched),
               "the layout is that of ncclConfig_t");
#endif

/* Returns a configuration in which no field is set. */
static struct nccl_config_layout undefined_config(void) {
    const int none = NCCL_CONFIG_UNDEF_INT;
    return (struct nccl_config_layout){
        .size = sizeof(struct nccl_config_layout),
        .magic = NCCL_CONFIG_MAGIC,
        .blocking = none,
        .cgaClusterSize = none,
        .minCTAs = none,
        .maxCTAs = none,
        .splitShare = none,
        .trafficClass = none,
        .collnetEnable = none,
        .CTAPolicy = none,
        .shrinkShare = none,
        .nvlsCTAs = none,
        .nChannelsPerNetPeer = none,
        .nvlinkCentricSched = none,
        .graphUsageMode = none,
        .numRmaCtx = none,
        .maxP2pPeers = none,
        .graphStreamOrdering = none,
        .launchOrderImplicit = none,
    };
}

struct nccl_state *state_new(const struct backend_group *group, struct cr_error *err) {
    struct nccl_state *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void) cr_fail(err, -ENOMEM, "open a communicator: out of memory");
        return NULL;
    }
    const char *blocking = getenv("CRUNRT_NCCL_BLOCKING");
    s->is_blocking = blocking == NULL || strcmp(blocking, "0") != 0;
    s->aborts_before = abort_count();
    s->rank = group->rank;
    s->size = group->size;
    s->device = group->device;
    s->caller_stream = group->stream;
    s->store = group->store;
    s->timeout_ms = group->timeout_ms;
    s->config = undefined_config();
    s->may_rejoin = group->is_whole && group->can_rejoin;
    s->name = strdup(group->name);
    if (s->name != NULL) return s;
    (void) cr_fail(err, -ENOMEM, "open a communicator: out of memory");
    free(s);
    return NULL;
}

void state_free(struct nccl_state *s) {
    if (!s->is_kept) free(s->name);
    if (!s->is_kept) free(s->net_name);
    free(s);
}

/* Retains the device's primary context, which the CUDA runtime also uses. It is never released,
 * because the release of the last reference would destroy the program's memory on the device. */
static int retain_context(struct nccl_state *s) {
    const struct nccl_api *api = s->api;
    int e = api->cuDeviceGet(&s->ordinal, s->device);
    if (e == 0) e = api->cuDevicePrimaryCtxRetain(&s->context, s->ordinal);
    if (e != 0) s->context = NULL;
    int shared = 0;
    if (e == 0) e = api->cuDeviceGetAttribute(&shared, CUDA_PAGEABLE_ACCESS, s->ordinal);
    s->reads_host_memory = shared != 0;
    return e;
}

/* Makes streams, event and scratch memory in the current context. The streams are non-blocking:
 * they and CUDA's default stream do not wait for each other. */
static int make_objects(struct nccl_state *s) {
    const struct nccl_api *api = s->api;
    int e = api->cuStreamCreate(&s->own, CUDA_STREAM_NON_BLOCKING);
    if (e == 0) e = api->cuStreamCreate(&s->captured, CUDA_STREAM_NON_BLOCKING);
    if (e == 0) e = api->cuEventCreate(&s->ready, CUDA_EVENT_NO_TIMING);
    if (e == 0) e = api->cuMemAlloc(&s->scratch, sizeof(int32_t));
    return e;
}

int prepare_device(struct nccl_state *s, struct cr_error *err) {
    struct visit v;
    int e = retain_context(s);
    if (e != 0) return fail_cuda(s->api, e, -ENODEV, err, "prepare the GPU");
    int rc = visit_begin(s, &v, err);
    if (rc < 0) return rc;
    e = make_objects(s);
    visit_end(s, &v);
    if (e != 0) return fail_cuda(s->api, e, -ENODEV, err, "prepare the GPU");
    return overseer_add(s, err);
}

void release_device(struct nccl_state *s) {
    const struct nccl_api *api = s->api;
    if (s->scratch != 0) (void) api->cuMemFree(s->scratch);
    if (s->ready != NULL) (void) api->cuEventDestroy(s->ready);
    if (s->captured != NULL) (void) api->cuStreamDestroy(s->captured);
    if (s->own != NULL) (void) api->cuStreamDestroy(s->own);
}

/* ---- NCCL's configuration ---- */

/* Sets *field to `value`, unless `value` is -1. `name` is the field's name for the error text.
 * `since` is the first version of NCCL that has the field; an older NCCL would ignore the field, so
 * the function fails with -ENOTSUP if the loaded NCCL is older. */
static int set_field(const struct nccl_api *api, int *field, int value, const char *name, int since,
                     struct cr_error *err) {
    if (value == -1) return 0;
    if (api->nccl_version < since)
        return cr_fail(err, -ENOTSUP,
                       "configure NCCL: the loaded version %d has no '%s'; it needs %d",
                       api->nccl_version, name, since);
    *field = value;
    return 0;
}

#define SET(member, field, since)                                                                  \
    if (rc == 0) rc = set_field(s->api, &s->config.field, c.member, #member, since, err)

static int set_fields(struct nccl_state *s, crunrt_nccl_config c, struct cr_error *err) {
    int rc = 0;
    SET(min_ctas, minCTAs, 21700);
    SET(max_ctas, maxCTAs, 21700);
    SET(cga_cluster_size, cgaClusterSize, 21700);
    SET(traffic_class, trafficClass, 22600);
    SET(collnet, collnetEnable, 22700);
    SET(cta_policy, CTAPolicy, 22700);
    SET(nvls_ctas, nvlsCTAs, 22700);
    SET(channels_per_net_peer, nChannelsPerNetPeer, 22800);
    SET(nvlink_centric_sched, nvlinkCentricSched, 22800);
    SET(graph_usage_mode, graphUsageMode, 22900);
    SET(rma_contexts, numRmaCtx, 22900);
    SET(max_p2p_peers, maxP2pPeers, 23000);
    SET(graph_stream_ordering, graphStreamOrdering, 23000);
    SET(launch_order_implicit, launchOrderImplicit, 23100);
    return rc;
}

int read_config(struct nccl_state *s, const crunrt_nccl_config *given, struct cr_error *err) {
    crunrt_nccl_config c = CRUNRT_NCCL_CONFIG_INIT;
    if (given == NULL) return 0;
    memcpy(&c, given, given->size < sizeof(c) ? given->size : sizeof(c));
    int rc = set_fields(s, c, err);
    if (rc < 0 || c.net_name == NULL) return rc;
    s->net_name = strdup(c.net_name);
    if (s->net_name == NULL) return cr_fail(err, -ENOMEM, "configure NCCL: out of memory");
    s->config.netName = s->net_name;
    return 0;
}

union nccl_config config_of(const struct nccl_state *s) {
    union nccl_config config = {.all = s->config};
    int version = s->api->nccl_version;
    config.all.version = version < NCCL_LAYOUT_VERSION ? (unsigned) version : NCCL_LAYOUT_VERSION;
    config.all.blocking = s->is_blocking;
    config.all.commName = s->name;
    return config;
}

void repair_group_depth(const struct nccl_api *api) {
    for (int i = 0; i < GROUP_DEPTH_REPAIRS && api->ncclGroupEnd() == ncclSuccess; i++) {
    }
}
