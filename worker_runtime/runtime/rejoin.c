/* Going on in place: the processes that are left, and those that the launcher started anew, meet
 * again in the store and number themselves.
 *
 *   crunrt/<attempt>/generation         the newest generation; absent = 0, everybody from the start
 *   crunrt/<attempt>/<g>/comer/<n>      who came to generation g, in order of coming: its first
 *   rank
 *   crunrt/<attempt>/<g>/roster         closes it: "1 4 7", or "!<why not>"
 *
 * The first to come is the one that closes: when all are there, or when those that are there
 * suffice and the time for the others is up. A generation that is open is joined; one that is
 * closed is followed by the next, if it had us.
 *
 * Under an agent that can be asked none of that is needed: it holds the next round, as for workers that
 * it starts anew, and tells us our place in it, with a store that is new, too. */
#include "worker_runtime/runtime/runtime.h"
#include "worker_runtime/report/report.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REJOIN_TIMEOUT_MS INT64_C(60000)
#define VERDICT_MS        INT64_C(1000) /* after that, for the first comer's verdict, if it lives */

/* How long a store is tried before we ask whether its round is still on. */
#define STORE_TRY_MS INT64_C(2000)

struct rejoin {
    struct crunrt *rt;
    crunrt_rejoin_options o;
    int64_t generation, deadline_ms, window_ms; /* both on the monotonic clock */
    char roster_key[96];
};

static void set_generation(struct rejoin *j, int64_t generation) {
    j->generation = generation;
    (void) snprintf(j->roster_key, sizeof(j->roster_key), "crunrt/%d/%lld/roster",
                    j->rt->place.restart_count, (long long) generation);
}

static void generation_key(const struct crunrt *rt, char out[64]) {
    (void) snprintf(out, 64, "crunrt/%d/generation", rt->place.restart_count);
}

static void set_prefix(struct crunrt *rt, int64_t generation) {
    (void) snprintf(rt->prefix, sizeof(rt->prefix), "crunrt/%d/%lld", rt->place.restart_count,
                    (long long) generation);
}

/* ---- the roster ---- */

/* The place of `rank` in "1 4 7", or -1; *size gets the number of ranks. */
static int place_in_roster(const char *roster, int rank, int *size) {
    int place = -1, n = 0;
    for (char *end = NULL; *roster != '\0'; roster = end, n++) {
        long r = strtol(roster, &end, 10);
        if (end == roster) break;
        if (r == rank) place = n;
    }
    *size = n;
    return place;
}

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *) a, y = *(const int *) b;
    return (x > y) - (x < y);
}

/* Sets the roster, once. `text` may be a refusal. */
static int close_roster(struct rejoin *j, const char *text) {
    return crunrt_store_compare_set(j->rt->store, j->roster_key, "", 0, text, strlen(text), NULL,
                                    NULL);
}

static int write_roster(struct rejoin *j, int *comers, int count) {
    struct cr_buffer text = {0};
    qsort(comers, (size_t) count, sizeof(*comers), compare_ints);
    int rc = 0;
    for (int i = 0; rc == 0 && i < count; i++) {
        rc = cr_buffer_printf(&text, "%s%d", i > 0 ? " " : "", comers[i]);
    }
    if (rc == 0) rc = close_roster(j, text.data);
    cr_buffer_done(&text);
    return rc;
}

/* The n-th comer's rank: waits until `until_ms`. */
static int read_comer(struct rejoin *j, int n, int64_t until_ms, int *rank) {
    char key[96];
    void *value = NULL;
    int64_t r = 0;
    (void) snprintf(key, sizeof(key), "crunrt/%d/%lld/comer/%d", j->rt->place.restart_count,
                    (long long) j->generation, n);
    int rc = crunrt_store_get(j->rt->store, key, cr_time_left_ms(until_ms), &value, NULL);
    if (rc < 0) return rc;
    CR_AUTO_FREE char *text = value;
    if (cr_parse_i64(text, 0, INT_MAX, &r) < 0) {
        return cr_fail(rt_last_error(), -EPROTO, "rejoin: the store holds '%s' for a rank", text);
    }
    *rank = (int) r;
    return 0;
}

/* The first comer's part. */
static int gather_comers(struct rejoin *j) {
    int full = j->rt->first_world_size, count = 0;
    CR_AUTO_FREE int *comers = calloc((size_t) full, sizeof(*comers));
    if (comers == NULL) return cr_fail(rt_last_error(), -ENOMEM, "rejoin: out of memory");
    while (count < full) {
        int64_t until = count < j->o.min_size ? j->deadline_ms : j->window_ms;
        int rc = read_comer(j, count, until, &comers[count]);
        if (rc == -ETIMEDOUT) break;
        if (rc < 0) return rc;
        count++;
    }
    if (count >= j->o.min_size) return write_roster(j, comers, count);
    char why[128];
    (void) snprintf(why, sizeof(why), "!only %d of at least %d ranks came within %lld ms", count,
                    j->o.min_size, (long long) j->o.timeout_ms);
    return close_roster(j, why);
}

