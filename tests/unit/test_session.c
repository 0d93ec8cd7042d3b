/* Tests of both ends of a session on a virtual clock: greeting, versions, epochs, time limits,
 * malformed bytes. There is no network: the test itself copies the bytes from the `out` buffer of
 * one end to the other end. */
#include "base/time/clock.h"
#include "rendezvous/protocol/protocol.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LEASE_MS INT64_C(15000)

static int64_t now;

/* ---- the coordinator's end ---- */

static struct host_session host;
static struct host_session_terms terms;
static enum rendezvous_loss last_loss;
static int hellos, joins, resumes, messages, losses, statuses, operates, transitions;
static int hello_rc, join_rc, message_rc, operate_rc;
static int end_at_join; /* if not 0, the coordinator answers a JOIN with END */
static char lost_why[300], last_transition[300];

static int on_hello(void *arg, const struct rdzv_hello *h, struct cr_error *err) {
    (void) arg;
    ck_assert_str_eq(h->run_id, "job");
    hellos++;
    return hello_rc < 0 ? cr_fail(err, hello_rc, "no room for job '%s'", h->run_id) : 0;
}

static void send_end(void) {
    struct rdzv_message m = {.type = RDZV_END};
    m.end.why = "over";
    host_session_send(&host, now, &m);
}

static int on_join(void *arg, const struct rdzv_join *j) {
    (void) arg;
    (void) j;
    joins++;
    if (end_at_join) send_end();
    return join_rc;
}

static int on_resume(void *arg, const struct rdzv_resume *r) {
    (void) arg;
    resumes++;
    ck_assert_str_eq(r->host, "n1");
    return join_rc;
}

static int on_host_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    (void) arg;
    (void) m;
    messages++;
    return message_rc < 0 ? cr_fail(err, message_rc, "refuse that message") : 0;
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) arg;
    losses++;
    last_loss = how;
    (void) snprintf(lost_why, sizeof(lost_why), "%s", why);
}

static void on_status(void *arg) {
    struct rdzv_message m = {.type = RDZV_STATUS_DONE};
    (void) arg;
    statuses++;
    host_session_send(&host, now, &m);
}

static int on_operate(void *arg, const struct rdzv_operate *o, struct cr_error *err) {
    (void) arg;
    (void) o;
    operates++;
    return operate_rc < 0 ? cr_fail(err, operate_rc, "there is no such job") : operate_rc;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    ck_assert_int_eq(level, CR_LOG_DEBUG);
    transitions++;
    (void) snprintf(last_transition, sizeof(last_transition), "%s", text);
}

static const struct host_session_actions host_actions = {
    .on_hello = on_hello, .on_join = on_join, .on_resume = on_resume,
    .on_message = on_host_message, .on_lost = on_lost,
    .on_status = on_status, .on_operate = on_operate, .log = on_log};

/* ---- the member's end ---- */

static struct member_session node;
static int welcomes, heard, breaks;
static int reopen_at_message; /* if not 0, the member connects again while it handles a message */
static unsigned last_heard;
static char broken_why[RDZV_TEXT_MAX + 200];

static void on_welcome(void *arg, const struct rdzv_welcome *w) {
    (void) w;
    (void) arg;
    welcomes++;
}

static int on_node_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    (void) arg;
    (void) err;
    heard++;
    last_heard = (unsigned) m->type;
    if (reopen_at_message) {
        member_session_close(&node, "test");
        member_session_open(&node, "job");
    }
    return 0;
}

static void on_broken(void *arg, const char *why) {
    (void) arg;
    breaks++;
    (void) snprintf(broken_why, sizeof(broken_why), "%s", why);
}

static const struct member_session_actions node_actions = {
    .on_welcome = on_welcome, .on_message = on_node_message, .on_broken = on_broken, .log = on_log};

/* ---- copying bytes between the two ends ---- */

static void setup(void) {
    now = 1000;
    hellos = joins = resumes = messages = losses = statuses = operates = transitions = 0;
    hello_rc = join_rc = message_rc = operate_rc = end_at_join = 0;
    welcomes = heard = breaks = reopen_at_message = 0;
    broken_why[0] = lost_why[0] = '\0';
    terms = (struct host_session_terms){.leads = true, .close_timeout_ms = 30000};
    host_session_done(&host);
    member_session_done(&node);
    host_session_open(&host, now, false, &terms, &host_actions, NULL);
    member_session_init(&node, &node_actions, NULL);
    member_session_open(&node, "job");
}

