/* Tests of the jobs of one host (rendezvous/host/job_table_internal.h): which job a node gets, how
 * long a job without connections is kept, how many jobs there may be, and that the end of one job
 * changes no other job. */
#include "base/time/clock.h"
#include "rendezvous/host/job_table_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_TIME 30000

/* A node with a connection: its job, its seat, and what it was sent. */
struct peer {
    struct host_job *job;
    struct coordinator_seat *seat;
    int rounds, ends, goodbyes, hung_up;
    uint16_t port; /* of the store of the last round */
};

static struct job_table table;
static struct host_session_terms terms;
static int64_t now_ms;
static int jobs_now, stores_opened; /* how many jobs the owner has; how many stores were opened */
static bool is_out_of_memory;
static uint64_t runs, instances;

/* ---- actions ---- */

static void on_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct peer *p = peer;
    ck_assert_ptr_eq(p->job, arg); /* a coordinator writes only to the nodes of its job */
    if (m->type == RDZV_ROUND) p->rounds++, p->port = (uint16_t) m->round.master_port;
    if (m->type == RDZV_END) p->ends++;
    if (m->type == RDZV_GOODBYE) p->goodbyes++;
}

static void on_hang_up(void *arg, void *peer) {
    struct peer *p = peer;
    ck_assert_ptr_eq(p->job, arg);
    p->hung_up++;
    p->seat = NULL;
}

static int on_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                         struct cr_error *err) {
    (void) arg, (void) round, (void) err;
    (void) snprintf(out->addr, sizeof(out->addr), "10.0.0.1");
    out->port = (uint16_t) (7000 + ++stores_opened);
    return 0;
}

static uint64_t on_draw(void *arg) {
    (void) arg;
    return ++runs;
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg, (void) level, (void) text;
}

static const struct coordinator_actions coordinator_actions = {
    .send = on_send, .hang_up = on_hang_up, .open_store = on_open_store, .draw = on_draw,
    .other_waiting = job_table_other_waiting, .log = on_log};

static struct host_job *on_add(void *arg) {
    ck_assert_ptr_eq(arg, &table);
    if (is_out_of_memory) return NULL;
    jobs_now++;
    return calloc(1, sizeof(struct host_job));
}

static void on_drop(void *arg, struct host_job *job) {
    ck_assert_ptr_eq(arg, &table);
    ck_assert_ptr_null(job->coordinator);
    jobs_now--;
    free(job);
}

static const struct job_table_actions actions = {
    .add = on_add, .drop = on_drop, .coordinator = &coordinator_actions};

static void setup_as(bool has_right) {
    terms = (struct host_session_terms){.leads = true, .coordinator = 77,
                                        .close_timeout_ms = CLOSE_TIME};
    now_ms = 1000;
    jobs_now = stores_opened = 0;
    is_out_of_memory = false;
    job_table_init(&table, &actions, &table, has_right);
    table.terms = &terms;
}

static void setup(void) { setup_as(true); }

static void finish(void) {
    job_table_clear(&table);
    ck_assert_int_eq(jobs_now, 0);
}

/* ---- nodes ---- */

static int connect_from(struct peer *p, const char *run_id, const struct cr_ip *maker) {
    return job_table_connect(&table, now_ms, run_id, maker, false, &p->job, NULL);
}

static struct cr_ip address(uint8_t last) { return (struct cr_ip){.bytes = {10, [15] = last}}; }

/* Lets a node of a job with `nodes` nodes connect and join. */
static void join(struct peer *p, const char *run_id, uint32_t nodes) {
    struct rdzv_join j = {.host = "h", .addr = "h", .role = "default", .node_rank = -1,
                          .local_world_size = 1, .last_rank = -1, .min_nodes = nodes,
                          .max_nodes = nodes, .join_timeout_ms = 600000,
                          .last_call_timeout_ms = 30000, .close_timeout_ms = CLOSE_TIME,
                          .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3};
    struct cr_ip from = address(1);
    ck_assert_int_eq(connect_from(p, run_id, &from), 0);
    j.instance = ++instances;
    p->seat = coordinator_join(p->job->coordinator, now_ms, p, false, &j);
    ck_assert_ptr_nonnull(p->seat);
}

