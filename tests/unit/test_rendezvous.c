/* Tests the public interface rendezvous.h, within one process and over real sockets: rounds,
 * restarts, the restart budget and the end of a job. The rendezvous must not call back while a call
 * of its functions is running, and each round must have a key space of its own. */
#include "base/cleanup.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/protocol/protocol.h"
#include "tests/lib/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- free ports ---- */

static int listener(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *) &a, len), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *) &a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

/* Returns a free port below the range from which the kernel takes ports for outgoing connections. A
 * port in that range could be taken by another process before the test listens at it. */
static uint16_t free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    static unsigned next;
    for (unsigned tries = 0; tries < 15000; tries++) {
        uint16_t port = (uint16_t) (15000 + ((unsigned) getpid() * 31 + next++) % 15000);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        a.sin_port = htons(port);
        int rc = bind(fd, (struct sockaddr *) &a, sizeof(a));
        (void) close(fd);
        if (rc == 0) return port;
    }
    ck_abort_msg("no free port");
}

static int knock(uint16_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *) &a, sizeof(a)) == 0) return fd;
    (void) close(fd);
    return -1;
}

static int is_open(uint16_t port) {
    int fd = knock(port);
    if (fd >= 0) (void) close(fd);
    return fd >= 0;
}

/* ---- an agent that follows a script ---- */

struct agent {
    struct rendezvous *r;
    /* not 0 while the agent is in a call of a function of `r`; no callback may run in that time */
    int in_call;
    int fail_rounds; /* number of rounds that fail before one succeeds */
    int rounds, stops, ends, closed;
    int leave_at_round, close_in_round;
    void (*on_round)(struct agent *a, const struct rendezvous_round *round);
    struct agent *other;
    char stop_why[512];
    struct rendezvous_round seen[8];
    enum rendezvous_outcome outcome;
    struct cr_error error;
};

static void on_closed(void *arg) { ((struct agent *) arg)->closed++; }

static void agent_join(struct agent *a) {
    a->in_call = 1;
    rendezvous_join(a->r, 0);
    a->in_call = 0;
}

static void on_round(void *arg, const struct rendezvous_round *round) {
    struct agent *a = arg;
    ck_assert(!a->in_call);
    ck_assert_int_lt(a->rounds, 8);
    a->seen[a->rounds++] = *round;
    ck_assert(is_open(round->master_port));
    if (a->on_round != NULL) {
        a->on_round(a, round);
        return;
    }
    a->in_call = 1;
    if (a->close_in_round) {
        rendezvous_close(a->r, on_closed);
    } else if (a->leave_at_round == a->rounds) {
        rendezvous_leave(a->r);
        rendezvous_close(a->r, on_closed);
    } else if (a->rounds <= a->fail_rounds) {
        rendezvous_failed(a->r, round->round, "rank 0: exit code 3", false);
        rendezvous_join(a->r, 0);
    } else {
        rendezvous_succeeded(a->r, round->round);
    }
    a->in_call = 0;
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    (void) grace_max_ms;
    struct agent *a = arg;
    ck_assert(!a->in_call);
    a->stops++;
    (void) snprintf(a->stop_why, sizeof(a->stop_why), "%s", why);
    agent_join(a);
}

static void on_end(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err) {
    struct agent *a = arg;
    ck_assert(!a->in_call);
    a->ends++;
    a->outcome = outcome;
    a->error = *err;
    rendezvous_close(a->r, on_closed);
}

static const struct rendezvous_events events = {
    .on_round = on_round, .on_stop = on_stop, .on_end = on_end};

static struct rendezvous_options one_node(uint32_t max_restarts) {
    return (struct rendezvous_options){
        .run_id = "job", .backend = "c10d", .standalone = 1, .loopback_only = true,
        .min_nodes = 1, .max_nodes = 1, .node_rank = -1, .role = "default",
        .local_world_size = 4, .max_restarts = max_restarts,
        .join_timeout_ms = 600000, .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
        .heartbeat_timeout_ms = 5000, .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3,
        .read_timeout_ms = 60000, .is_host = -1};
}

