/* Asking, for the first call of the queue, whether the server has its operation: over a connection
 * of its own, since the answer "no" is that the server hangs up. It is asked once for an operation;
 * a call whose time ends while it asks takes the question along. */
#include "store/client_async_internal.h"

#include <errno.h>

static void end(struct store_async *a, int has) {
    store_async_link_close(&a->asking);
    a->knows[a->question] = has ? 1 : -1;
    store_async_start_first(a);
}

static void expect_next(struct store_async *a) {
    enum store_reply shape = store_question_reply(a->question, a->answers);
    if (shape == STORE_REPLY_NONE)
        end(a, 1);
    else
        store_async_link_expect(a->asking, shape, 0);
}

static void on_failed(struct store_async *a, int code, const char *reason) {
    if (a->asked && code == -ECONNRESET)
        end(a, 0);
    else
        store_async_asked(a, reason, code);
}

static void on_up(struct store_async *a) {
    struct cr_buffer bytes = {0};
    int rc = store_question_encode(a->question, &bytes);
    if (rc == 0) rc = store_async_link_send(a->asking, &bytes);
    cr_buffer_done(&bytes);
    if (rc < 0) {
        on_failed(a, rc, NULL);
        return;
    }
    a->asked = 1;
    a->answers = 0;
    expect_next(a);
}

static void on_answered(struct store_async *a) {
    a->answers++;
    expect_next(a);
}

static const struct store_async_events asking_events = {on_up, on_answered, on_failed};

int store_async_ask(struct store_async *a, enum store_op question) {
    a->question = question;
    a->asked = 0;
    return store_async_link_open(a, (struct sockaddr *) &a->to, a->probe.how, &asking_events,
                                 &a->asking);
}