static int take_place(struct rejoin *j) {
    void *value = NULL;
    int64_t left = cr_time_left_ms(j->deadline_ms);
    if (left < CR_FOREVER - VERDICT_MS) left += VERDICT_MS;
    int rc = crunrt_store_get(j->rt->store, j->roster_key, left, &value, NULL);
    if (rc < 0)
        return cr_wrap(rt_last_error(), "rejoin generation %lld", (long long) j->generation);
    CR_AUTO_FREE char *roster = value;
    if (roster[0] == '!') {
        return cr_fail(rt_last_error(), -ETIMEDOUT, "rejoin generation %lld: %s",
                       (long long) j->generation, roster + 1);
    }
    int size = 0, place = place_in_roster(roster, j->rt->first_rank, &size);
    if (place < 0) {
        return cr_fail(
            rt_last_error(), -ESTALE,
            "rejoin generation %lld: it went on without rank %d, which came too late; end "
            "this process",
            (long long) j->generation, j->rt->first_rank);
    }
    j->rt->place.rank = place;
    j->rt->place.world_size = size;
    j->rt->generation = j->generation;
    j->rt->group_seq = 0;
    set_prefix(j->rt, j->generation);
    return 0;
}

/* ---- which generation ---- */

/* 0: closed with us (so a next one may be opened), 1: open, -ESTALE: closed without us. */
static int look_at_generation(struct rejoin *j) {
    const char *key = j->roster_key;
    int closed = 0, size = 0;
    if (j->generation == 0) return 0; /* everybody is in the first */
    int rc = crunrt_store_check(j->rt->store, &key, 1, &closed);
    if (rc < 0 || !closed) return rc < 0 ? rc : 1;
    void *value = NULL;
    rc = crunrt_store_get(j->rt->store, key, 0, &value, NULL);
    if (rc < 0) return rc;
    CR_AUTO_FREE char *roster = value;
    if (roster[0] == '!' || place_in_roster(roster, j->rt->first_rank, &size) >= 0) return 0;
    return cr_fail(rt_last_error(), -ESTALE,
                   "rejoin: generation %lld went on without rank %d; end this process",
                   (long long) j->generation, j->rt->first_rank);
}

/* Finds the open generation, opening the next one if need be. */
static int enter_generation(struct rejoin *j) {
    char key[64];
    int64_t newest = 0;
    generation_key(j->rt, key);
    int rc = crunrt_store_add(j->rt->store, key, 0, &newest); /* reads; makes it "0" at first */
    if (rc < 0) return rc;
    set_generation(j, newest);
    rc = look_at_generation(j);
    if (rc != 0) return rc < 0 ? rc : 0;
    char have[24], next[24];
    (void) snprintf(have, sizeof(have), "%lld", (long long) newest);
    (void) snprintf(next, sizeof(next), "%lld", (long long) newest + 1);
    void *held = NULL;
    rc = crunrt_store_compare_set(j->rt->store, key, have, strlen(have), next, strlen(next), &held,
                                  NULL);
    if (rc < 0) return rc;
    free(held); /* ours or another's: the generation after `newest` is open now */
    set_generation(j, newest + 1);
    return 0;
}

static int come(struct rejoin *j) {
    char key[96], mine[16];
    int64_t came = 0;
    (void) snprintf(key, sizeof(key), "crunrt/%d/%lld/comers", j->rt->place.restart_count,
                    (long long) j->generation);
    int rc = crunrt_store_add(j->rt->store, key, 1, &came);
    if (rc < 0) return rc;
    (void) snprintf(key, sizeof(key), "crunrt/%d/%lld/comer/%lld", j->rt->place.restart_count,
                    (long long) j->generation, (long long) came - 1);
    (void) snprintf(mine, sizeof(mine), "%d", j->rt->first_rank);
    rc = crunrt_store_set(j->rt->store, key, mine, strlen(mine));
    if (rc == 0 && came == 1) rc = gather_comers(j);
    return rc;
}

static int rejoin(struct crunrt *rt, const crunrt_rejoin_options *options) {
    struct rejoin j = {.rt = rt, .o = *options};
    if (j.o.timeout_ms <= 0) j.o.timeout_ms = REJOIN_TIMEOUT_MS;
    if (j.o.min_size <= 0) j.o.min_size = rt->first_world_size;
    if (j.o.min_size > rt->first_world_size) {
        return cr_fail(rt_last_error(), -EINVAL, "rejoin with at least %d ranks: the job has %d",
                       j.o.min_size, rt->first_world_size);
    }
    j.deadline_ms = cr_deadline_ms(j.o.timeout_ms);
    j.window_ms = cr_deadline_ms(j.o.wait_ms);
    int rc = enter_generation(&j);
    if (rc == 0) rc = come(&j);
    return rc < 0 ? rc : take_place(&j);
}

/* ---- with the agent ---- */