static void to_host(void) {
    struct cr_buffer bytes = node.out;
    node.out = (struct cr_buffer){0};
    host_session_receive(&host, now, bytes.data, bytes.len);
    cr_buffer_done(&bytes);
}

static void to_node(void) {
    struct cr_buffer bytes = host.out;
    host.out = (struct cr_buffer){0};
    member_session_receive(&node, bytes.data, bytes.len);
    cr_buffer_done(&bytes);
}

static void node_sends(enum rdzv_message_type type) {
    struct rdzv_message m = {.type = type};
    if (type == RDZV_JOIN)
        m.join = (struct rdzv_join){.host = "n1", .addr = "n1", .role = "default"};
    if (type == RDZV_STATUS) m.status = (struct rdzv_status){RDZV_VERSION_MIN, RDZV_VERSION_MAX};
    if (type == RDZV_OPERATE) {
        m.operate.version_min = RDZV_VERSION_MIN;
        m.operate.version_max = RDZV_VERSION_MAX;
    }
    ck_assert_int_eq(member_session_send(&node, &m), 0);
}

/* Removes the next message that the host has sent from its output and returns it. The texts of the
 * message point into `kept`. */
static struct rdzv_message host_sent(void) {
    static char kept[RDZV_FRAME_MAX];
    struct rdzv_message m;
    size_t used = 0;
    ck_assert_int_eq(rdzv_message_decode(host.out.data, host.out.len, &m, &used, NULL), 0);
    ck_assert_uint_gt(used, 0);
    memcpy(kept, host.out.data, used);
    cr_buffer_consume(&host.out, used);
    ck_assert_int_eq(rdzv_message_decode(kept, used, &m, &used, NULL), 0);
    return m;
}

static void host_sends(enum rdzv_message_type type) {
    struct rdzv_message m = {.type = type};
    host_session_send(&host, now, &m);
}

static void seat(void) {
    setup();
    to_host();
    to_node();
    node_sends(RDZV_JOIN);
    to_host();
    ck_assert_int_eq(host.state, HOST_SESSION_SEATED);
    ck_assert_int_eq(node.state, MEMBER_SESSION_WELCOMED);
}

static void pass(int64_t ms) {
    now += ms;
    host_session_tick(&host, now);
}

/* ---- the greeting ---- */

START_TEST(a_node_is_greeted_and_seated) {
    seat();
    ck_assert_int_eq(hellos, 1);
    ck_assert_int_eq(joins, 1);
    ck_assert_int_eq(welcomes, 1);
    node_sends(RDZV_BEAT);
    to_host();
    ck_assert_int_eq(messages, 1);
    host_sends(RDZV_BEAT_ACK);
    to_node();
    ck_assert_int_eq(heard, 1);
}
END_TEST

START_TEST(bytes_may_come_one_by_one) {
    setup();
    node_sends(RDZV_JOIN);
    for (size_t i = 0; i < node.out.len; i++)
        host_session_receive(&host, now, node.out.data + i, 1);
    ck_assert_int_eq(host.state, HOST_SESSION_SEATED);
    for (size_t i = 0; i < host.out.len; i++) member_session_receive(&node, host.out.data + i, 1);
    ck_assert_int_eq(welcomes, 1);
}
END_TEST

START_TEST(another_protocol_gets_no_answer) {
    setup();
    host_session_receive(&host, now, "GET / HTTP/1.1\r\n", 16);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
    ck_assert_uint_eq(host.out.len, 0);
}
END_TEST

START_TEST(messages_out_of_order_are_refused_by_name) {
    setup();
    cr_buffer_clear(&node.out);
    ck_assert_int_eq(cr_buffer_append(&node.out, RDZV_MAGIC, RDZV_MAGIC_LEN), 0);
    node_sends(RDZV_JOIN);
    to_host();
    struct rdzv_message m = host_sent();
    ck_assert_int_eq(m.type, RDZV_REFUSED);
    ck_assert_str_eq(m.refused.why, "a JOIN message came before HELLO");
    setup();
    node_sends(RDZV_BEAT);
    to_host();
    ck_assert_int_eq(host_sent().type, RDZV_WELCOME);
    ck_assert_str_eq(host_sent().refused.why, "a BEAT message came before JOIN");
    ck_assert_int_eq(joins + losses, 0);
}
END_TEST

