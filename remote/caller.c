/* The caller: executes a command on another host through that host's daemon. Implements
 * remote_call() of remote.h.
 *
 * The caller is one loop around poll(2). It writes the command's output only in pieces that a pipe
 * takes without waiting, so that a slow reader of its stdout does not delay the input of the
 * command. */
#include "remote/remote.h"

#include "base/cleanup.h"
#include "base/network/address.h"
#include "base/network/connect.h"
#include "base/time/clock.h"
#include "remote/key_internal.h"
#include "remote/wire_internal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#define CONNECT_MS 10000 /* longest time in ms from connecting to the end of the handshake */
#define PASSED_MAX ((size_t) 256 << 10) /* if this many bytes of output are not written yet, no more
                                         * is read from the session */

enum { OUT, ERR, STREAMS };

struct caller {
    const char *host;
    uint16_t port;
    struct wire wire;
    bool input_open;
    struct cr_buffer output[STREAMS]; /* bytes that are still to be written to stdout and stderr */
    int status;                       /* exit status of the command; -1 before it has ended */
    struct cr_error *err;
};

/* ---- connecting ---- */

/* Sets c->err to why the handshake has failed. Returns -EACCES if the daemon does not accept the
 * key, otherwise another negative errno. */
static int explain_failure(struct caller *c) {
    enum secure_failure why = secure_tunnel_failure(c->wire.tunnel);
    const char *text = secure_failure_text(why, false);
    if (why == SECURE_WRONG_KEY) {
        return cr_fail(c->err, -EACCES, "the daemon of '%s' refuses this user's key: %s", c->host,
                       text);
    }
    return cr_fail(c->err, -EPROTO, "cannot call the daemon (crun-agent jobs) at '%s' port %u: %s; "
                   "check that this version of crun-agent listens there", c->host, c->port, text);
}

/* Waits until the handshake has succeeded or failed. Returns 0; or a negative errno, and sets
 * c->err. */
static int shake_hands(struct caller *c, int64_t deadline_ms) {
    struct wire *w = &c->wire;
    int rc = 0;
    while (rc == 0 && !secure_tunnel_is_open(w->tunnel)) {
        rc = wire_flush(w);
        if (rc == 0) rc = cr_wait_ready(w->fd, wire_events(w, true), deadline_ms);
        if (rc == 0) rc = wire_read(w);
        if (rc == 0 && secure_tunnel_state(w->tunnel) == SECURE_FAILED) return explain_failure(c);
        if (rc == 0 && w->has_ended && !secure_tunnel_is_open(w->tunnel)) rc = -ECONNRESET;
    }
    if (rc == 0) return 0;
    return cr_fail(c->err, rc, "the daemon of '%s' did not answer: %s", c->host, strerror(-rc));
}

/* Connects to the daemon with key number i of the user, and makes the handshake. Returns 0; -EACCES
 * if the daemon does not accept this key; or another negative errno. */
static int connect_with(struct caller *c, const struct user_key *key, uint32_t i) {
    struct sockaddr_storage address;
    socklen_t len;
    int64_t deadline_ms = cr_deadline_ms(CONNECT_MS);
    int rc = cr_address_resolve(c->host, c->port, &address, &len, c->err);
    if (rc < 0) return rc;
    rc = cr_connect((struct sockaddr *) &address, len, deadline_ms, &c->wire.fd);
    if (rc < 0) {
        return cr_fail(c->err, rc, "cannot reach the daemon (crun-agent jobs) at '%s' port %u: %s",
                       c->host, c->port, strerror(-rc));
    }
    wire_set_up(c->wire.fd);
    rc = secure_connect(SECURE_USER, key->identity, key->keys[i], &c->wire.tunnel, c->err);
    return rc < 0 ? rc : shake_hands(c, deadline_ms);
}

/* The user's key, which remote_prepare() has found; own_key.count is 0 before. */
static struct user_key own_key;

int remote_prepare(struct cr_error *err) {
    if (own_key.count > 0) return 0;
    int rc = key_find(&own_key, err);
    if (rc < 0) explicit_bzero(&own_key, sizeof(own_key));
    return rc;
}

static int connect_daemon(struct caller *c) {
    int rc = remote_prepare(c->err);
    if (rc < 0) return rc;
    rc = -EACCES;
    for (uint32_t i = 0; i < own_key.count && rc == -EACCES; i++) {
        wire_close(&c->wire);
        cr_error_clear(c->err);
        c->wire.fd = -1;
        rc = connect_with(c, &own_key, i);
    }
    return rc;
}

/* ---- carrying bytes ---- */

