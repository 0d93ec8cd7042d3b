/* Finds out whether a server has an operation, by trying it. This uses a second connection, because
 * a server closes the connection on an operation that it does not know. */
#include "store/client/tcp_client_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <string.h>

static int receive_answers(struct store_client *probe, enum store_op question,
                           int64_t deadline_ms) {
    struct store_answer a = {0};
    int rc = 0;
    for (int nth = 0; rc == 0; nth++) {
        enum store_reply shape = store_question_reply(question, nth);
        if (shape == STORE_REPLY_NONE) break;
        store_answer_begin(&a, shape, 0);
        rc = store_client_receive(probe, &a, deadline_ms);
    }
    store_answer_done(&a);
    return rc;
}

static int ask_over(struct store_client *probe, enum store_op question, int64_t deadline_ms) {
    cr_buffer_clear(&probe->request);
    int rc = store_question_encode(question, &probe->request);
    if (rc == 0) rc = store_client_send(probe, deadline_ms);
    return rc < 0 ? rc : receive_answers(probe, question, deadline_ms);
}

/* Tries the operation on a new connection. Returns 1 if the server replies, 0 if the server closes
 * the connection after the handshake, or a negative errno and sets err. */
static int ask(struct store_client *c, enum store_op question, struct cr_error *err) {
    struct store_client probe = {.socket.fd = -1, .port = c->port};
    struct cr_error why = {0};
    memcpy(probe.host, c->host, sizeof(probe.host));
    int64_t deadline = cr_deadline_ms(STORE_GRACE_MS);
    int rc = store_client_shake(&probe, c->handshake, deadline, &why);
    bool shaken = rc == 0;
    if (shaken) rc = ask_over(&probe, question, deadline);
    store_socket_close(&probe.socket);
    cr_buffer_done(&probe.request);
    if (shaken && rc == -ECONNRESET) return 0;
    if (rc == 0) return 1;
    return cr_fail(err, rc, "find out whether the store at %s has '%s': %s", c->socket.peer,
                   store_op_name(question), shaken ? strerror(-rc) : why.text);
}

int store_client_has(struct store_client *c, enum store_op op, struct cr_error *err) {
    int has = store_server_has(c->handshake, c->known, op);
    if (has >= 0) return has;
    /* If the client is broken, returns 1: the caller then sends its request, and the sending fails
     * with the error in c->broken. */
    if (c->broken.code != 0) return 1;
    enum store_op question = store_question(op);
    int rc = ask(c, question, err);
    if (rc >= 0) c->known[question] = rc == 1 ? 1 : -1;
    return rc;
}
