/* Sends an operator's question (status) or order (notice, dump) to a coordinator, and receives the
 * answer. The functions block until the answer or a deadline; they need no libuv loop. With a token
 * file, operator and coordinator authenticate each other first. */
#include "rendezvous/server.h"

#include "base/cleanup.h"
#include "base/network/address.h"
#include "base/network/connect.h"
#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/secure/secure.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

const char *rendezvous_phase_name(uint32_t phase) { return coordinator_phase_name(phase); }
const char *rendezvous_state_name(uint32_t state) { return seat_state_name(state); }

static struct secure_ring *ring; /* the operator's secrets; NULL = none */

/* One question or order of an operator, and where the coordinator's answer goes. */
struct query {
    const struct cr_endpoint *where;
    int64_t deadline_ms;
    struct cr_error *err;
    struct secure_tunnel *tunnel; /* tunnel of the connection; NULL = it is not authenticated */
    /* callbacks that receive the answer to STATUS; NULL if this is an order */
    const struct rendezvous_status_events *events;
    void *arg;
    /* where the answer to OPERATE is stored; NULL if this is a question */
    uint32_t *operated;
    char *behind;
    /* if the order is an inspection: the callback for each ROW, and the counts of the nodes that
     * were asked and that have answered; else NULL */
    void (*on_row)(void *arg, const struct rdzv_row *row);
    struct rendezvous_inspected *inspected;
    bool is_refused; /* true: the coordinator has refused this operator */
};

static int connect_to(const struct query *q, int *out_fd) {
    struct sockaddr_storage addr;
    socklen_t len;
    int rc = cr_address_resolve(q->where->host, q->where->port, &addr, &len, q->err);
    if (rc < 0) return rc;
    rc = cr_connect((struct sockaddr *) &addr, len, q->deadline_ms, out_fd);
    if (rc == 0) return 0;
    return cr_fail(q->err, rc,
                   "cannot connect to the coordinator at '%s:%u': %s; is a crun-agent "
                   "or the crun that hosts the job running there?",
                   q->where->host, q->where->port, strerror(-rc));
}

/* Sends bytes with one send(). A new socket has an empty send buffer, which is much larger than a
 * question, so send() accepts all bytes at once. */
static int send_bytes(const struct query *q, int fd, const struct cr_buffer *b) {
    if (send(fd, b->data, b->len, MSG_NOSIGNAL) == (ssize_t) b->len) return 0;
    return cr_fail(q->err, -EIO, "cannot ask the coordinator: %s", strerror(EIO));
}

/* Sends what the tunnel has queued. */
static int send_sealed(const struct query *q, int fd) {
    struct cr_buffer *out = secure_tunnel_out(q->tunnel);
    int rc = send_bytes(q, fd, out);
    cr_buffer_clear(out);
    return rc;
}

/* Sends the magic number and the message. */
static int send_question(const struct query *q, int fd, const struct rdzv_message *m) {
    struct cr_buffer b = {0};
    int rc = cr_buffer_append(&b, RDZV_MAGIC, RDZV_MAGIC_LEN);
    if (rc == 0) rc = rdzv_message_encode(m, RDZV_VERSION_MIN, &b);
    if (rc == 0 && q->tunnel != NULL) rc = secure_tunnel_send(q->tunnel, b.data, b.len);
    if (rc < 0) (void) cr_fail(q->err, rc, "cannot ask the coordinator: %s", strerror(-rc));
    else rc = q->tunnel != NULL ? send_sealed(q, fd) : send_bytes(q, fd, &b);
    cr_buffer_done(&b);
    return rc;
}

/* Handles one message of the coordinator's answer. Returns 0 if more messages have to follow, 1 if
 * this was the last one, or -EPROTO and a text in err if the coordinator refuses or the message is
 * not an answer to this question. */
static int take_answer(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct query *q = arg;
    switch ((unsigned) m->type) {
    case RDZV_STATUS_JOB:
        if (q->events != NULL) return q->events->on_job(q->arg, &m->status_job), 0;
        break;
    case RDZV_STATUS_NODE:
        if (q->events != NULL) return q->events->on_node(q->arg, &m->status_node), 0;
        break;
    case RDZV_STATUS_HOST:
        if (q->events == NULL) break;
        if (q->events->on_host != NULL) q->events->on_host(q->arg, &m->status_host);
        return 0;
    case RDZV_STATUS_DONE:
        if (q->events != NULL) return 1;
        break;
    case RDZV_OPERATED:
        if (q->inspected != NULL) return q->inspected->asked = m->operated.nodes, 0;
        if (q->operated == NULL) break;
        *q->operated = m->operated.nodes;
        (void) snprintf(q->behind, RENDEZVOUS_BEHIND_MAX, "%s", m->operated.behind);
        return 1;
    case RDZV_ROW:
        if (q->inspected != NULL) return q->on_row(q->arg, &m->row), 0;
        break;
    case RDZV_INSPECTED:
        if (q->inspected == NULL) break;
        return ++q->inspected->answered == q->inspected->asked ? 1 : 0;
    case RDZV_REFUSED:
        q->is_refused = true;
        return cr_fail(err, -EPROTO, "the coordinator refuses: %s", m->refused.why);
    default: break;
    }
    return cr_fail(err, -EPROTO, "the coordinator answered with an unexpected %s message",
                   rdzv_message_name((unsigned) m->type));
}

