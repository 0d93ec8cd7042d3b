/* The rendezvous of one node through its front door: rounds, restarts, the budget, the end; that no
 * upcall comes from inside a call; that every attempt gets a store of its own. */
#include "base/cleanup.h"
#include "rendezvous/rendezvous.h"
#include "store/store.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- a store that only counts; the real one is tested where it lives ---- */

struct store_server {
    int spaces_open, opened, cleared;
};
struct store_space {
    struct store_server *server;
};
static struct store_server fake;
static int fake_open_error;

int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err) {
    (void) options;
    (void) err;
    fake = (struct store_server){0};
    *out = &fake;
    return 0;
}

int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err) {
    if (fake_open_error != 0) return cr_fail(err, fake_open_error, "cannot listen on '%s:%u'", host, port);
    *out = malloc(sizeof(**out));
    (*out)->server = server;
    server->spaces_open++;
    server->opened++;
    *bound_port = port != 0 ? port : (uint16_t) (40000 + server->opened);
    return 0;
}

void store_space_clear(struct store_space *space) { space->server->cleared++; }

void store_space_close(struct store_space *space) {
    if (space == NULL) return;
    space->server->spaces_open--;
    free(space);
}

void store_server_stop(struct store_server *server) {
    if (server != NULL) ck_assert_int_eq(server->spaces_open, 0);
}

/* ---- an agent that does as the script says ---- */

struct agent {
    struct rendezvous *r;
    int in_call; /* upcalls from inside a call are a bug */
    int fail_rounds; /* this many rounds fail, then one succeeds */
    int rounds, stops, ends, closed;
    int leave_at_round, close_in_round;
    struct rendezvous_round seen[8];
    enum rendezvous_outcome outcome;
    struct cr_error error;
};

static void on_closed(void *arg) { ((struct agent *) arg)->closed++; }

static void agent_join(struct agent *a) {
    a->in_call = 1;
    rendezvous_join(a->r);
    a->in_call = 0;
}

static void on_round(void *arg, const struct rendezvous_round *round) {
    struct agent *a = arg;
    ck_assert(!a->in_call);
    ck_assert_int_lt(a->rounds, 8);
    a->seen[a->rounds++] = *round;
    a->in_call = 1;
    if (a->close_in_round) {
        rendezvous_close(a->r, on_closed);
    } else if (a->leave_at_round == a->rounds) {
        rendezvous_leave(a->r);
        rendezvous_close(a->r, on_closed);
    } else if (a->rounds <= a->fail_rounds) {
        rendezvous_failed(a->r, round->round, "rank 0: exit code 3");
        rendezvous_join(a->r);
    } else {
        rendezvous_succeeded(a->r, round->round);
    }
    a->in_call = 0;
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    (void) grace_max_ms;
    (void) why;
    ((struct agent *) arg)->stops++;
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
        .run_id = "job", .backend = "c10d", .standalone = 1, .min_nodes = 1, .max_nodes = 1,
        .node_rank = -1, .role = "default", .local_world_size = 4, .max_restarts = max_restarts,
        .join_timeout_ms = 600000, .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
        .heartbeat_timeout_ms = 5000, .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3,
        .read_timeout_ms = 60000, .is_host = -1};
}

static void run(struct agent *a, const struct rendezvous_options *o) {
    uv_loop_t loop;
    struct cr_error err = {0};
    fake_open_error = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rendezvous_open(&loop, o, &events, a, &a->r, &err), 0);
    agent_join(a);
    ck_assert_int_eq(a->rounds, 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(a->closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* no handle is left */
}

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
    ck_assert_uint_eq(r->master_port, 40001);
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
        ck_assert_uint_eq(a.seen[i].master_port, 40001U + (unsigned) i);
    }
    ck_assert_int_eq(fake.opened, 3);
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
    o.endpoint = (struct cr_endpoint){.host = "localhost", .port = 29511};
    run(&a, &o);
    ck_assert_int_eq(a.rounds, 2);
    ck_assert_uint_eq(a.seen[0].master_port, 29511);
    ck_assert_uint_eq(a.seen[1].master_port, 29511);
    ck_assert_str_eq(a.seen[1].master_addr, "127.0.0.1");
    ck_assert_int_eq(fake.opened, 1);
    ck_assert_int_eq(fake.cleared, 1);
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
    fake_open_error = -EADDRINUSE;
    o = one_node(0);
    refuse(o, -EADDRINUSE, "127.0.0.1:0");
}
END_TEST

int main(void) {
    Suite *s = suite_create("rendezvous");
    TCase *t = tcase_create("one node");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, success_is_one_round);
    tcase_add_test(t, every_restart_has_a_new_store);
    tcase_add_test(t, a_spent_budget_is_the_end);
    tcase_add_test(t, static_keeps_its_port_and_clears_it);
    tcase_add_test(t, leaving_and_closing_end_the_upcalls);
    tcase_add_test(t, closing_before_joining_is_fine);
    tcase_add_test(t, bad_options_are_refused_by_name);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? 0 : 1;
}
