/* Actions of a coordinator (rendezvous/coordinator/coordinator.h) that do nothing, for benchmarks
 * that run the coordinator without connections, stores and a log. */
#ifndef TESTS_BENCH_COORDINATOR_ACTIONS_H
#define TESTS_BENCH_COORDINATOR_ACTIONS_H

#include "rendezvous/coordinator/coordinator.h"

#include <stdio.h>

static void no_hang_up(void *arg, void *peer) { (void) arg, (void) peer; }

/* Opens no store. Gives the round an address at which nothing listens. */
static int no_store(void *arg, uint64_t round, struct coordinator_store *out,
                    struct cr_error *err) {
    (void) arg, (void) round, (void) err;
    (void) snprintf(out->addr, sizeof(out->addr), "10.0.0.1");
    out->port = 1;
    return 0;
}

static void no_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg, (void) level, (void) text;
}

static int wants_no_log(void *arg, enum cr_log_level level) {
    (void) arg, (void) level;
    return 0;
}

#endif
