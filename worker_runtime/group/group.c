/* Makes and destroys groups. To make a group, each rank loads the backend, waits until all ranks of
 * the group have set their keys in the store, and connects to the other ranks. */
#include "worker_runtime/group/group.h"

#include "worker_runtime/modules/modules.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_options(const crunrt_group_options *given, crunrt_group_options *out) {
    *out = (crunrt_group_options) CRUNRT_GROUP_OPTIONS_INIT;
    if (given == NULL) return 0;
    if (given->size < offsetof(crunrt_group_options, backend)) {
        return cr_fail(
            rt_last_error(), -EINVAL,
            "make a group: the options' size is %zu; start from CRUNRT_GROUP_OPTIONS_INIT",
            given->size);
    }
    memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    if (out->nccl != NULL && out->nccl->size < sizeof(size_t)) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "make a group: the size of NCCL's configuration is %zu; start from "
                       "CRUNRT_NCCL_CONFIG_INIT",
                       out->nccl->size);
    }
    return 0;
}

/* Checks that ranks[count] names ranks of the job, each of them once. Sets *out to the position of
 * this process's rank in the list, or to -1 if the list does not have it. Returns 0; -EINVAL if the
 * list is empty or wrong; or -ENOMEM. */
static int find_rank(const struct crunrt *rt, const int *ranks, size_t count, int *out) {
    CR_AUTO_FREE bool *seen = calloc((size_t) rt->place.world_size, sizeof(*seen));
    if (seen == NULL) return cr_fail(rt_last_error(), -ENOMEM, "make a group: out of memory");
    if (count == 0)
        return cr_fail(rt_last_error(), -EINVAL, "make a group: the list of ranks is empty");
    *out = -1;
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= rt->place.world_size || seen[ranks[i]]) {
            return cr_fail(
                rt_last_error(), -EINVAL,
                "make a group: rank %d in the list is %s; ranks are 0 to %d, each once", ranks[i],
                ranks[i] < 0 || ranks[i] >= rt->place.world_size ? "no rank of the job" : "twice",
                rt->place.world_size - 1);
        }
        seen[ranks[i]] = true;
        if (ranks[i] == rt->place.rank) *out = (int) i;
    }
    return 0;
}

static int load_backend(struct crunrt_group *g, const char *name) {
    if (name == NULL) name = getenv("CRUNRT_BACKEND");
    if (name == NULL || name[0] == '\0') name = "gloo";
    void *table = NULL;
    struct cr_error ignored;
    int rc = module_load(name, CRUNRT_BACKEND_SYMBOL, &table, rt_last_error());
    /* On AMD's GPUs, programs that were written for NCCL ask for "nccl", as with torch. */
    if (rc < 0 && strcmp(name, "nccl") == 0 &&
        module_load("rccl", CRUNRT_BACKEND_SYMBOL, &table, &ignored) == 0)
        rc = 0;
    if (rc < 0) return rc;
    g->backend = table;
    if (g->backend->abi != CRUNRT_BACKEND_ABI) {
        return cr_fail(
            rt_last_error(), -ENOENT,
            "load the module '%s': it is of version %u and this library of %d; install both from "
            "one build",
            name, g->backend->abi, CRUNRT_BACKEND_ABI);
    }
    if (g->backend->recoverable != NULL) g->rt->recoverable = g->backend->recoverable;
    return 0;
}

static int connect_group(struct crunrt_group *g, const crunrt_group_options *o) {
    struct cr_error *err = rt_last_error();
    char address[RT_ADDRESS_MAX];
    int rc = g->is_foreign ? 0 : group_compare_lists(g, o->ranks, o->rank_count, err);
    if (rc == 0) rc = rt_bind_address(g->rt, address, err);
    if (rc < 0) return rc;
    struct backend_group b = {
        .name = g->name,
        .rank = g->rank,
        .size = g->size,
        .timeout_ms = g->timeout_ms,
        .device = o->device >= 0 ? o->device : g->rt->place.local_rank,
        .stream = o->stream,
        .nccl = o->nccl,
        .is_foreign = g->is_foreign,
        .bind_address = address,
        .store = group_backend_store(g),
        .agent_fd = g->rt->channel.fd,
        .is_over = group_is_over,
        .is_whole = !g->is_foreign && g->size == g->rt->place.world_size,
        .can_rejoin = g->rt->channel.page != NULL &&
                      atomic_load(&g->rt->channel.page->can_rejoin) != 0,
    };
    if (g->backend->probe != NULL) rc = g->backend->probe(&b, err);
    if (rc < 0) return rc;
    rc = g->is_foreign ? 0 : group_split(g, &b, err);
    if (rc != 0) return rc < 0 ? rc : 0;
    if (!g->is_foreign) rc = group_arrive(g, "arrival", g->timeout_ms, err);
    return rc < 0 ? rc : g->backend->open(&b, &g->state, err);
}