static void say(struct peer *p, enum rdzv_message_type type) {
    struct rdzv_message m = {.type = type};
    if (type == RDZV_LEAVE) m.leave.why = "signal 15";
    ck_assert_int_eq(coordinator_receive(p->job->coordinator, now_ms, p->seat, &m, NULL), 0);
}

static void hang_up(struct peer *p, enum rendezvous_loss how) {
    struct coordinator_seat *seat = p->seat;
    p->seat = NULL;
    if (seat != NULL && how == RENDEZVOUS_BROKEN)
        coordinator_suspend(p->job->coordinator, now_ms, seat, "reset");
    else if (seat != NULL)
        coordinator_lost(p->job->coordinator, now_ms, seat, "closed");
    job_table_disconnect(p->job, now_ms);
    p->job = NULL;
}

/* Lets time pass, and calls the table at each deadline until then. */
static void pass(int64_t ms) {
    int64_t end_ms = now_ms + ms;
    int64_t when_ms;
    while ((when_ms = job_table_deadline(&table)) <= end_ms) {
        if (when_ms > now_ms) now_ms = when_ms;
        job_table_tick(&table, now_ms);
        ck_assert_int_gt(job_table_deadline(&table), now_ms); /* a tick does all that is due */
    }
    now_ms = end_ms;
}

static enum coordinator_phase phase_of(const struct host_job *job) {
    struct coordinator_view v;
    coordinator_look(job->coordinator, &v);
    return v.phase;
}

/* ---- several jobs ---- */

START_TEST(each_run_id_has_a_job_of_its_own) {
    struct peer a = {0}, b = {0}, a2 = {0};
    setup();
    join(&a, "a", 2);
    join(&b, "b", 1);
    ck_assert_ptr_ne(a.job, b.job);
    ck_assert_int_eq(a.rounds, 0); /* the node of job b is none of job a */
    ck_assert_int_eq(b.rounds, 1);
    join(&a2, "a", 2);
    ck_assert_ptr_eq(a2.job, a.job);
    ck_assert_int_eq(a.rounds, 1);
    ck_assert_int_eq(a2.rounds, 1);
    ck_assert_uint_eq(a.port, a2.port);
    ck_assert_uint_ne(a.port, b.port);
    ck_assert_int_eq(jobs_now, 2);
    finish();
} END_TEST

START_TEST(the_end_of_one_job_changes_no_other_job) {
    struct peer a = {0}, b = {0};
    setup();
    join(&a, "a", 1);
    join(&b, "b", 1);
    struct host_job *job_b = b.job;
    say(&a, RDZV_SUCCEEDED);
    ck_assert_int_eq(a.ends, 1);
    ck_assert_int_eq(phase_of(a.job), COORDINATOR_ENDED);
    hang_up(&a, RENDEZVOUS_CLOSED);
    for (int i = 0; i < 2 * CLOSE_TIME / 5000; i++) { /* job b goes on, and job a is forgotten */
        pass(5000);
        say(&b, RDZV_BEAT);
    }
    ck_assert_ptr_null(job_table_find(&table, "a"));
    ck_assert_ptr_eq(job_table_find(&table, "b"), job_b);
    ck_assert_int_eq(phase_of(job_b), COORDINATOR_RUNNING);
    ck_assert_int_eq(b.rounds, 1);
    ck_assert_int_eq(b.ends + b.hung_up + b.goodbyes, 0);
    finish();
} END_TEST

START_TEST(a_job_that_waits_is_told_of_another_one_that_waits) {
    struct peer a = {0}, b = {0}, c = {0};
    setup();
    join(&a, "a", 2);
    ck_assert_ptr_null(job_table_other_waiting(a.job));
    join(&b, "b", 2);
    ck_assert_str_eq(job_table_other_waiting(a.job), "b");
    ck_assert_str_eq(job_table_other_waiting(b.job), "a");
    join(&c, "b", 2);
    ck_assert_ptr_null(job_table_other_waiting(a.job)); /* b runs */
    finish();
} END_TEST

/* ---- how long a job is kept ---- */