static void run(struct agent *a, const struct rendezvous_options *o) {
    uv_loop_t loop;
    struct cr_error err = {0};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rendezvous_open(&loop, o, &events, a, &a->r, &err), 0);
    agent_join(a);
    ck_assert_int_eq(a->rounds, 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(a->closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* fails if a handle is left in the loop */
}

/* ---- a change with notice, of one node without sockets ---- */

static uint64_t set_to;

static void gives_notice(void *arg, const struct rendezvous_round *round) {
    struct agent *a = arg;
    a->rounds++;
    (void) round;
    rendezvous_notice(a->r, RENDEZVOUS_CHANGE_PREEMPTION, 60000, "spot");
}
static void answers(void *arg, const struct rendezvous_change *change) {
    struct agent *a = arg;
    ck_assert_int_eq(change->kind, RENDEZVOUS_CHANGE_PREEMPTION);
    ck_assert_int_eq(change->left_ms, 60000);
    ck_assert_ptr_nonnull(strstr(change->why, "leaves: spot"));
    rendezvous_change_answer(a->r, change->id, 5, 0);
}
static void gets_ready(void *arg, uint64_t id, uint64_t step, int64_t left_ms) {
    struct agent *a = arg;
    ck_assert_int_gt(left_ms, 0);
    set_to = step;
    rendezvous_change_ready(a->r, id);
}
static void goes(void *arg, int64_t grace_max_ms, const char *why) {
    struct agent *a = arg;
    (void) grace_max_ms;
    (void) why;
    a->stops++;
    rendezvous_leave(a->r);
    rendezvous_close(a->r, on_closed);
}

static void notice_on_one_node(struct agent *a, const struct rendezvous_events *how) {
    uv_loop_t loop;
    struct cr_error err = {0};
    struct rendezvous_options o = one_node(0);
    set_to = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rendezvous_open(&loop, &o, how, a, &a->r, &err), 0);
    agent_join(a);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(a->rounds, 1);
    ck_assert_int_eq(a->stops, 1);
    ck_assert_int_eq(a->closed, 1);
}

START_TEST(a_notice_on_one_node_stops_its_workers_together) {
    static const struct rendezvous_events how = {.on_round = gives_notice, .on_stop = goes,
                                                 .on_end = on_end, .on_change = answers,
                                                 .on_change_at = gets_ready};
    struct agent a = {0};
    notice_on_one_node(&a, &how);
    ck_assert_uint_eq(set_to, 6);
}
END_TEST

START_TEST(without_callbacks_a_change_is_at_once) {
    static const struct rendezvous_events how = {.on_round = gives_notice, .on_stop = goes,
                                                 .on_end = on_end};
    struct agent a = {0};
    notice_on_one_node(&a, &how);
}
END_TEST

START_TEST(success_is_one_round) {
    struct agent a = {0};
    struct rendezvous_options o = one_node(0);
    run(&a, &o);
    ck_assert_int_eq(a.rounds, 1);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_int_eq(a.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_str_eq(a.error.text, "");
    const struct rendezvous_round *r = &a.seen[0];
    ck_assert_uint_eq(r->round, 0);
    ck_assert_uint_eq(r->restart_count, 0);
    ck_assert_uint_eq(r->group_rank, 0);
    ck_assert_uint_eq(r->group_world_size, 1);
    ck_assert_uint_eq(r->first_rank, 0);
    ck_assert_uint_eq(r->world_size, 4);
    ck_assert_uint_eq(r->role_world_size, 4);
    ck_assert_str_eq(r->master_addr, "127.0.0.1");
    ck_assert_uint_ne(r->master_port, 0);
    ck_assert(!is_open(r->master_port)); /* the store was closed together with the rendezvous */
}
END_TEST

START_TEST(every_restart_has_a_new_store) {
    struct agent a = {.fail_rounds = 2};
    struct rendezvous_options o = one_node(2);
    run(&a, &o);
    ck_assert_int_eq(a.rounds, 3);
    ck_assert_int_eq(a.stops, 0); /* a node that failed stops by itself */
    ck_assert_int_eq(a.outcome, RENDEZVOUS_SUCCEEDED);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(a.seen[i].round, (unsigned) i);
        ck_assert_uint_eq(a.seen[i].restart_count, (unsigned) i);
        ck_assert_uint_ne(a.seen[i].master_port, a.seen[(i + 1) % 3].master_port);
    }
}
END_TEST

START_TEST(a_spent_budget_is_the_end) {
    struct agent a = {.fail_rounds = 8};
    struct rendezvous_options o = one_node(1);
    run(&a, &o);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_int_eq(a.outcome, RENDEZVOUS_FAILED);
    ck_assert_str_eq(a.error.text, "rank 0: exit code 3");
}
END_TEST