static int name_group(struct crunrt_group *g, const char *name, const char *foreign_prefix) {
    uint64_t number = g->number = g->rt->group_count++;
    if (name != NULL) {
        (void) snprintf(g->name, sizeof(g->name), "%s", name);
    } else if (number == 0) {
        (void) snprintf(g->name, sizeof(g->name), "world");
    } else {
        (void) snprintf(g->name, sizeof(g->name), "group %llu", (unsigned long long) number);
    }
    /* Control characters are replaced, because the name is part of error texts, each of which must
     * be one line. */
    for (char *p = g->name; *p != '\0'; p++) {
        if ((unsigned char) *p < 0x20 || *p == 0x7f) *p = '?';
    }
    char prefix[96];
    (void) snprintf(prefix, sizeof(prefix), "%s/pg/%llu", g->rt->prefix,
                    (unsigned long long) number);
    const char *used = foreign_prefix != NULL ? foreign_prefix : prefix;
    int rc = crunrt_store_prefix(g->rt->store, used, &g->store);
    if (rc == 0) rc = crunrt_store_prefix(g->rt->store, used, &g->side_store);
    if (rc == 0) g->side_store->never_waits = true;
    return rc;
}

/* Call this if this rank cannot make the group. It writes `cause` to the store, so that the other
 * ranks fail at once and do not wait for this rank. */
static void give_up(struct crunrt_group *g, const struct cr_error *cause) {
    char words[CR_ERROR_TEXT_MAX + 64], first[8];
    if (g->store == NULL) return;
    group_limit_store(g, 0);
    bool is_outside = g->rank < 0;
    (void) snprintf(words, sizeof(words), "rank %d%s: %s",
                    is_outside ? g->rt->place.rank : g->rank, is_outside ? " of the job" : "",
                    cause->text);
    group_report_failure(g, words, first, sizeof(first));
}

/* For each group that has not failed, writes to the store how many collectives this rank has made
 * in the group. */
static void leave_groups(struct crunrt *rt) {
    for (struct crunrt_group *g = rt->groups; g != NULL; g = g->next) {
        bool is_whole = g->state != NULL && g->broken.code == 0 && g->size > 1 && !g->is_foreign;
        if (!is_whole) continue;
        g->store->never_waits = true;
        group_leave(g);
        g->store->never_waits = false;
    }
}

static void enlist(struct crunrt_group *g) {
    g->next = g->rt->groups;
    g->rt->groups = g;
    g->rt->leave_groups = leave_groups;
}

static void delist(struct crunrt_group *g) {
    struct crunrt_group **at = &g->rt->groups;
    while (*at != NULL && *at != g) at = &(*at)->next;
    if (*at != NULL) *at = g->next;
}

static struct crunrt_group *allocate(struct crunrt *rt, const crunrt_group_options *o, int rank,
                                     int size) {
    struct crunrt_group *g = calloc(1, sizeof(*g));
    if (g != NULL && o->ranks != NULL) {
        g->ranks = malloc((size_t) size * sizeof(*g->ranks));
        if (g->ranks == NULL) {
            free(g);
            return NULL;
        }
        memcpy(g->ranks, o->ranks, (size_t) size * sizeof(*g->ranks));
    }
    if (g == NULL) return NULL;
    g->rt = rt;
    enlist(g);
    g->rank = rank;
    g->size = size;
    g->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : GROUP_TIMEOUT_MS;
    g->stream = o->stream;
    const char *debug = getenv("CRUNRT_DEBUG");
    g->compares_calls = debug != NULL && strcmp(debug, "1") == 0;
    g->is_foreign = o->foreign_prefix != NULL;
    atomic_store(&g->peer, -1);
    return g;
}