START_TEST(builds_without_a_common_version_part_with_both_ranges) {
    setup();
    struct rdzv_message hello = {.type = RDZV_HELLO};
    hello.hello = (struct rdzv_hello){
        .version_min = 97, .version_max = 99, .software = "crun 99", .run_id = "job"};
    cr_buffer_clear(&node.out);
    ck_assert_int_eq(cr_buffer_append(&node.out, RDZV_MAGIC, RDZV_MAGIC_LEN), 0);
    ck_assert_int_eq(member_session_send(&node, &hello), 0);
    to_host();
    struct rdzv_message m = host_sent();
    ck_assert_int_eq(m.type, RDZV_REFUSED);
    ck_assert_uint_eq(m.refused.version_max, RDZV_VERSION_MAX);
    ck_assert_uint_eq(m.refused.epoch, 0);
    ck_assert_ptr_nonnull(strstr(m.refused.why, "'crun 99') speaks rendezvous protocol 97 to 99"));
    ck_assert_int_eq(hellos, 0);
}
END_TEST

/* A node of version 2 sends JOIN together with HELLO, without waiting for WELCOME. It must get a
 * seat, and only messages with the fields of version 2. */
START_TEST(a_node_of_the_last_version_is_served_in_that_version) {
    setup();
    struct rdzv_message m = {.type = RDZV_HELLO};
    m.hello = (struct rdzv_hello){
        .version_min = 2, .version_max = 2, .software = "crun 2", .run_id = "job"};
    cr_buffer_clear(&node.out);
    ck_assert_int_eq(cr_buffer_append(&node.out, RDZV_MAGIC, RDZV_MAGIC_LEN), 0);
    ck_assert_int_eq(member_session_send(&node, &m), 0);
    node_sends(RDZV_JOIN);
    to_host();
    ck_assert_int_eq(host.state, HOST_SESSION_SEATED);
    ck_assert_uint_eq(host_sent().welcome.version, 2);
    m = (struct rdzv_message){.type = RDZV_ROUND};
    m.round = (struct rdzv_round){.max_restarts = 3, .incarnation = 9};
    host_session_send(&host, now, &m);
    /* in version 2, master_port is the last field of ROUND */
    ck_assert_uint_eq(host.out.len, 5 + 8 + 7 * 4 + 3 + 4);
}
END_TEST

START_TEST(a_coordinator_of_the_last_version_gets_a_join_of_that_version) {
    struct cr_buffer old = {0};
    struct rdzv_message m = {.type = RDZV_WELCOME};
    setup();
    to_host();
    cr_buffer_clear(&host.out);
    m.welcome.version = 2;
    host_session_send(&host, now, &m);
    to_node();
    ck_assert_int_eq(welcomes, 1);
    ck_assert_uint_eq(node.version, 2);
    m = (struct rdzv_message){.type = RDZV_JOIN};
    m.join = (struct rdzv_join){.host = "n1", .addr = "n1", .role = "default", .digest = 7};
    ck_assert_int_eq(member_session_send(&node, &m), 0);
    ck_assert_int_eq(rdzv_message_encode(&m, 2, &old), 0);
    ck_assert_uint_eq(node.out.len, old.len);
    cr_buffer_done(&old);
}
END_TEST

START_TEST(a_version_that_was_not_offered_breaks_the_session) {
    setup();
    struct rdzv_message m = {.type = RDZV_WELCOME};
    m.welcome.version = RDZV_VERSION_MAX + 1;
    host_session_send(&host, now, &m);
    to_node();
    ck_assert_int_eq(breaks, 1);
    ck_assert_int_eq(welcomes, 0);
}
END_TEST

START_TEST(a_closing_host_refuses_with_its_reason) {
    setup();
    terms.closing = "the node that hosts the rendezvous leaves";
    to_host();
    to_node();
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
    /* the member receives the message, and its session is not broken */
    ck_assert_uint_eq(last_heard, RDZV_REFUSED);
    ck_assert_int_eq(breaks, 0);
}
END_TEST

START_TEST(a_job_that_cannot_be_served_is_refused) {
    setup();
    hello_rc = -ENOMEM;
    to_host();
    ck_assert_str_eq(host_sent().refused.why, "no room for job 'job'");
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
}
END_TEST

/* ---- epochs ---- */