/* Handles a message of the session. */
static int64_t take(void *arg, const char *data, size_t len) {
    struct caller *c = arg;
    struct remote_frame frame;
    int64_t size = remote_get(data, len, &frame);
    if (size <= 0) return size;
    switch (frame.type) {
    case REMOTE_OUT:
    case REMOTE_ERR: {
        struct cr_buffer *to = &c->output[frame.type == REMOTE_OUT ? OUT : ERR];
        int rc = cr_buffer_append(to, frame.data, frame.len);
        return rc < 0 ? rc : size;
    }
    case REMOTE_ENDED:
        if (frame.len != 1) return -EPROTO;
        c->status = (unsigned char) frame.data[0];
        return size;
    case REMOTE_REFUSED:
        return cr_fail(c->err, -EACCES, "'%s': %.*s", c->host,
                       (int) (frame.len < 900 ? frame.len : 900), frame.data);
    case REMOTE_COMMAND:
    case REMOTE_INPUT: break;
    }
    return -EPROTO;
}

static int receive(struct caller *c) {
    int rc = wire_read(&c->wire);
    if (rc == 0) rc = (int) cr_buffer_take_frames(secure_tunnel_in(c->wire.tunnel), take, c);
    if (rc < 0 || c->status >= 0) return rc;
    if (secure_tunnel_state(c->wire.tunnel) == SECURE_FAILED) return -EPROTO;
    return c->wire.has_ended ? -ECONNRESET : 0;
}

static int read_input(struct caller *c) {
    static char bytes[16384];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (n <= 0) c->input_open = false;
    return wire_put(&c->wire, REMOTE_INPUT, bytes, n > 0 ? (size_t) n : 0);
}

/* Writes the next bytes of the command's output to stdout or stderr, at most as many as a pipe
 * takes without waiting. If the write fails, for example because nobody reads the pipe any more,
 * drops all unwritten bytes of this output. */
static void write_output(struct caller *c, int which) {
    struct cr_buffer *b = &c->output[which];
    size_t size = b->len < PIPE_BUF ? b->len : PIPE_BUF;
    ssize_t n = write(which == OUT ? STDOUT_FILENO : STDERR_FILENO, b->data, size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    cr_buffer_consume(b, n < 0 ? b->len : (size_t) n);
}

static bool has_output(const struct caller *c) {
    return c->output[OUT].len > 0 || c->output[ERR].len > 0;
}

/* Waits until poll(2) reports something, and handles it. Returns 0 or a negative errno. */
static int turn(struct caller *c) {
    enum { WIRE, INPUT, TO_OUT, TO_ERR, COUNT };
    bool has_room = c->output[OUT].len < PASSED_MAX && c->output[ERR].len < PASSED_MAX;
    bool reads = c->status < 0 && has_room;
    bool gives = c->input_open && wire_queued(&c->wire) < WIRE_QUEUE_MAX;
    struct pollfd fds[COUNT] = {
        [WIRE] = {.fd = c->status < 0 ? c->wire.fd : -1, .events = wire_events(&c->wire, reads)},
        [INPUT] = {.fd = gives && c->status < 0 ? STDIN_FILENO : -1, .events = POLLIN},
        [TO_OUT] = {.fd = c->output[OUT].len > 0 ? STDOUT_FILENO : -1, .events = POLLOUT},
        [TO_ERR] = {.fd = c->output[ERR].len > 0 ? STDERR_FILENO : -1, .events = POLLOUT}};
    int rc = 0;
    if (poll(fds, COUNT, -1) < 0) return errno == EINTR ? 0 : -errno;
    if (fds[INPUT].revents != 0) rc = read_input(c);
    if (rc == 0 && c->status < 0) rc = wire_flush(&c->wire);
    if (rc == 0 && reads && (fds[WIRE].revents & (POLLIN | POLLHUP | POLLERR))) rc = receive(c);
    if (fds[TO_OUT].revents != 0) write_output(c, OUT);
    if (fds[TO_ERR].revents != 0) write_output(c, ERR);
    return rc;
}

static int carry(struct caller *c, const char *command) {
    struct cr_buffer frame = {0};
    int rc = remote_put_command(&frame, command);
    if (rc == 0) rc = secure_tunnel_send(c->wire.tunnel, frame.data, frame.len);
    cr_buffer_done(&frame);
    if (rc == 0 && !c->input_open) rc = wire_put(&c->wire, REMOTE_INPUT, NULL, 0);
    while (rc == 0 && (c->status < 0 || has_output(c))) rc = turn(c);
    if (rc == 0 || c->err->code != 0) return rc;
    return cr_fail(c->err, rc, "lost the connection to the daemon of '%s': %s", c->host,
                   strerror(-rc));
}

int remote_call(const char *host, uint16_t port, const char *command, bool gives_input,
                struct cr_error *err) {
    struct cr_error own = {0};
    struct caller c = {.host = host, .port = port, .wire = {.fd = -1}, .input_open = gives_input,
                       .status = -1, .err = err != NULL ? err : &own};
    (void) signal(SIGPIPE, SIG_IGN);
    int rc = connect_daemon(&c);
    if (rc == 0) rc = carry(&c, command);
    wire_close(&c.wire);
    for (int i = 0; i < STREAMS; i++) cr_buffer_done(&c.output[i]);
    return rc < 0 ? rc : c.status;
}