static int take_round(struct crunrt *rt, const struct channel_packet *p) {
    struct worker_place *at = &rt->place;
    if (p->place.world_size == 0 || p->place.world_size > INT_MAX ||
        p->place.rank >= p->place.world_size || p->place.local_world_size > INT_MAX ||
        p->place.local_rank >= p->place.local_world_size || p->place.restart_count > INT_MAX ||
        p->place.master_port > UINT16_MAX ||
        memchr(p->place.master_addr, '\0', sizeof(p->place.master_addr)) == NULL) {
        return cr_fail(rt_last_error(), -EPROTO,
                       "rejoin: the agent told no place that makes sense");
    }
    at->rank = (int) p->place.rank;
    at->world_size = (int) p->place.world_size;
    at->local_rank = (int) p->place.local_rank;
    at->local_world_size = (int) p->place.local_world_size;
    at->restart_count = (int) p->place.restart_count;
    at->master_port = (uint16_t) p->place.master_port;
    (void) stpcpy(at->master_addr, p->place.master_addr);
    at->agent_hosts_store = 1; /* whatever the first round had */
    at->file[0] = '\0';
    return 0;
}

static int wait_for_round(struct crunrt *rt, int64_t deadline_ms, struct channel_packet *p) {
    struct agent_link *l = &rt->link;
    int rc = l->asked ? 0 : agent_link_send(l, CHANNEL_REJOIN, l->change.id);
    l->asked = 1;
    while (rc == 0) {
        int got = agent_link_receive(l, deadline_ms, p);
        if (got < 0)
            rc = got;
        else if (got == 0)
            rc = -ETIMEDOUT;
        else if (p->type == CHANNEL_ROUND)
            return 0;
    }
    return cr_fail(rt_last_error(), rc,
                   rc == -ETIMEDOUT ? "rejoin: the next round has not begun in time"
                                    : "rejoin: the agent is gone; end this process");
}

static int reach_store(struct crunrt *rt) {
    int64_t deadline = cr_deadline_ms(rt->store->timeout_ms);
    for (;;) {
        int64_t left = cr_time_left_ms(deadline);
        int64_t slice = left < STORE_TRY_MS ? left : STORE_TRY_MS;
        int rc = rt_store_move(rt->store, rt->place.master_addr, rt->place.master_port, slice);
        if (rc != -ETIMEDOUT || left <= slice || rt_round_is_over(rt)) return rc;
    }
}

static int begin_round(struct crunrt *rt, const struct channel_packet *p) {
    struct agent_link *l = &rt->link;
    int rc = take_round(rt, p);
    if (rc < 0) return rc;
    *l = (struct agent_link){.fd = l->fd, .page = l->page, .heard = l->heard};
    rc = reach_store(rt);
    if (rc < 0) return cr_wrap(rt_last_error(), "rejoin as rank %d", rt->place.rank);
    rt->generation = 0;
    rt->group_seq = 0;
    rt->whole = (struct rt_whole_group){0}; /* the prefix may be the same again */
    return rt_enter_first_generation(rt);
}

/* A round may be over before we are in it: then its store is gone, and the next one is ours. */
static int rejoin_by_agent(struct crunrt *rt, const crunrt_rejoin_options *o) {
    struct channel_packet p;
    int64_t deadline = /* without one, the agent knows when to end it */
        cr_deadline_ms(o->timeout_ms > 0 ? o->timeout_ms : CR_FOREVER);
    int rc;
    do {
        rc = wait_for_round(rt, deadline, &p);
        if (rc < 0) return rc;
        rc = begin_round(rt, &p);
    } while (rc < 0 && rt_round_is_over(rt));
    return rc;
}

int crunrt_rejoin(crunrt *rt, const crunrt_rejoin_options *options) {
    if (rt == NULL) return rt_fail_null("rejoin", "the runtime");
    crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
    if (options != NULL && options->size < offsetof(crunrt_rejoin_options, min_size)) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "rejoin: the options' size is %zu; start from CRUNRT_REJOIN_OPTIONS_INIT",
                       options->size);
    }
    if (options != NULL)
        memcpy(&o, options, options->size < sizeof(o) ? options->size : sizeof(o));
    if (rt->link.page == NULL) return rt_lost_is_reset(rejoin(rt, &o), rt_last_error());
    int rc = rt_lost_is_reset(rejoin_by_agent(rt, &o), rt_last_error());
    if (rc == 0) flight_set_place(rt->first_rank, rt->first_world_size);
    return rc;
}

/* A process that takes the place of one that was there before in this attempt (a launcher may start
 * one worker anew) comes by the same door as those that are left. */
int rt_enter_first_generation(struct crunrt *rt) {
    char key[64];
    int64_t starts = 0;
    rt->first_rank = rt->place.rank;
    rt->first_world_size = rt->place.world_size;
    set_prefix(rt, 0);
    (void) snprintf(key, sizeof(key), "crunrt/%d/starts/%d", rt->place.restart_count,
                    rt->first_rank);
    int rc = crunrt_store_add(rt->store, key, 1, &starts);
    if (rc < 0 || starts == 1) return rc;
    crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
    rc = rejoin(rt, &o);
    return rc < 0 ? cr_wrap(rt_last_error(), "take the place of rank %d", rt->first_rank) : 0;
}
