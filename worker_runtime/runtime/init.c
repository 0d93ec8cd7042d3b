/* From the environment to a connected runtime: who am I, where is the store, who hosts it. */
#include "worker_runtime/runtime/runtime.h"

#include "worker_runtime/modules/modules.h"
#include "worker_runtime/report/report.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_WAITS_MS INT64_C(5000)

static const char *process_environment(void *arg, const char *name) {
    (void) arg;
    return getenv(name);
}

/* Copies only what the caller's version of the struct has; the rest keeps its default. */
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

/* Rank 0, where no agent hosts the store. */
static int host_store(struct crunrt *rt) {
    struct cr_error *err = rt_last_error();
    void *table = NULL;
    int rc = module_load("store_host", STORE_HOST_SYMBOL, &table, err);
    if (rc == 0) {
        rt->host = table;
        uint16_t bound = 0;
        rc = rt->host->open(rt->place.master_port, &rt->host_state, &bound, err);
    }
    if (rc == 0) return 0;
    return cr_wrap(err, "host the store at port %u as rank 0 (no agent hosts it)",
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

int crunrt_init(const crunrt_init_options *options, crunrt **out) {
    crunrt_init_options o;
    int rc = out == NULL ? rt_fail_null("initialise", "out") : read_options(options, &o);
    if (rc < 0) return rc;
    struct crunrt *rt = calloc(1, sizeof(*rt));
    if (rt == NULL) return cr_fail(rt_last_error(), -ENOMEM, "initialise: out of memory");
    rt->link.fd = -1;
    rc = worker_place_read(process_environment, NULL, o.method, o.rank, o.world_size, &rt->place,
                           rt_last_error());
    if (rc == 0) rc = connect_store(rt, o.timeout_ms > 0 ? o.timeout_ms : CRUNRT_TIMEOUT_MS);
    /* Launchers older than ours keep one key space for all attempts, so the attempt is in our
     * keys. */
    if (rc == 0) rc = rt_enter_first_generation(rt);
    if (rc < 0) {
        crunrt_destroy(rt);
        return rt_lost_is_reset(rc, rt_last_error());
    }
    flight_set_place(rt->first_rank, rt->first_world_size);
    agent_link_open(&rt->link, &rt->link_error);
    *out = rt;
    return 0;
}

/* Where rank 0 hosts the store it leaves last, so that nobody's last call finds the store gone; but
 * it does not wait long for those that died. */
static void leave(struct crunrt *rt) {
    if (rt->place.agent_hosts_store || rt->store == NULL || rt->place.world_size == 1) return;
    if (rt->place.file[0] != '\0') return; /* nobody hosts it */
    const char *all = "crunrt/left/all";
    int64_t left = 0;
    if (rt->host_state != NULL) {
        (void) crunrt_store_wait(rt->store, &all, 1, HOST_WAITS_MS);
    } else if (crunrt_store_add(rt->store, "crunrt/left/count", 1, &left) == 0 &&
               left == rt->place.world_size - 1) {
        (void) crunrt_store_set(rt->store, all, "", 0);
        (void) crunrt_store_check(rt->store, &all, 1, &(int){0}); /* the set has arrived */
    }
}

void crunrt_destroy(crunrt *rt) {
    if (rt == NULL) return;
    leave(rt);
    agent_link_close(&rt->link);
    crunrt_store_close(rt->store);
    if (rt->host_state != NULL) rt->host->close(rt->host_state);
    free(rt);
}

int crunrt_rank(const crunrt *rt) { return rt != NULL ? rt->place.rank : -1; }
int crunrt_world_size(const crunrt *rt) { return rt != NULL ? rt->place.world_size : -1; }
int crunrt_local_rank(const crunrt *rt) { return rt != NULL ? rt->place.local_rank : -1; }
int crunrt_local_world_size(const crunrt *rt) {
    return rt != NULL ? rt->place.local_world_size : -1;
}
int crunrt_restart_count(const crunrt *rt) { return rt != NULL ? rt->place.restart_count : -1; }
crunrt_store *crunrt_job_store(crunrt *rt) { return rt != NULL ? rt->store : NULL; }