START_TEST(an_older_coordinator_refuses_by_number) {
    setup();
    terms.epoch = 5;
    node.epoch = 7;
    member_session_open(&node, "job");
    to_host();
    struct rdzv_message m = host_sent();
    ck_assert_int_eq(m.type, RDZV_REFUSED);
    /* REFUSED names the lowest epoch that the node accepts */
    ck_assert_uint_eq(m.refused.epoch, 7);
    ck_assert_str_eq(m.refused.why, "this coordinator has epoch 5, the node has obeyed epoch 7");
    ck_assert_int_eq(hellos, 0);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
}
END_TEST

START_TEST(a_coordinator_that_is_not_elected_any_more_names_the_epoch_that_is_needed) {
    setup();
    terms.leads = false;
    terms.epoch = 5;
    to_host();
    ck_assert_uint_eq(host_sent().refused.epoch, 6);
    setup(); /* a coordinator that never was elected, so it has epoch 0 */
    terms.leads = false;
    to_host();
    ck_assert_uint_eq(host_sent().refused.epoch, 1);
    ck_assert_int_eq(hellos, 0);
}
END_TEST

START_TEST(a_newer_coordinator_is_obeyed_and_remembered) {
    setup();
    terms.epoch = 9;
    node.epoch = 7;
    member_session_open(&node, "job");
    to_host();
    to_node();
    ck_assert_int_eq(welcomes, 1);
    ck_assert_uint_eq(node.epoch, 9);
}
END_TEST

START_TEST(a_refusal_by_epoch_is_not_final) {
    setup();
    terms.epoch = 5;
    node.epoch = 7;
    member_session_open(&node, "job");
    to_host();
    to_node();
    ck_assert_int_eq(breaks, 1);
    ck_assert_int_eq(heard, 0); /* the member does not receive REFUSED, because REFUSED would end
                                 * it */
    ck_assert_int_eq(node.state, MEMBER_SESSION_CLOSED);
    ck_assert_ptr_nonnull(strstr(broken_why, "a coordinator of epoch 7 or later is needed"));
    ck_assert_uint_eq(node.epoch, 7);
}
END_TEST

START_TEST(the_member_does_not_obey_an_older_coordinator_either) {
    setup();
    node.epoch = 7;
    struct rdzv_message m = {.type = RDZV_WELCOME};
    m.welcome = (struct rdzv_welcome){.version = RDZV_VERSION_MAX, .epoch = 6};
    host_session_send(&host, now, &m);
    to_node();
    ck_assert_int_eq(breaks, 1);
    ck_assert_int_eq(welcomes, 0);
    ck_assert_str_eq(broken_why, "it has epoch 6, but epoch 7 has taken over");
}
END_TEST

/* ---- time limits ---- */

START_TEST(a_greeting_takes_ten_seconds_at_most) {
    setup();
    pass(SESSION_GREETING_MS - 1);
    to_host(); /* HELLO does not extend the time limit of the greeting */
    ck_assert_int_eq(host.state, HOST_SESSION_JOIN);
    pass(1);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSED);
    ck_assert_int_eq(losses, 0); /* the node had no seat that could be lost */
}
END_TEST

START_TEST(a_seated_node_has_no_limit_here) {
    seat();
    ck_assert_int_eq(host_session_deadline(&host), CR_FOREVER);
    pass(SESSION_GREETING_MS + 1); /* the greeting's limit no longer applies */
    pass(100 * LEASE_MS);
    ck_assert_int_eq(host.state, HOST_SESSION_SEATED);
    ck_assert_int_eq(losses, 0);
}
END_TEST

START_TEST(after_the_end_of_the_job_the_node_has_the_close_timeout) {
    seat();
    send_end();
    ck_assert_int_eq(host.state, HOST_SESSION_ENDING);
    node_sends(RDZV_BEAT); /* sent before the node has received END */
    to_host();
    ck_assert_int_eq(messages, 1);
    pass(29999);
    ck_assert_int_eq(losses, 0);
    pass(1);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSED);
    ck_assert_int_eq(losses, 1);
    ck_assert_str_eq(lost_why, "it did not answer in time");
}
END_TEST

START_TEST(after_our_last_message_the_other_end_has_two_seconds) {
    seat();
    host_session_hang_up(&host, now);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
    node_sends(RDZV_BEAT);
    to_host();
    ck_assert_int_eq(messages, 0);
    pass(SESSION_LINGER_MS);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSED);
    ck_assert_int_eq(losses, 0); /* no on_lost(): the coordinator itself has hung up */
}
END_TEST

