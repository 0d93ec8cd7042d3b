/* What the daemons of crun-agent share: an event loop that ends on SIGTERM or SIGINT, and the first
 * line on stdout. */
#ifndef OPERATOR_DAEMON_H
#define OPERATOR_DAEMON_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct operator_daemon {
    uv_loop_t loop;
    uv_signal_t sigterm, sigint;
    bool ending; /* true if a signal has come, or if the daemon could not start */
    void (*on_signal)(struct operator_daemon *d);
};

/* Opens the loop. on_signal runs on the loop once, when SIGTERM or SIGINT comes: it closes what the
 * daemon has opened on the loop, and calls operator_daemon_end() when that is closed. Returns 0; or
 * a negative errno, and sets err. */
int operator_daemon_open(struct operator_daemon *d, void (*on_signal)(struct operator_daemon *d),
                         struct cr_error *err);
/* Begins to watch for the signals. Call this when the daemon listens. */
void operator_daemon_watch(struct operator_daemon *d);
/* Stops watching for the signals, so that operator_daemon_run() can return. */
void operator_daemon_end(struct operator_daemon *d);
/* Runs the loop until nothing is open on it, and closes it. */
void operator_daemon_run(struct operator_daemon *d);

/* Prints the address as a line on stdout, and reports READY=1 to systemd. */
void operator_announce(const struct cr_endpoint *listen, uint16_t port);

#endif