START_TEST(a_job_that_has_ended_is_kept_for_late_nodes) {
    struct peer a = {0}, late = {0};
    setup();
    join(&a, "a", 1);
    struct host_job *job = a.job;
    say(&a, RDZV_SUCCEEDED);
    hang_up(&a, RENDEZVOUS_CLOSED);
    pass(CLOSE_TIME - 1);
    ck_assert_int_eq(jobs_now, 1);
    ck_assert_int_eq(connect_from(&late, "a", NULL), 0); /* comes in time, and keeps the job */
    ck_assert_ptr_eq(late.job, job);
    pass(CLOSE_TIME);
    ck_assert_int_eq(jobs_now, 1);
    hang_up(&late, RENDEZVOUS_CLOSED);
    pass(CLOSE_TIME - 1);
    ck_assert_int_eq(jobs_now, 1);
    pass(1);
    ck_assert_int_eq(jobs_now, 0);
    ck_assert_int_eq(job_table_deadline(&table), CR_FOREVER);
    finish();
} END_TEST

START_TEST(a_job_that_nobody_has_joined_is_not_kept) {
    struct peer a = {0};
    setup();
    ck_assert_int_eq(connect_from(&a, "a", NULL), 0);
    pass(10 * CLOSE_TIME);
    ck_assert_int_eq(jobs_now, 1);
    hang_up(&a, RENDEZVOUS_CLOSED);
    ck_assert_int_eq(job_table_deadline(&table), now_ms);
    pass(0);
    ck_assert_int_eq(jobs_now, 0);
    finish();
} END_TEST

START_TEST(a_job_whose_run_was_discarded_is_kept_for_its_nodes) {
    struct peer a = {0};
    setup();
    join(&a, "a", 1);
    struct host_job *job = a.job;
    hang_up(&a, RENDEZVOUS_CLOSED);
    ck_assert_int_eq(phase_of(job), COORDINATOR_EMPTY);
    pass(CLOSE_TIME - 1);
    ck_assert_ptr_eq(job_table_find(&table, "a"), job);
    pass(1);
    ck_assert_int_eq(jobs_now, 0);
    finish();
} END_TEST

/* Returns a job of one node, whose connection was reset. */
static struct host_job *job_whose_node_may_resume(const char *run_id) {
    struct peer p = {0};
    join(&p, run_id, 1);
    struct host_job *job = p.job;
    hang_up(&p, RENDEZVOUS_BROKEN);
    return job;
}

START_TEST(a_job_whose_nodes_may_resume_is_kept) {
    setup();
    terms.close_timeout_ms = 100; /* much less than the lease of 15 s */
    struct host_job *job = job_whose_node_may_resume("a");
    ck_assert(job_table_awaits_nodes(&table));
    pass(10000);
    ck_assert_ptr_eq(job_table_find(&table, "a"), job);
    pass(20000); /* the lease ends, so the node is lost, and the job is EMPTY */
    ck_assert_int_eq(jobs_now, 0);
    ck_assert(!job_table_awaits_nodes(&table));
    finish();
} END_TEST

START_TEST(without_the_right_to_form_rounds_no_job_is_freed) {
    struct peer a = {0};
    setup_as(false);
    join(&a, "a", 1);
    ck_assert_int_eq(a.rounds, 0);
    ck_assert(job_table_has_held(&table));
    job_table_may_form(&table, now_ms, CR_FOREVER);
    ck_assert_int_eq(a.rounds, 1);
    ck_assert(!job_table_has_held(&table));
    job_table_may_form(&table, now_ms, 0);
    say(&a, RDZV_LEAVE);
    hang_up(&a, RENDEZVOUS_CLOSED);
    pass(10 * CLOSE_TIME);
    ck_assert_int_eq(jobs_now, 1);
    job_table_may_form(&table, now_ms, CR_FOREVER); /* its nodes have time to come back */
    pass(CLOSE_TIME - 1);
    ck_assert_int_eq(jobs_now, 1);
    pass(1);
    ck_assert_int_eq(jobs_now, 0);
    finish();
} END_TEST

/* ---- how many jobs there may be ---- */

/* Makes a job from the address with this last byte, which has a connection. Returns the result of
 * job_table_connect(). */