START_TEST(in_one_process_nothing_has_a_limit) {
    setup();
    host_session_done(&host);
    host_session_open(&host, now, true, &terms, &host_actions, NULL);
    pass(100 * LEASE_MS);
    ck_assert_int_eq(host.state, HOST_SESSION_MAGIC);
    ck_assert_int_eq(host_session_deadline(&host), CR_FOREVER);
}
END_TEST

/* ---- the end of a session ---- */

START_TEST(a_lost_connection_vacates_the_seat_once) {
    seat();
    host_session_lost(&host, now, RENDEZVOUS_BROKEN, "its connection was closed");
    host_session_lost(&host, now, RENDEZVOUS_BROKEN, "its connection was closed");
    ck_assert_int_eq(losses, 1);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSED);
}
END_TEST

START_TEST(a_message_that_no_node_sends_costs_the_seat) {
    seat();
    message_rc = -EPROTO;
    node_sends(RDZV_ROUND);
    to_host();
    ck_assert_str_eq(host_sent().refused.why, "refuse that message");
    ck_assert_int_eq(losses, 1);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
}
END_TEST

START_TEST(bytes_that_are_no_message_cost_the_seat) {
    seat();
    host_session_receive(&host, now, "\0\0\0\1\143", 5);
    ck_assert_ptr_nonnull(strstr(host_sent().refused.why, "type 99"));
    ck_assert_int_eq(losses, 1);
    member_session_receive(&node, "\377\377\377\377", 4);
    ck_assert_int_eq(breaks, 1);
    ck_assert_int_eq(node.state, MEMBER_SESSION_CLOSED);
}
END_TEST

START_TEST(a_join_may_be_answered_with_the_end) {
    setup();
    join_rc = -EACCES;
    end_at_join = 1;
    node_sends(RDZV_JOIN);
    to_host();
    to_node();
    ck_assert_uint_eq(last_heard, RDZV_END);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
    ck_assert_int_eq(losses, 0);
}
END_TEST

START_TEST(what_follows_on_an_old_connection_does_not_count) {
    seat();
    reopen_at_message = 1;
    host_sends(RDZV_STOP);
    host_sends(RDZV_STOP);
    to_node();
    ck_assert_int_eq(heard, 1);
    ck_assert_int_eq(node.state, MEMBER_SESSION_GREETING);
    ck_assert_int_eq(breaks, 0);
}
END_TEST

START_TEST(before_welcome_only_a_refusal_counts) {
    setup();
    host_sends(RDZV_STOP);
    to_node();
    ck_assert_int_eq(heard, 0);
    ck_assert_int_eq(breaks, 1);
    ck_assert_str_eq(broken_why, "a STOP message came before WELCOME");
}
END_TEST

/* ---- operators ---- */

static void ask(enum rdzv_message_type type) {
    setup();
    cr_buffer_clear(&node.out);
    ck_assert_int_eq(cr_buffer_append(&node.out, RDZV_MAGIC, RDZV_MAGIC_LEN), 0);
    node_sends(type);
}

START_TEST(an_operator_is_answered_and_the_session_closes) {
    ask(RDZV_STATUS);
    to_host();
    ck_assert_int_eq(statuses, 1);
    ck_assert_int_eq(host_sent().type, RDZV_STATUS_DONE);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
    ask(RDZV_OPERATE);
    to_host();
    ck_assert_int_eq(operates, 1);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING);
    ask(RDZV_OPERATE);
    operate_rc = -ENOENT;
    to_host();
    ck_assert_str_eq(host_sent().refused.why, "there is no such job");
}
END_TEST

START_TEST(an_operator_waits_for_the_rows_of_an_inspection) {
    struct rdzv_message row = {.type = RDZV_INSPECTED};
    ask(RDZV_OPERATE);
    operate_rc = 1;
    to_host();
    ck_assert_int_eq(host.state, HOST_SESSION_INSPECTING);
    ck_assert_int_eq(host_session_deadline(&host), now + SESSION_INSPECT_MS);
    row.inspected.id = 3;
    host_session_send(&host, now, &row);
    ck_assert_uint_eq(host_sent().inspected.id, 3);
    now += SESSION_INSPECT_MS;
    host_session_tick(&host, now);
    ck_assert_int_eq(host.state, HOST_SESSION_CLOSING); /* with an end-of-file, not a reset */
}
END_TEST