/* Waits for bytes from the coordinator until q->deadline_ms, and appends them to `in`. Returns 0 if
 * bytes have come; 1 if the coordinator has ended an inspection before all nodes have answered; or
 * a negative errno and a text in q->err if no bytes came in time, the connection has ended, or
 * memory is short. */
static int receive(const struct query *q, int fd, struct cr_buffer *in) {
    char chunk[16384];
    int rc = cr_wait_ready(fd, POLLIN, q->deadline_ms);
    ssize_t n = rc == 0 ? recv(fd, chunk, sizeof(chunk), 0) : -1;
    if (rc == 0 && n < 0) rc = -errno;
    if (rc < 0) {
        return cr_fail(q->err, rc, "no answer from the coordinator at '%s:%u': %s", q->where->host,
                       q->where->port, strerror(-rc));
    }
    if (n == 0 && q->inspected != NULL && q->inspected->asked > 0) return 1;
    if (n == 0) {
        return cr_fail(q->err, -EPROTO,
                       "'%s:%u' closed the connection; is a crun coordinator there?",
                       q->where->host, q->where->port);
    }
    rc = cr_buffer_append(in, chunk, (size_t) n);
    return rc < 0 ? cr_fail(q->err, rc, "out of memory") : 0;
}

/* ---- authentication ---- */

/* Waits for bytes as receive() does, and appends their plain text to `in`. Returns what receive()
 * returns, or a negative errno and a text in q->err if the tunnel has failed. */
static int receive_plain(const struct query *q, int fd, struct cr_buffer *in) {
    struct cr_buffer raw = {0};
    if (q->tunnel == NULL) return receive(q, fd, in);
    int rc = receive(q, fd, &raw);
    if (rc == 0) {
        secure_tunnel_receive(q->tunnel, raw.data, raw.len);
        struct cr_buffer *plain = secure_tunnel_in(q->tunnel);
        rc = cr_buffer_append(in, plain->data, plain->len);
        if (rc < 0) (void) cr_fail(q->err, rc, "out of memory");
        cr_buffer_clear(plain);
    }
    if (rc == 0 && secure_tunnel_state(q->tunnel) == SECURE_FAILED) {
        enum secure_failure why = secure_tunnel_failure(q->tunnel);
        rc = cr_fail(q->err, why == SECURE_WRONG_KEY ? -EACCES : -EPROTO,
                     "cannot authenticate with the coordinator at '%s:%u': %s", q->where->host,
                     q->where->port, secure_failure_text(why, false));
    }
    cr_buffer_done(&raw);
    return rc;
}

/* Creates q->tunnel, and exchanges the messages of the handshake until the tunnel is open. Returns
 * 0, or a negative errno and a text in q->err. */
static int shake_hands(struct query *q, int fd) {
    struct cr_buffer early = {0};
    const char *run_id = secure_keys_operates(secure_ring_keys(ring));
    if (run_id == NULL) {
        return cr_fail(q->err, -ENOENT, "the token file '%s' has no operator's key, only a node's",
                       secure_ring_path(ring));
    }
    int rc = secure_ring_connect(ring, SECURE_OPERATOR, run_id, &q->tunnel, q->err);
    if (rc == 0) rc = send_sealed(q, fd);
    while (rc == 0 && !secure_tunnel_is_open(q->tunnel)) rc = receive_plain(q, fd, &early);
    cr_buffer_done(&early);
    return rc;
}

/* ---- asking ---- */

/* Asks on one new connection. */
static int ask_once(struct query *q, const struct rdzv_message *m) {
    struct cr_buffer in = {0};
    CR_AUTO_FD int fd = -1;
    int rc = connect_to(q, &fd);
    if (rc == 0 && ring != NULL) rc = shake_hands(q, fd);
    if (rc == 0) rc = send_question(q, fd, m);
    while (rc == 0) {
        rc = receive_plain(q, fd, &in);
        if (rc == 0) rc = rdzv_messages_take(&in, take_answer, q, q->err);
    }
    cr_buffer_done(&in);
    secure_tunnel_free(q->tunnel);
    q->tunnel = NULL;
    return rc > 0 ? 0 : rc;
}

/* Asks the coordinator with the newest key of the token file. If the coordinator does not have that
 * key, asks again with the next key of the file, and so on. */