static int crowd(uint8_t from, int number, struct peer *p) {
    char run_id[32];
    struct cr_ip maker = address(from);
    (void) snprintf(run_id, sizeof(run_id), "job %d of %d", number, from);
    return connect_from(p, run_id, &maker);
}

START_TEST(one_address_may_make_a_quarter_of_the_jobs) {
    struct peer peers[JOBS_MAX_IN_LAUNCHER] = {{0}}, more = {0};
    setup();
    terms.in_launcher = true;
    for (int i = 0; i < 64; i++) ck_assert_int_eq(crowd((uint8_t) (1 + i / 16), i, &peers[i]), 0);
    ck_assert_int_eq(crowd(1, 100, &more), -EUSERS); /* this address has its share */
    ck_assert_ptr_null(more.job);
    ck_assert_int_eq(crowd(9, 100, &more), -EUSERS); /* the host has all jobs that it takes */
    ck_assert_int_eq(crowd(1, 0, &more), 0);         /* a job that is there already */
    ck_assert_ptr_eq(more.job, peers[0].job);
    ck_assert_int_eq(connect_from(&more, "own", NULL), 0); /* the host's own node has no limit */
    ck_assert_int_eq(jobs_now, JOBS_MAX_IN_LAUNCHER + 1);
    hang_up(&peers[20], RENDEZVOUS_CLOSED); /* nobody waits for this job, so it makes room */
    ck_assert_int_eq(crowd(9, 100, &more), 0);
    ck_assert_ptr_null(job_table_find(&table, "job 20 of 2"));
    ck_assert_int_eq(jobs_now, JOBS_MAX_IN_LAUNCHER + 1);
    finish();
} END_TEST

START_TEST(an_address_with_its_share_pushes_out_no_job_of_another_one) {
    struct peer a = {0}, peers[16] = {{0}}, more = {0};
    setup();
    terms.in_launcher = true;
    join(&a, "ended", 1); /* made by the address 1 */
    say(&a, RDZV_SUCCEEDED);
    hang_up(&a, RENDEZVOUS_CLOSED);
    for (int i = 0; i < 16; i++) ck_assert_int_eq(crowd(2, i, &peers[i]), 0);
    ck_assert_int_eq(crowd(2, 16, &more), -EUSERS);
    ck_assert_ptr_nonnull(job_table_find(&table, "ended"));
    hang_up(&peers[3], RENDEZVOUS_CLOSED);
    ck_assert_int_eq(crowd(2, 16, &more), 0); /* a job of its own makes room */
    ck_assert_ptr_null(job_table_find(&table, "job 3 of 2"));
    ck_assert_ptr_nonnull(job_table_find(&table, "ended"));
    finish();
} END_TEST

START_TEST(a_job_whose_nodes_may_resume_makes_no_room) {
    struct peer peers[16] = {{0}}, more = {0};
    setup();
    terms.in_launcher = true;
    struct host_job *job = job_whose_node_may_resume("a"); /* made by the address 1 */
    for (int i = 0; i < 15; i++) ck_assert_int_eq(crowd(1, i, &peers[i]), 0);
    ck_assert_int_eq(crowd(1, 15, &more), -EUSERS);
    ck_assert_ptr_eq(job_table_find(&table, "a"), job);
    finish();
} END_TEST

START_TEST(a_job_needs_memory) {
    struct peer a = {0};
    setup();
    is_out_of_memory = true;
    ck_assert_int_eq(connect_from(&a, "a", NULL), -ENOMEM);
    ck_assert_ptr_null(a.job);
    ck_assert_ptr_null(job_table_find(&table, "a"));
    is_out_of_memory = false;
    ck_assert_int_eq(connect_from(&a, "a", NULL), 0);
    finish();
} END_TEST

/* ---- the end of the host, and other hosts ---- */