START_TEST(static_keeps_its_port_and_clears_it) {
    struct agent a = {.fail_rounds = 1};
    struct rendezvous_options o = one_node(1);
    o.standalone = 0;
    o.backend = "static";
    o.endpoint = (struct cr_endpoint){.host = "localhost", .port = free_port()};
    run(&a, &o);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.seen[0].master_port, o.endpoint.port);
    ck_assert_uint_eq(a.seen[1].master_port, o.endpoint.port);
    ck_assert_str_eq(a.seen[1].master_addr, "127.0.0.1");
}
END_TEST

START_TEST(leaving_and_closing_end_the_upcalls) {
    struct agent leaver = {.leave_at_round = 1}, closer = {.close_in_round = 1};
    struct rendezvous_options o = one_node(0);
    run(&leaver, &o);
    run(&closer, &o);
    ck_assert_int_eq(leaver.ends + closer.ends, 0);
    ck_assert_int_eq(leaver.rounds + closer.rounds, 2);
}
END_TEST

START_TEST(closing_before_joining_is_fine) {
    uv_loop_t loop;
    struct cr_error err = {0};
    struct agent a = {0};
    struct rendezvous_options o = one_node(0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rendezvous_open(&loop, &o, &events, &a, &a.r, &err), 0);
    rendezvous_close(a.r, on_closed);
    ck_assert_int_eq(a.closed, 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(a.closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

static void refuse(struct rendezvous_options o, int code, const char *text) {
    uv_loop_t loop;
    struct cr_error err = {0};
    struct agent a = {0};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rendezvous_open(&loop, &o, &events, &a, &a.r, &err), code);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' does not say '%s'", err.text, text);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(bad_options_are_refused_by_name) {
    struct rendezvous_options o = one_node(0);
    o.run_id = "";
    refuse(o, -EINVAL, "--rdzv-id");
    o = one_node(0);
    o.min_nodes = 2;
    refuse(o, -EINVAL, "2:1");
    o = one_node(0);
    o.join_timeout_ms = 0;
    refuse(o, -EINVAL, "positive");
    o = one_node(0);
    o.max_nodes = 2;
    o.join_timeout_ms = o.last_call_timeout_ms;
    refuse(o, -EINVAL, "join_timeout (30 s) must be longer than last_call_timeout (30 s)");
    o = one_node(0);
    o.max_nodes = 2;
    o.keep_alive_interval_ms = 2, o.keep_alive_max_attempt = 1;
    refuse(o, -EINVAL, "0.1 s is the least that works");
    o = one_node(0);
    o.standalone = 0;
    o.backend = "smoke-signals";
    refuse(o, -ENOTSUP, "smoke-signals");
    o = one_node(0);
    o.standalone = 0;
    o.backend = "static";
    o.node_rank = 3;
    refuse(o, -EINVAL, "node rank 3");
    o.node_rank = 0;
    o.endpoint = (struct cr_endpoint){.host = "no.such.host.invalid", .port = 1};
    refuse(o, -ENOENT, "no.such.host.invalid");
    uint16_t port;
    int taken = listener(&port);
    o.endpoint = (struct cr_endpoint){.host = "127.0.0.1", .port = port};
    refuse(o, -EADDRINUSE, "127.0.0.1:");
    (void) close(taken);
}
END_TEST

/* ---- several nodes, each with a rendezvous of its own, over real sockets on one loop ---- */

static struct rendezvous_options node_of(uint16_t port, uint32_t min, uint32_t max) {
    struct rendezvous_options o = one_node(3);
    o.standalone = 0;
    o.min_nodes = min;
    o.max_nodes = max;
    o.endpoint = (struct cr_endpoint){.host = "127.0.0.1", .port = port};
    o.last_call_timeout_ms = 200;
    return o;
}

static void open_node(uv_loop_t *loop, struct agent *a, const struct rendezvous_options *o) {
    struct cr_error err = {0};
    int rc = rendezvous_open(loop, o, &events, a, &a->r, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
}

static void run_all(uv_loop_t *loop) {
    ck_assert_int_eq(uv_run(loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(loop), 0);
}

static void succeed(struct agent *a, const struct rendezvous_round *round) {
    rendezvous_succeeded(a->r, round->round);
}

static void fail_once(struct agent *a, const struct rendezvous_round *round) {
    if (round->restart_count > 0) {
        succeed(a, round);
        return;
    }
    rendezvous_failed(a->r, round->round, "rank 5 on b: signal 9", false);
    rendezvous_join(a->r, 0);
}

static void wait_for_news(struct agent *a, const struct rendezvous_round *round) {
    if (round->restart_count > 0) succeed(a, round);
}

START_TEST(two_nodes_share_a_failure_and_a_success) {
    uv_loop_t loop;
    struct agent a = {.on_round = wait_for_news}, b = {.on_round = fail_once};
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, &a, &o); /* a gets the port, so a hosts the rendezvous */
    o.local_world_size = 2;
    o.role = "other";
    open_node(&loop, &b, &o); /* b cannot listen at the port, so b connects to a */
    agent_join(&b);
    agent_join(&a);
    run_all(&loop);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_int_eq(b.rounds, 2);
    ck_assert_int_eq(a.stops, 1);
    ck_assert_int_eq(b.stops, 0);
    ck_assert_str_eq(a.stop_why, "rank 5 on b: signal 9");
    ck_assert_int_eq(a.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_int_eq(b.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_int_eq(a.closed + b.closed, 2);
    for (int i = 0; i < 2; i++) {
        const struct rendezvous_round *ra = &a.seen[i], *rb = &b.seen[i];
        ck_assert_uint_eq(ra->world_size, 6);
        ck_assert_uint_eq(rb->world_size, 6);
        ck_assert_uint_eq(ra->role_world_size, 4);
        ck_assert_uint_eq(rb->role_world_size, 2);
        ck_assert_uint_eq(ra->group_rank + rb->group_rank, 1);
        ck_assert_uint_eq(ra->group_rank, a.seen[0].group_rank); /* a node keeps its group rank */
        ck_assert_uint_eq(ra->restart_count, (unsigned) i);
        ck_assert_uint_eq(rb->restart_count, (unsigned) i);
        ck_assert_uint_eq(ra->master_port, rb->master_port);
        ck_assert_str_eq(ra->master_addr, "127.0.0.1");
        ck_assert_str_eq(rb->master_addr, "127.0.0.1");
    }
    ck_assert_uint_ne(a.seen[0].master_port, a.seen[1].master_port);
}
END_TEST

START_TEST(static_nodes_share_the_endpoint_with_their_store) {
    uv_loop_t loop;
    struct agent a = {.on_round = wait_for_news}, b = {.on_round = fail_once};
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    o.backend = "static";
    o.node_rank = 1;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, &b, &o);
    agent_join(&b); /* there is no coordinator yet, so b repeats its try */
    o.node_rank = 0;
    open_node(&loop, &a, &o);
    agent_join(&a);
    run_all(&loop);
    ck_assert_int_eq(a.rounds + b.rounds, 4);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(a.seen[i].group_rank, 0);
        ck_assert_uint_eq(b.seen[i].group_rank, 1);
        ck_assert_uint_eq(b.seen[i].first_rank, 4);
        ck_assert_uint_eq(a.seen[i].master_port, o.endpoint.port);
        ck_assert_uint_eq(b.seen[i].master_port, o.endpoint.port);
    }
    ck_assert_int_eq(b.outcome, RENDEZVOUS_SUCCEEDED);
}
END_TEST

START_TEST(jobs_share_an_endpoint_without_seeing_each_other) {
    uv_loop_t loop;
    struct agent a = {.on_round = succeed}, b = {.on_round = succeed}, x = {.on_round = succeed},
                 y = {.on_round = succeed};
    struct rendezvous_options o = node_of(free_port(), 2, 2), other = o;
    other.run_id = "another";
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, &a, &o);
    open_node(&loop, &x, &other);
    open_node(&loop, &y, &other);
    open_node(&loop, &b, &o);
    agent_join(&x);
    agent_join(&y);
    agent_join(&a);
    agent_join(&b);
    run_all(&loop);
    ck_assert_int_eq(a.rounds + b.rounds + x.rounds + y.rounds, 4);
    ck_assert_uint_eq(a.seen[0].world_size, 8);
    ck_assert_uint_eq(x.seen[0].world_size, 8);
    ck_assert_uint_ne(a.seen[0].master_port, x.seen[0].master_port);
}
END_TEST

static void leave_when_both_run(struct agent *a, const struct rendezvous_round *round) {
    (void) round;
    if (a->other->rounds == 0) return;
    rendezvous_leave(a->r);
    rendezvous_close(a->r, on_closed);
}

static void tell_other(struct agent *a, const struct rendezvous_round *round) {
    if (a->other->rounds > 0) leave_when_both_run(a->other, round);
}

/* Runs both nodes on one loop until the job ends. Node a is opened first and gets the port, so a
 * hosts the rendezvous. */
static void run_both(struct agent *a, struct agent *b, const struct rendezvous_options *o) {
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, a, o);
    open_node(&loop, b, o);
    agent_join(a);
    agent_join(b);
    run_all(&loop);
}

START_TEST(when_the_host_leaves_the_others_get_the_reason) {
    struct agent a = {.on_round = leave_when_both_run}, b = {.on_round = tell_other};
    a.other = &b;
    b.other = &a;
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    run_both(&a, &b, &o);
    ck_assert_int_eq(a.ends, 0);
    ck_assert_int_eq(b.ends, 1);
    ck_assert_int_eq(b.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(
        b.error.text, "the node that hosts the rendezvous leaves: its launcher was told to end"));
}
END_TEST

/* The job ends when the join timeout of node a, which hosts the rendezvous, is over. On a slow
 * machine b's join timeout can be over first; b must then report the same reason as a. */
START_TEST(when_the_host_gives_up_the_others_get_the_reason) {
    struct agent a = {0}, b = {0};
    struct rendezvous_options o = node_of(free_port(), 3, 3);
    o.join_timeout_ms = 2000; /* long enough for b to connect */
    run_both(&a, &b, &o);
    ck_assert_int_eq(b.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(b.error.text, "the rendezvous timed out after 2 s"));
}
END_TEST

START_TEST(the_other_node_never_came) {
    uv_loop_t loop;
    struct agent a = {0};
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    o.join_timeout_ms = 300;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, &a, &o);
    agent_join(&a);
    run_all(&loop);
    ck_assert_int_eq(a.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(a.error.text, "1 of at least 2 nodes came"));
}
END_TEST