START_TEST(a_node_of_the_last_version_is_not_asked_to_inspect) {
    struct rdzv_message m = {.type = RDZV_ASK_INSPECT};
    m.ask_inspect.why = "";
    seat();
    size_t before = host.out.len;
    host.version = RDZV_VERSION_INSPECT - 1;
    host_session_send(&host, now, &m);
    ck_assert_uint_eq(host.out.len, before);
    host.version = RDZV_VERSION_INSPECT;
    host_session_send(&host, now, &m);
    ck_assert_uint_gt(host.out.len, before);
}
END_TEST

START_TEST(a_coordinator_of_the_last_version_is_not_told_the_first_failure) {
    struct rdzv_message m = {.type = RDZV_FAILURE};
    m.failure.what = "rank 0: exit code 7";
    seat();
    size_t before = node.out.len;
    node.version = rdzv_message_since(RDZV_FAILURE) - 1;
    ck_assert_int_eq(member_session_send(&node, &m), 0);
    ck_assert_uint_eq(node.out.len, before);
    node.version = rdzv_message_since(RDZV_FAILURE);
    ck_assert_int_eq(member_session_send(&node, &m), 0);
    ck_assert_uint_gt(node.out.len, before);
}
END_TEST

START_TEST(each_change_of_state_is_one_log_line) {
    seat();
    /* 4 at the coordinator's end (NEW MAGIC HELLO JOIN SEATED), 2 at the member's (CLOSED GREETING
     * WELCOMED). */
    ck_assert_int_eq(transitions, 4 + 2);
    host_session_hang_up(&host, now);
    ck_assert_str_eq(last_transition, "session: SEATED -> CLOSING (hung up)");
}
END_TEST

int main(void) {
    Suite *s = suite_create("session");
    TCase *t = tcase_create("greeting");
    tcase_add_test(t, a_node_is_greeted_and_seated);
    tcase_add_test(t, bytes_may_come_one_by_one);
    tcase_add_test(t, another_protocol_gets_no_answer);
    tcase_add_test(t, messages_out_of_order_are_refused_by_name);
    tcase_add_test(t, builds_without_a_common_version_part_with_both_ranges);
    tcase_add_test(t, a_node_of_the_last_version_is_served_in_that_version);
    tcase_add_test(t, a_coordinator_of_the_last_version_gets_a_join_of_that_version);
    tcase_add_test(t, a_version_that_was_not_offered_breaks_the_session);
    tcase_add_test(t, a_closing_host_refuses_with_its_reason);
    tcase_add_test(t, a_job_that_cannot_be_served_is_refused);
    suite_add_tcase(s, t);
    TCase *e = tcase_create("epochs");
    tcase_add_test(e, an_older_coordinator_refuses_by_number);
    tcase_add_test(e, a_coordinator_that_is_not_elected_any_more_names_the_epoch_that_is_needed);
    tcase_add_test(e, a_newer_coordinator_is_obeyed_and_remembered);
    tcase_add_test(e, a_refusal_by_epoch_is_not_final);
    tcase_add_test(e, the_member_does_not_obey_an_older_coordinator_either);
    suite_add_tcase(s, e);
    TCase *l = tcase_create("time");
    tcase_add_test(l, a_greeting_takes_ten_seconds_at_most);
    tcase_add_test(l, a_seated_node_has_no_limit_here);
    tcase_add_test(l, after_the_end_of_the_job_the_node_has_the_close_timeout);
    tcase_add_test(l, after_our_last_message_the_other_end_has_two_seconds);
    tcase_add_test(l, in_one_process_nothing_has_a_limit);
    suite_add_tcase(s, l);
    TCase *d = tcase_create("the end");
    tcase_add_test(d, a_lost_connection_vacates_the_seat_once);
    tcase_add_test(d, a_message_that_no_node_sends_costs_the_seat);
    tcase_add_test(d, bytes_that_are_no_message_cost_the_seat);
    tcase_add_test(d, a_join_may_be_answered_with_the_end);
    tcase_add_test(d, what_follows_on_an_old_connection_does_not_count);
    tcase_add_test(d, before_welcome_only_a_refusal_counts);
    tcase_add_test(d, an_operator_is_answered_and_the_session_closes);
    tcase_add_test(d, an_operator_waits_for_the_rows_of_an_inspection);
    tcase_add_test(d, a_node_of_the_last_version_is_not_asked_to_inspect);
    tcase_add_test(d, a_coordinator_of_the_last_version_is_not_told_the_first_failure);
    tcase_add_test(d, each_change_of_state_is_one_log_line);
    suite_add_tcase(s, d);
    return run_suite(s);
}
