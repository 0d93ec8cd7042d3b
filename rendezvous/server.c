#include "rendezvous/server.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "rendezvous/way/backend.h"
#include "rendezvous/host/host.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct rendezvous_server {
    struct coordinator_host *host;
    void (*on_close)(void *arg);
    void *arg;
};

static int is_everywhere(const char *host) {
    return host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

int rendezvous_serve(uv_loop_t *loop, const struct cr_endpoint *listen, int64_t close_timeout_ms,
                     struct rendezvous_server **out, uint16_t *port, struct cr_error *err) {
    struct backend_addresses found = {.first = ""};
    int everywhere = is_everywhere(listen->host);
    int rc = everywhere ? 0 : backend_look_up(listen->host, &found, err);
    if (rc < 0) return rc;
    struct rendezvous_server *s = calloc(1, sizeof(*s));
    if (s == NULL) return cr_fail(err, -ENOMEM, "start the coordinator: out of memory");
    /* Nodes that are told no address use the one at which they reached us. */
    struct coordinator_host_options o = {
        .store_host = found.first, .store_addr = found.first, .listen_host = found.first,
        .listen_port = listen->port, .jobs_come_later = 1, .close_timeout_ms = close_timeout_ms};
    rc = coordinator_host_open(loop, &o, &s->host, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *port = coordinator_host_port(s->host);
    *out = s;
    return 0;
}

static void on_host_closed(void *arg) {
    struct rendezvous_server *s = arg;
    void (*on_close)(void *) = s->on_close;
    void *user = s->arg;
    free(s);
    on_close(user);
}

void rendezvous_server_close(struct rendezvous_server *server, const char *why,
                             void (*on_close)(void *arg), void *arg) {
    server->on_close = on_close;
    server->arg = arg;
    coordinator_host_close(server->host, why, on_host_closed, server);
}

/* ---- asking ---- */

static int wait_for(int fd, short events, int64_t deadline_ms) {
    struct pollfd p = {.fd = fd, .events = events};
    int rc;
    do rc = poll(&p, 1, cr_poll_timeout(deadline_ms));
    while (rc < 0 && errno == EINTR);
    return rc > 0 ? 0 : rc == 0 ? -ETIMEDOUT : -errno;
}

static int connect_to(const struct cr_endpoint *where, int64_t deadline_ms, int *out,
                      struct cr_error *err) {
    struct sockaddr_storage addr;
    socklen_t len;
    int rc = cr_address_resolve(where->host, where->port, &addr, &len, err);
    if (rc < 0) return rc;
    CR_AUTO_FD int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return cr_fail_errno(err, "cannot make a socket");
    if (connect(fd, (struct sockaddr *) &addr, len) < 0 && errno != EINPROGRESS) rc = -errno;
    if (rc == 0) rc = wait_for(fd, POLLOUT, deadline_ms);
    int failed = 0;
    socklen_t size = sizeof(failed);
    if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0) rc = -failed;
    if (rc < 0) {
        return cr_fail(err, rc, "cannot connect to the coordinator at '%s:%u': %s; is a crun-agent "
                       "or the crun that hosts the job running there?", where->host, where->port,
                       strerror(-rc));
    }
    *out = cr_take_fd(&fd);
    return 0;
}

static int send_question(int fd, const struct rdzv_message *m, struct cr_error *err) {
    struct cr_buffer b = {0};
    int rc = cr_buffer_append(&b, RDZV_MAGIC, RDZV_MAGIC_LEN);
    if (rc == 0) rc = rdzv_message_encode(m, &b);
    /* A few bytes into the empty buffer of a new socket: taken whole. */
    if (rc == 0 && send(fd, b.data, b.len, MSG_NOSIGNAL) != (ssize_t) b.len) rc = -EIO;
    cr_buffer_done(&b);
    return rc == 0 ? 0 : cr_fail(err, rc, "cannot ask the coordinator: %s", strerror(-rc));
}

/* Where the answers go. */
struct hearing {
    const struct rendezvous_status_events *events; /* NULL: it was no question for the status */
    void *arg;
    uint32_t *operated; /* NULL: it was no order */
};

/* The frames at the front of `in`. Returns 1 after the last one, 0 for more to come, or an error. */
static int pass_on(struct cr_buffer *in, const struct hearing *h, struct cr_error *err) {
    struct rdzv_message m;
    size_t at = 0, used = 1;
    int rc = 0;
    while (rc == 0 && used > 0) {
        rc = rdzv_message_decode(in->data + at, in->len - at, &m, &used, err);
        if (rc < 0 || used == 0) break;
        if (m.type == RDZV_STATUS_JOB && h->events != NULL) h->events->on_job(h->arg, &m.status_job);
        else if (m.type == RDZV_STATUS_NODE && h->events != NULL) h->events->on_node(h->arg, &m.status_node);
        else if (m.type == RDZV_STATUS_DONE && h->events != NULL) rc = 1;
        else if (m.type == RDZV_OPERATED && h->operated != NULL) {
            *h->operated = m.operated.nodes;
            rc = 1;
        } else if (m.type == RDZV_REFUSED) rc = cr_fail(err, -EPROTO, "the coordinator refuses: %s", m.refused.why);
        else rc = cr_fail(err, -EPROTO, "refuse a %s message as an answer", rdzv_message_name((unsigned) m.type));
        at += used;
    }
    cr_buffer_consume(in, at);
    return rc;
}

static int read_answer(int fd, const struct cr_endpoint *where, int64_t deadline_ms,
                       const struct hearing *h, struct cr_error *err) {
    struct cr_buffer in = {0};
    char chunk[16384];
    int rc = 0;
    while (rc == 0) {
        rc = wait_for(fd, POLLIN, deadline_ms);
        ssize_t n = rc == 0 ? recv(fd, chunk, sizeof(chunk), 0) : -1;
        if (rc < 0 || n < 0) {
            if (rc == 0) rc = -errno;
            (void) cr_fail(err, rc, "cannot hear the coordinator at '%s:%u': %s", where->host,
                           where->port, strerror(-rc));
        } else if (n == 0) {
            rc = cr_fail(err, -EPROTO, "'%s:%u' hung up; is a crun coordinator there?", where->host, where->port);
        } else {
            rc = cr_buffer_append(&in, chunk, (size_t) n);
            if (rc < 0) (void) cr_fail(err, rc, "no memory left for what the coordinator sends");
            else rc = pass_on(&in, h, err);
        }
    }
    cr_buffer_done(&in);
    return rc > 0 ? 0 : rc;
}

static int ask(const struct cr_endpoint *where, int64_t timeout_ms, const struct rdzv_message *m,
               const struct hearing *h, struct cr_error *err) {
    int64_t deadline_ms = cr_deadline_ms(timeout_ms);
    CR_AUTO_FD int fd = -1;
    int rc = connect_to(where, deadline_ms, &fd, err);
    if (rc == 0) rc = send_question(fd, m, err);
    return rc < 0 ? rc : read_answer(fd, where, deadline_ms, h, err);
}

int rendezvous_status(const struct cr_endpoint *where, int64_t timeout_ms,
                      const struct rendezvous_status_events *events, void *arg,
                      struct cr_error *err) {
    struct rdzv_message m = {.type = RDZV_STATUS};
    const struct hearing h = {.events = events, .arg = arg};
    m.status = (struct rdzv_status){.version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX};
    return ask(where, timeout_ms, &m, &h, err);
}

int rendezvous_operate(const struct cr_endpoint *where, int64_t timeout_ms,
                       const struct rdzv_operate *what, uint32_t *nodes, struct cr_error *err) {
    struct rdzv_message m = {.type = RDZV_OPERATE};
    const struct hearing h = {.operated = nodes};
    m.operate = *what;
    m.operate.version_min = RDZV_VERSION_MIN;
    m.operate.version_max = RDZV_VERSION_MAX;
    return ask(where, timeout_ms, &m, &h, err);
}
