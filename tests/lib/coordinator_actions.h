/* Actions of a coordinator for unit tests to which its stores and its log do not matter. */
#ifndef TESTS_COORDINATOR_ACTIONS_H
#define TESTS_COORDINATOR_ACTIONS_H

#include "rendezvous/coordinator/coordinator.h"

/* The action open_store: each round has the store 10.0.0.1:7000. */
static inline int open_any_store(void *arg, uint64_t round, struct coordinator_store *out,
                                 struct cr_error *err) {
    (void) arg, (void) round, (void) err;
    *out = (struct coordinator_store){.addr = "10.0.0.1", .port = 7000};
    return 0;
}

/* The action log: discards the line. */
static inline void ignore_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg, (void) level, (void) text;
}

#endif