/* A connection of another program uses the endpoint's port as its local port. Until this connection
 * is closed, neither node can listen at the endpoint. */
START_TEST(a_passing_connection_has_the_port) {
    uv_loop_t loop;
    struct agent a = {.on_round = wait_for_news}, b = {.on_round = fail_once};
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)},
                              .sin_port = htons(o.endpoint.port)}, to = own;
    struct linger reset = {.l_onoff = 1};
    uint16_t port;
    int server = listener(&port), passing = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = htons(port);
    ck_assert_int_eq(bind(passing, (struct sockaddr *) &own, sizeof(own)), 0);
    ck_assert_int_eq(connect(passing, (struct sockaddr *) &to, sizeof(to)), 0);
    ck_assert_int_eq(setsockopt(passing, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, &a, &o); /* neither a nor b can listen at the port, so both try to connect */
    open_node(&loop, &b, &o);
    (void) close(passing);
    agent_join(&a);
    agent_join(&b);
    run_all(&loop);
    ck_assert_int_eq(a.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_int_eq(b.outcome, RENDEZVOUS_SUCCEEDED);
    ck_assert_int_eq(a.rounds + b.rounds, 4);
    ck_assert_str_eq(a.seen[0].master_addr, "127.0.0.1");
    ck_assert_uint_eq(a.seen[0].master_port, b.seen[0].master_port);
    (void) close(server);
}
END_TEST

START_TEST(no_process_listens_at_the_endpoint) {
    uv_loop_t loop;
    struct agent a = {0};
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    o.is_host = 0;
    o.read_timeout_ms = 300;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_node(&loop, &a, &o);
    agent_join(&a);
    run_all(&loop);
    ck_assert_int_eq(a.outcome, RENDEZVOUS_LOST);
    ck_assert_ptr_nonnull(strstr(a.error.text, "cannot reach the rendezvous at '127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(a.error.text, "this node has"));
}
END_TEST

/* ---- other programs at the port ---- */

struct stranger {
    uv_loop_t loop;
    struct agent a;
    uv_async_t spoken;
    int fd;
    const char *says;
    size_t len;
    struct rdzv_message answer;
    char in[4096];
    size_t in_len;
    int eof;
};

/* Runs in a separate thread, because its socket calls block: the loop, to which the stranger is
 * connected, must run at the same time. */
static void stranger_speaks(void *arg) {
    struct stranger *s = arg;
    ssize_t n;
    ck_assert_int_eq(write(s->fd, s->says, s->len), (ssize_t) s->len);
    while ((n = read(s->fd, s->in + s->in_len, sizeof(s->in) - s->in_len)) > 0)
        s->in_len += (size_t) n;
    s->eof = 1;
    (void) close(s->fd);
    (void) uv_async_send(&s->spoken);
}

static void on_spoken(uv_async_t *spoken) {
    struct stranger *s = spoken->data;
    uv_close((uv_handle_t *) spoken, NULL);
    rendezvous_leave(s->a.r);
    rendezvous_close(s->a.r, on_closed);
}

static void answer_stranger(struct stranger *s, const char *says, size_t len) {
    uv_thread_t thread;
    struct rendezvous_options o = node_of(free_port(), 2, 2);
    s->says = says;
    s->len = len;
    ck_assert_int_eq(uv_loop_init(&s->loop), 0);
    ck_assert_int_eq(uv_async_init(&s->loop, &s->spoken, on_spoken), 0);
    s->spoken.data = s;
    open_node(&s->loop, &s->a, &o);
    s->fd = knock(o.endpoint.port);
    ck_assert_int_ge(s->fd, 0);
    ck_assert_int_eq(uv_thread_create(&thread, stranger_speaks, s), 0);
    agent_join(&s->a);
    run_all(&s->loop);
    ck_assert_int_eq(uv_thread_join(&thread), 0);
    ck_assert(s->eof);
}

static const char *refusal(struct stranger *s) {
    size_t used = 0;
    ck_assert_int_eq(rdzv_message_decode(s->in, s->in_len, &s->answer, &used, NULL), 0);
    ck_assert_int_eq(s->answer.type, RDZV_REFUSED);
    return s->answer.refused.why;
}

START_TEST(another_version_is_refused_with_both_versions) {
    struct stranger s = {.fd = -1};
    struct cr_buffer says = {0};
    struct rdzv_message m = {.type = RDZV_HELLO};
    m.hello = (struct rdzv_hello){
        .version_min = 97, .version_max = 99, .software = "crun 99", .run_id = "job"};
    ck_assert_int_eq(cr_buffer_append(&says, RDZV_MAGIC, RDZV_MAGIC_LEN), 0);
    ck_assert_int_eq(rdzv_message_encode(&m, RDZV_VERSION_MIN, &says), 0);
    answer_stranger(&s, says.data, says.len);
    ck_assert_ptr_nonnull(strstr(refusal(&s), "'crun 99') speaks rendezvous protocol 97 to 99"));
    ck_assert_uint_eq(s.answer.refused.version_max, RDZV_VERSION_MAX);
    cr_buffer_done(&says);
}
END_TEST

START_TEST(an_unknown_message_is_an_error_not_a_hang) {
    struct stranger s = {.fd = -1};
    answer_stranger(&s, RDZV_MAGIC "\0\0\0\1\143", RDZV_MAGIC_LEN + 5);
    ck_assert_ptr_nonnull(strstr(refusal(&s), "type 99"));
}
END_TEST

START_TEST(another_protocol_gets_no_answer) {
    struct stranger s = {.fd = -1};
    answer_stranger(&s, "CRUNxxxxyyyy", 12);
    ck_assert_uint_eq(s.in_len, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("rendezvous");
    TCase *t = tcase_create("one node");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, a_notice_on_one_node_stops_its_workers_together);
    tcase_add_test(t, without_callbacks_a_change_is_at_once);
    tcase_add_test(t, success_is_one_round);
    tcase_add_test(t, every_restart_has_a_new_store);
    tcase_add_test(t, a_spent_budget_is_the_end);
    tcase_add_test(t, static_keeps_its_port_and_clears_it);
    tcase_add_test(t, leaving_and_closing_end_the_upcalls);
    tcase_add_test(t, closing_before_joining_is_fine);
    tcase_add_test(t, bad_options_are_refused_by_name);
    suite_add_tcase(s, t);
    TCase *n = tcase_create("several nodes");
    tcase_set_timeout(n, 30);
    tcase_add_test(n, two_nodes_share_a_failure_and_a_success);
    tcase_add_test(n, static_nodes_share_the_endpoint_with_their_store);
    tcase_add_test(n, jobs_share_an_endpoint_without_seeing_each_other);
    tcase_add_test(n, when_the_host_leaves_the_others_get_the_reason);
    tcase_add_test(n, when_the_host_gives_up_the_others_get_the_reason);
    tcase_add_test(n, the_other_node_never_came);
    tcase_add_test(n, no_process_listens_at_the_endpoint);
    tcase_add_test(n, a_passing_connection_has_the_port);
    tcase_add_test(n, another_version_is_refused_with_both_versions);
    tcase_add_test(n, an_unknown_message_is_an_error_not_a_hang);
    tcase_add_test(n, another_protocol_gets_no_answer);
    suite_add_tcase(s, n);
    return run_suite(s);
}