static int ask_with_keys(struct query *q, const struct rdzv_message *m) {
    uint32_t keys = ring != NULL ? secure_ring_keys(ring)->count : 1;
    int rc = ask_once(q, m);
    for (uint32_t i = 1; i < keys && rc == -EACCES; i++) {
        secure_ring_refused(ring);
        cr_error_clear(q->err);
        rc = ask_once(q, m);
    }
    return rc;
}

/* Asks the coordinator. If it refuses an operator that has no token file, asks again with MUNGE,
 * because the job may be one of Slurm; if this host has no MUNGE, the refusal is the answer. */
static int ask(struct query *q, const struct rdzv_message *m) {
    int rc = ask_with_keys(q, m);
    if (rc == 0 || ring != NULL || !q->is_refused) return rc;
    if (secure_ring_find(RENDEZVOUS_AUTH_MUNGE, NULL, &ring, NULL) < 0) return rc;
    struct cr_error refusal = *q->err;
    cr_error_clear(q->err);
    rc = ask_with_keys(q, m);
    if (rc == 0) return 0;
    return cr_wrap(q->err, "%.400s; and with MUNGE", refusal.text);
}

int rendezvous_authenticate(const char *given, struct cr_error *err) {
    secure_ring_close(ring);
    return secure_ring_find(RENDEZVOUS_AUTH_AUTO, given, &ring, err);
}

int rendezvous_derive_key(bool is_operator, const char *run_id, struct cr_buffer *out,
                          struct cr_error *err) {
    enum secure_role role = is_operator ? SECURE_OPERATOR : SECURE_MEMBER;
    if (ring == NULL) {
        return cr_fail(err, -ENOENT, "there is no token file; give --rdzv-token-file");
    }
    int rc = secure_key_write(secure_ring_keys(ring), role, run_id, out);
    if (rc == -ENOENT) {
        return cr_fail(err, rc, "the token file '%s' has no secret from which this key follows",
                       secure_ring_path(ring));
    }
    return rc < 0 ? cr_fail(err, rc, "out of memory") : 0;
}

int rendezvous_status(const struct cr_endpoint *where, int64_t timeout_ms,
                      const struct rendezvous_status_events *events, void *arg,
                      struct cr_error *err) {
    struct query q = {.where = where, .deadline_ms = cr_deadline_ms(timeout_ms), .err = err,
                      .events = events, .arg = arg};
    struct rdzv_message m = {.type = RDZV_STATUS};
    m.status =
        (struct rdzv_status){.version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX};
    return ask(&q, &m);
}

int rendezvous_operate(const struct cr_endpoint *where, int64_t timeout_ms,
                       const struct rdzv_operate *what, uint32_t *nodes,
                       char behind[RENDEZVOUS_BEHIND_MAX], struct cr_error *err) {
    struct query q = {.where = where, .deadline_ms = cr_deadline_ms(timeout_ms), .err = err,
                      .operated = nodes, .behind = behind};
    struct rdzv_message m = {.type = RDZV_OPERATE};
    m.operate = *what;
    m.operate.version_min = RDZV_VERSION_MIN;
    m.operate.version_max = RDZV_VERSION_MAX;
    return ask(&q, &m);
}

int rendezvous_admit(const struct cr_endpoint *where, int64_t timeout_ms, const char *run_id,
                     const char *host, struct cr_error *err) {
    uint32_t hosts;
    char behind[RENDEZVOUS_BEHIND_MAX];
    struct query q = {.where = where, .deadline_ms = cr_deadline_ms(timeout_ms), .err = err,
                      .operated = &hosts, .behind = behind};
    struct rdzv_message m = {.type = RDZV_OPERATE};
    m.operate = (struct rdzv_operate){.version_min = RDZV_VERSION_HOSTS,
                                      .version_max = RDZV_VERSION_MAX, .run_id = run_id,
                                      .host = host, .kind = RDZV_OPERATE_ADMIT, .why = ""};
    return ask(&q, &m);
}

int rendezvous_inspect(const struct cr_endpoint *where, int64_t timeout_ms, const char *run_id,
                       const char *host, void (*on_row)(void *arg, const struct rdzv_row *row),
                       void *arg, struct rendezvous_inspected *out, struct cr_error *err) {
    struct query q = {.where = where, .deadline_ms = cr_deadline_ms(timeout_ms), .err = err,
                      .on_row = on_row, .arg = arg, .inspected = out};
    struct rdzv_message m = {.type = RDZV_OPERATE};
    *out = (struct rendezvous_inspected){0};
    m.operate = (struct rdzv_operate){.version_min = RDZV_VERSION_INSPECT,
                                      .version_max = RDZV_VERSION_MAX, .run_id = run_id,
                                      .host = host, .kind = RDZV_OPERATE_INSPECT,
                                      .why = "an operator asks where the workers are"};
    return ask(&q, &m);
}