/* Carries out crunrt_group_new() on a rank that is not in the group. Such a rank increments its
 * number of groups, as all ranks do, and compares its list of ranks with those of the other ranks.
 * If the group is made by a split, it takes part in the split. Returns 0 or the error of one of
 * these actions. If only the new group fails, returns 0. */
static int make_as_outsider(struct crunrt *rt, const crunrt_group_options *o, crunrt_group **out) {
    struct cr_error *err = rt_last_error();
    *out = NULL;
    struct crunrt_group *g = allocate(rt, o, -1, (int) o->rank_count);
    if (g == NULL) return cr_fail(err, -ENOMEM, "make a group: out of memory");
    int rc = name_group(g, o->name, o->foreign_prefix);
    if (rc == 0 && !g->is_foreign) rc = group_compare_lists(g, o->ranks, o->rank_count, err);
    struct backend_group b = {.name = g->name,
                              .rank = -1,
                              .size = g->size,
                              .timeout_ms = g->timeout_ms,
                              .device = -1,
                              .store = group_backend_store(g)};
    if (rc == 0 && !g->is_foreign) rc = group_split(g, &b, err);
    if (rc < 0) {
        struct cr_error cause = *err;
        give_up(g, &cause);
        *err = cause;
        (void) cr_wrap(err, "make the group '%s' (not a member)", g->name);
    }
    crunrt_group_destroy(g);
    return rc < 0 ? rt_pipe_to_reset(rc, err) : 0;
}

static int make_as_member(struct crunrt *rt, const crunrt_group_options *o, int rank, int size,
                          crunrt_group **out) {
    struct cr_error *err = rt_last_error();
    struct crunrt_group *g = allocate(rt, o, rank, size);
    if (g == NULL) return cr_fail(err, -ENOMEM, "make a group: out of memory");
    int rc = name_group(g, o->name, o->foreign_prefix);
    if (rc == 0) rc = load_backend(g, o->backend);
    if (rc == 0) group_progress_make(g);
    if (rc == 0) rc = connect_group(g, o);
    if (rc < 0) {
        struct cr_error cause = *err;
        give_up(g, &cause);
        *err = cause;
        (void) cr_wrap(err, "make the group '%s' (rank %d of %d)", g->name, rank, size);
        crunrt_group_destroy(g);
        return rt_pipe_to_reset(rc, err);
    }
    group_progress_leave(g, false);
    group_split_offer(g);
    *out = g;
    return 0;
}

int crunrt_group_new(crunrt *rt, const crunrt_group_options *options, crunrt_group **out) {
    crunrt_group_options o;
    int rc = rt == NULL    ? rt_fail_null("make a group", "the runtime")
             : out == NULL ? rt_fail_null("make a group", "out")
                           : read_options(options, &o);
    if (rc < 0) return rc;
    int rank = rt->place.rank;
    int size = rt->place.world_size;
    if (o.ranks != NULL) {
        rc = find_rank(rt, o.ranks, o.rank_count, &rank);
        if (rc < 0) return rc;
        size = (int) o.rank_count;
    }
    return rank < 0 ? make_as_outsider(rt, &o, out) : make_as_member(rt, &o, rank, size, out);
}

void crunrt_group_destroy(crunrt_group *group) {
    if (group == NULL) return;
    delist(group);
    group_split_withdraw(group);
    group_end_works(group);
    if (group->entry != NULL) worker_channel_hide(&group->rt->channel, &group->entry);
    /* If the backend's looks_every_ms is greater than 0, the other ranks do not notice that this
     * rank closes its connections, so this rank writes to the store that it leaves. */
    if (group->state != NULL && group->broken.code == 0 && group->unfinished == 0 &&
        group->backend->looks_every_ms > 0 && group->size > 1)
        group_leave(group);
    if (group->state != NULL) group->backend->close(group->state);
    crunrt_store_close(group->side_store);
    crunrt_store_close(group->store);
    free(group->ranks);
    free(group);
}

int crunrt_group_rank(const crunrt_group *group) { return group != NULL ? group->rank : -1; }
int crunrt_group_size(const crunrt_group *group) { return group != NULL ? group->size : -1; }
const char *crunrt_group_backend(const crunrt_group *group) {
    return group != NULL ? group->backend->name : NULL;
}

void *crunrt_nccl_comm(crunrt_group *group) {
    if (group == NULL || group->backend->native == NULL) return NULL;
    return group->backend->native(group->state);
}
