/* What the daemons of crun-agent share: see daemon_internal.h. */
#include "operator/daemon_internal.h"

#include "base/log/log.h"
#include "base/process/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

int operator_daemon_open(struct operator_daemon *d, void (*on_signal)(struct operator_daemon *d),
                         struct cr_error *err) {
    d->ending = false;
    d->on_signal = on_signal;
    int rc = uv_loop_init(&d->loop);
    return rc < 0 ? cr_fail(err, rc, "cannot start: %s", uv_strerror(rc)) : 0;
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct operator_daemon *d = handle->data;
    if (d->ending) return;
    d->ending = true;
    cr_info("ends on signal %d", signum);
    cr_notify("STOPPING=1");
    d->on_signal(d);
}

static void handle_signal(struct operator_daemon *d, uv_signal_t *handle, int signum) {
    (void) uv_signal_init(&d->loop, handle);
    handle->data = d;
    (void) uv_signal_start(handle, on_signal, signum);
}

void operator_daemon_watch(struct operator_daemon *d) {
    /* the event loop must answer keep-alives even while stderr is a full pipe */
    cr_log_never_wait();
    handle_signal(d, &d->sigterm, SIGTERM);
    handle_signal(d, &d->sigint, SIGINT);
}

void operator_daemon_end(struct operator_daemon *d) {
    uv_close((uv_handle_t *) &d->sigterm, NULL);
    uv_close((uv_handle_t *) &d->sigint, NULL);
}

void operator_daemon_run(struct operator_daemon *d) {
    (void) uv_run(&d->loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&d->loop);
    cr_log_flush();
}

void operator_announce(const struct cr_endpoint *listen, uint16_t port) {
    bool is_v6 = strchr(listen->host, ':') != NULL;
    (void) printf(is_v6 ? "[%s]:%u\n" : "%s:%u\n", listen->host, port);
    (void) fflush(stdout);
    cr_notify("READY=1");
}