START_TEST(a_launcher_ends_its_own_job_only) {
    struct peer a = {0}, b = {0}, late = {0};
    const char *run_id = NULL;
    setup();
    table.own_run_id = "a";
    join(&a, "a", 1);
    join(&b, "b", 1);
    ck_assert_uint_eq(job_table_count_others(&table, &run_id), 1);
    ck_assert_str_eq(run_id, "b");
    job_table_abandon(&table, true, "it was told to end");
    ck_assert_int_eq(a.goodbyes, 1);
    ck_assert_int_eq(b.goodbyes + b.ends + b.hung_up, 0);
    ck_assert_int_eq(phase_of(b.job), COORDINATOR_RUNNING);
    ck_assert_int_eq(connect_from(&late, "a", NULL), -EAGAIN);
    ck_assert_ptr_eq(late.job, a.job); /* the connection counts */
    ck_assert_int_eq(connect_from(&late, "b", NULL), 0);
    say(&b, RDZV_SUCCEEDED);
    ck_assert_uint_eq(job_table_count_others(&table, &run_id), 0); /* now the host may close */
    ck_assert(terms.comes_again);
    finish();
} END_TEST

START_TEST(a_job_that_another_host_leads_is_kept_and_names_that_host) {
    struct peer a = {0};
    struct rdzv_hello hello = {.run_id = "a", .epoch = 0};
    setup();
    table.allows_heirs = true;
    ck_assert_int_eq(connect_from(&a, "a", NULL), 0);
    ck_assert(job_table_judge(&table, now_ms, &hello).serves);
    job_table_hear_leader(a.job, 9, "10.0.0.7", 4444);
    struct host_session_verdict v = job_table_judge(&table, now_ms, &hello);
    ck_assert(!v.serves);
    ck_assert_str_eq(v.addr, "10.0.0.7");
    ck_assert_uint_eq(v.port, 4444);
    ck_assert_uint_eq(v.epoch, 9);
    hang_up(&a, RENDEZVOUS_CLOSED);
    pass(10 * CLOSE_TIME);
    ck_assert_int_eq(jobs_now, 1);
    hello.run_id = "b"; /* of which nobody has said anything */
    ck_assert(job_table_judge(&table, now_ms, &hello).serves);
    finish();
} END_TEST

START_TEST(a_host_leads_the_jobs_for_which_its_coordinator_decides) {
    struct peer a = {0}, b = {0};
    uint64_t epoch = 0;
    setup();
    terms.epoch = 3;
    ck_assert(!job_table_leads(&table, "a", &epoch));
    join(&a, "a", 1);
    join(&b, "b", 2); /* waits, so it has formed no round yet */
    ck_assert(job_table_leads(&table, "a", &epoch));
    ck_assert_uint_eq(epoch, 3);
    ck_assert(!job_table_leads(&table, "b", &epoch));
    say(&a, RDZV_SUCCEEDED);
    ck_assert(!job_table_leads(&table, "a", &epoch));
    finish();
} END_TEST

int main(void) {
    Suite *s = suite_create("job_table");
    TCase *t = tcase_create("job_table");
    tcase_add_test(t, each_run_id_has_a_job_of_its_own);
    tcase_add_test(t, the_end_of_one_job_changes_no_other_job);
    tcase_add_test(t, a_job_that_waits_is_told_of_another_one_that_waits);
    tcase_add_test(t, a_job_that_has_ended_is_kept_for_late_nodes);
    tcase_add_test(t, a_job_that_nobody_has_joined_is_not_kept);
    tcase_add_test(t, a_job_whose_run_was_discarded_is_kept_for_its_nodes);
    tcase_add_test(t, a_job_whose_nodes_may_resume_is_kept);
    tcase_add_test(t, without_the_right_to_form_rounds_no_job_is_freed);
    tcase_add_test(t, one_address_may_make_a_quarter_of_the_jobs);
    tcase_add_test(t, an_address_with_its_share_pushes_out_no_job_of_another_one);
    tcase_add_test(t, a_job_whose_nodes_may_resume_makes_no_room);
    tcase_add_test(t, a_job_needs_memory);
    tcase_add_test(t, a_launcher_ends_its_own_job_only);
    tcase_add_test(t, a_job_that_another_host_leads_is_kept_and_names_that_host);
    tcase_add_test(t, a_host_leads_the_jobs_for_which_its_coordinator_decides);
    suite_add_tcase(s, t);
    return run_suite(s);
}
