/* Makes and destroys a runtime. crunrt_init() finds this process's place, connects to the store and
 * opens the channel to the agent. If no agent hosts the store, rank 0 hosts it. */
#include "worker_runtime/runtime/runtime.h"


#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* longest time in ms that rank 0, if it hosts the store, waits for the other ranks in
 * crunrt_destroy() */
#define HOST_WAITS_MS INT64_C(5000)

static const char *process_environment(void *arg, const char *name) {
    (void) arg;
    return getenv(name);
}

/* Copies the caller's options to *out. If a program was compiled with an older crunrt.h, its struct
 * is shorter (field `size`); the fields that are missing in it get their defaults. */
static int read_options(const crunrt_init_options *given, crunrt_init_options *out) {
    *out = (crunrt_init_options) CRUNRT_INIT_OPTIONS_INIT;
    if (given == NULL) return 0;
    if (given->size < offsetof(crunrt_init_options, method)) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "initialise: the options' size is %zu; start from CRUNRT_INIT_OPTIONS_INIT",
                       given->size);
    }
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    out->size = sizeof(*out);
    return 0;
}

static int host_store(struct crunrt *rt) {
    uint16_t bound = 0;
    int rc = hosted_store_open(&rt->hosted, rt->place.master_port, &bound, rt_last_error());
    if (rc == 0) return 0;
    return cr_wrap(rt_last_error(), "host the store at port %u as rank 0 (no agent hosts it)",
                   rt->place.master_port);
}

static int connect_store(struct crunrt *rt, int64_t timeout_ms) {
    const struct worker_place *p = &rt->place;
    if (p->file[0] != '\0') {
        return rt_store_open_file(p->file, p->world_size, timeout_ms, &rt->store);
    }
    int rc = p->rank == 0 && !p->agent_hosts_store ? host_store(rt) : 0;
    if (rc < 0) return rc;
    rc = crunrt_store_open(p->master_addr, p->master_port, timeout_ms, &rt->store);
    if (rc < 0) (void) cr_wrap(rt_last_error(), "rank %d of %d", p->rank, p->world_size);
    return rc;
}

int rt_take_prefix(struct crunrt *rt) {
    char key[64];
    int64_t starts = 0;
    (void) snprintf(key, sizeof(key), "crunrt/%d/starts/%d", rt->place.restart_count,
                    rt->place.rank);
    int rc = crunrt_store_add(rt->store, key, 1, &starts);
    if (rc < 0) return rc;
    (void) snprintf(rt->prefix, sizeof(rt->prefix), "crunrt/%d/%lld", rt->place.restart_count,
                    (long long) starts - 1);
    return 0;
}

static int open_runtime(struct crunrt *rt, const crunrt_init_options *o) {
    struct cr_error *err = rt_last_error();
    int rc = worker_place_read(process_environment, NULL, o->method, o->rank, o->world_size,
                               &rt->place, err);
    if (rc == 0) rc = connect_store(rt, o->timeout_ms > 0 ? o->timeout_ms : CRUNRT_TIMEOUT_MS);
    if (rc == 0) rc = rt_take_prefix(rt);
    if (rc < 0) return rc;
    flight_set_place(rt->place.rank, rt->place.world_size);
    worker_channel_open(&rt->channel, &rt->channel_error);
    return 0;
}

int crunrt_init(const crunrt_init_options *options, crunrt **out) {
    crunrt_init_options o;
    int rc = out == NULL ? rt_fail_null("initialise", "out") : read_options(options, &o);
    if (rc < 0) return rc;
    struct crunrt *rt = calloc(1, sizeof(*rt));
    if (rt == NULL) return cr_fail(rt_last_error(), -ENOMEM, "initialise: out of memory");
    rt->channel.fd = -1;
    rc = open_runtime(rt, &o);
    if (rc < 0) {
        crunrt_destroy(rt);
        return rt_pipe_to_reset(rc, rt_last_error());
    }
    rt_begin_life(rt);
    *out = rt;
    return 0;
}

/* The first part of crunrt_destroy(). If rank 0 hosts the store, the store ends with rank 0. So
 * each other rank adds itself to a counter in the store when it leaves, and rank 0 waits until all
 * have done so. Rank 0 waits at most HOST_WAITS_MS, because a rank that has died does not add
 * itself. */
static void leave(struct crunrt *rt) {
    bool is_in_file = rt->place.file[0] != '\0';
    if (rt->place.agent_hosts_store || is_in_file) return;
    if (rt->store == NULL || rt->place.world_size == 1) return;
    const char *all = "crunrt/left/all";
    int64_t left = 0;
    if (rt->hosted.state != NULL) {
        (void) crunrt_store_wait(rt->store, &all, 1, HOST_WAITS_MS);
    } else if (crunrt_store_add(rt->store, "crunrt/left/count", 1, &left) == 0 &&
               left == rt->place.world_size - 1) {
        (void) crunrt_store_set(rt->store, all, "", 0);
        /* SET has no reply. So CHECK, which has a reply, is sent after it. The server carries out
         * the requests of a connection in order: when the reply to CHECK comes, SET has been
         * carried out, too. */
        (void) crunrt_store_check(rt->store, &all, 1, &(int){0});
    }
}

void crunrt_destroy(crunrt *rt) {
    if (rt == NULL) return;
    rt_end_life(rt);
    if (rt->pid != 0) rt_report_end(rt);
    leave(rt);
    worker_channel_close(&rt->channel);
    crunrt_store_close(rt->store);
    hosted_store_close(&rt->hosted);
    free(rt);
}

int crunrt_rank(const crunrt *rt) { return rt != NULL ? rt->place.rank : -1; }
int crunrt_world_size(const crunrt *rt) { return rt != NULL ? rt->place.world_size : -1; }
int crunrt_local_rank(const crunrt *rt) { return rt != NULL ? rt->place.local_rank : -1; }
int crunrt_local_world_size(const crunrt *rt) {
    return rt != NULL ? rt->place.local_world_size : -1;
}
int crunrt_kept_ranks(const crunrt *rt) { return rt != NULL ? rt->place.kept : -1; }
int crunrt_restart_count(const crunrt *rt) { return rt != NULL ? rt->place.restart_count : -1; }
crunrt_store *crunrt_job_store(crunrt *rt) { return rt != NULL ? rt->store : NULL; }
