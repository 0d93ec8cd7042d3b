/* The set of timers, kept in a plain list: workers set only a few timers each, so searching the
 * whole list is fast enough. */
#include "agent/watchdog/timers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct timer *find(const struct timers *t, const struct timer_request *r) {
    struct timer *each;
    LIST_FOREACH(each, &t->list, entry) {
        if (each->pid == r->pid && strcmp(each->scope, r->scope) == 0) return each;
    }
    return NULL;
}

static void remove_timer(struct timers *t, struct timer *timer) {
    LIST_REMOVE(timer, entry);
    t->count--;
}

void timer_free(struct timer *timer) {
    free(timer->scope);
    free(timer);
}

static int add(struct timers *t, struct timer_request *r, struct timer **out) {
    if (t->count == TIMERS_MAX) return -ENOSPC;
    struct timer *timer = calloc(1, sizeof(*timer));
    if (timer == NULL) return -ENOMEM;
    timer->pid = r->pid;
    timer->scope = r->scope;
    r->scope = NULL;
    LIST_INSERT_HEAD(&t->list, timer, entry);
    t->count++;
    *out = timer;
    return 0;
}

int timers_apply(struct timers *t, struct timer_request *r) {
    struct timer *timer = find(t, r);
    if (r->cancels) {
        if (timer == NULL) return 0;
        remove_timer(t, timer);
        timer_free(timer);
        return 0;
    }
    int rc = timer == NULL ? add(t, r, &timer) : 0;
    if (rc < 0) return rc;
    timer->expires_ms = r->expires_ms;
    timer->signum = r->signum;
    return 0;
}

bool timers_forget(struct timers *t, pid_t pid) {
    bool any = false;
    struct timer *timer, *next;
    for (timer = LIST_FIRST(&t->list); timer != NULL; timer = next) {
        next = LIST_NEXT(timer, entry);
        if (timer->pid != pid) continue;
        remove_timer(t, timer);
        timer_free(timer);
        any = true;
    }
    return any;
}

int64_t timers_next_ms(const struct timers *t) {
    const struct timer *timer;
    int64_t next = INT64_MAX;
    LIST_FOREACH(timer, &t->list, entry) {
        if (timer->expires_ms < next) next = timer->expires_ms;
    }
    return next;
}

/* Returns whether timers_take_expired() takes `a` before `b`: a timer with a signal before one
 * without; otherwise the one that expires first. Returns true if `b` is NULL. */
static bool comes_first(const struct timer *a, const struct timer *b) {
    if (b == NULL) return true;
    if ((a->signum > 0) != (b->signum > 0)) return a->signum > 0;
    return a->expires_ms < b->expires_ms;
}

struct timer *timers_take_expired(struct timers *t, int64_t now_ms) {
    struct timer *timer, *first = NULL;
    LIST_FOREACH(timer, &t->list, entry) {
        if (timer->expires_ms <= now_ms && comes_first(timer, first)) first = timer;
    }
    if (first != NULL) remove_timer(t, first);
    return first;
}

void timers_done(struct timers *t) {
    while (!LIST_EMPTY(&t->list)) {
        struct timer *timer = LIST_FIRST(&t->list);
        remove_timer(t, timer);
        timer_free(timer);
    }
}
