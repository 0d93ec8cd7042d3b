/* Tests of agent/node, the core that decides what a node does: after each event, it must request
 * exactly the expected actions in the expected order. The workers' pages are structs in the memory
 * of the test; the time is a variable of the test. */
#include "agent/node/node.h"
#include "base/buffer.h"
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define STOP_MS     30000
#define SHUTDOWN_MS 7000
#define WORKERS     3

/* ---- the fixture: a node, and the actions that it has requested ---- */

static struct fixture {
    struct node node;
    int64_t now;
    struct channel_page pages[WORKERS];
    bool has_channel[WORKERS], is_dead[WORKERS], step_on_send[WORKERS];
    uint32_t cannot_start; /* how many of the next worker starts fail */
    struct cr_buffer asked;
} f;

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ck_assert_int_eq(cr_buffer_printf(&f.asked, "%s%s", f.asked.len > 0 ? "; " : "", text), 0);
}

static int do_start(void *arg, bool *starts) {
    char which[WORKERS * 2 + 1] = "";
    (void) arg;
    for (uint32_t i = 0; i < f.node.worker_count; i++) {
        if (!starts[i]) continue;
        (void) snprintf(which + strlen(which), 3, " %u", i % 10);
        if (f.cannot_start > 0) {
            f.cannot_start--;
            starts[i] = false;
        }
        f.pages[i] = (struct channel_page){0};
    }
    note("start%s", which);
    return 0;
}

static int do_restart(void *arg, uint32_t w) {
    (void) arg;
    note("restart %u", w);
    f.pages[w] = (struct channel_page){0};
    if (f.cannot_start == 0) return 0;
    f.cannot_start--;
    return -ENOMEM;
}

static int do_hand_over(void *arg, uint32_t w) {
    (void) arg;
    note("hand over %u", w);
    worker_page_begin_round(&f.pages[w]);
    return f.has_channel[w] ? 0 : -ENOTCONN;
}

static void do_stop(void *arg, int signum, int64_t grace_ms) {
    (void) arg;
    if (grace_ms == CR_FOREVER) note("stop %d", signum);
    else note("stop %d %" PRId64, signum, grace_ms);
}

static void do_keep(void *arg, uint32_t w, bool keep) {
    (void) arg;
    note("%s %u", keep ? "keep" : "do not keep", w);
}

static void do_signal(void *arg, uint32_t w, int signum) {
    (void) arg;
    note("signal %u %d", w, signum);
}

static void do_kill_hung(void *arg, uint32_t w) {
    (void) arg;
    note("kill hung %u", w);
}

static bool do_is_dead(void *arg, uint32_t w) {
    (void) arg;
    return f.is_dead[w];
}

/* Records a packet that the node sends. If step_on_send is set for the worker, the worker makes a
 * step just before it receives the packet. */
static int do_send_packet(void *arg, uint32_t w, const struct channel_packet *p) {
    static const char *const names[] = {"CHANGE", "STOP_AT", "OVER"};
    (void) arg;
    if (!f.has_channel[w]) return -ENOTCONN;
    if (f.step_on_send[w]) f.pages[w].step++;
    note("send %u %s", w, names[p->type - CHANNEL_CHANGE]);
    return 0;
}

static int do_ask_dump(void *arg, uint32_t w, uint64_t dump_id) {
    (void) arg;
    if (!f.has_channel[w]) return -ENOTCONN;
    note("ask dump %u %" PRIu64, w, dump_id);
    return 0;
}

static void do_read_page(void *arg, uint32_t w, struct worker_progress *out) {
    (void) arg;
    *out = (struct worker_progress){0};
    if (f.has_channel[w]) worker_page_read(&f.pages[w], out);
}

static void do_join(void *arg) { (void) arg, note("join"); }
static void do_failed(void *arg, uint64_t round, enum rendezvous_blame blame) {
    (void) arg;
    static const char *const words[] = {"", " (killed)", " (final)", " (final, killed)"};
    note("failed %" PRIu64 "%s", round, words[blame]);
}
static void do_succeeded(void *arg, uint64_t r) { (void) arg, note("succeeded %" PRIu64, r); }
static void do_leave(void *arg) { (void) arg, note("leave"); }
static void do_finish(void *arg) { (void) arg, note("finish"); }

static void do_notice(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why) {
    (void) arg;
    note("notice %d %" PRId64 " '%s'", (int) kind, left_ms, why);
}

static void do_change_answer(void *arg, uint64_t id, int64_t step, int64_t needs_ms) {
    (void) arg;
    note("answer %" PRIu64 " step %" PRId64 " needs %" PRId64, id, step, needs_ms);
}

static void do_change_ready(void *arg, uint64_t id) { (void) arg, note("ready %" PRIu64, id); }

static char last_line[512]; /* the last line that the node has logged */

static void do_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg, (void) level;
    (void) snprintf(last_line, sizeof(last_line), "%s", text);
}

static const struct node_actions actions = {
    .restart = do_restart,
    .start = do_start, .hand_over = do_hand_over, .stop = do_stop, .keep = do_keep,
    .signal = do_signal, .kill_hung = do_kill_hung, .is_dead = do_is_dead,
    .send_packet = do_send_packet, .ask_dump = do_ask_dump, .read_page = do_read_page,
    .join = do_join, .failed = do_failed, .succeeded = do_succeeded, .leave = do_leave,
    .notice = do_notice, .change_answer = do_change_answer, .change_ready = do_change_ready,
    .finish = do_finish, .log = do_log};

/* Checks that the node has requested exactly these actions since the last ASKED(). */
#define ASKED(text)                                                                                \
    do {                                                                                           \
        ck_assert_str_eq(f.asked.len > 0 ? f.asked.data : "", text);                               \
        cr_buffer_clear(&f.asked);                                                                 \
    } while (0)

static void forget_what_it_asked(void) { cr_buffer_clear(&f.asked); }

static void open_with(const struct node_policy *policies) {
    struct node_settings settings = {.workers = WORKERS, .policies = policies,
                                     .stop_timeout_ms = STOP_MS,
                                     .shutdown_timeout_ms = SHUTDOWN_MS,
                                     .log_level = CR_LOG_DEBUG};
    memset(&f, 0, sizeof(f));
    f.now = 1000;
    ck_assert_int_eq(node_init(&f.node, &settings, &actions, NULL), 0);
}

static void fixture_open(void) { open_with(NULL); }

static void fixture_close(void) {
    node_done(&f.node);
    cr_buffer_done(&f.asked);
}

/* ---- events, as the node receives them ---- */

static void round_begins(uint64_t round) {
    struct rendezvous_round r = {.round = round, .first_rank = 10};
    node_round(&f.node, f.now, &r);
}
static void exits(uint32_t w, int code) { node_worker_exited(&f.node, f.now, w, code, 0); }
static void dies_of_our_signal(uint32_t w) { node_worker_exited(&f.node, f.now, w, -15, 15); }
static void processes_are_gone(void) { node_processes_gone(&f.node, f.now); }
static void rejoins(uint32_t w) { node_worker_rejoin(&f.node, f.now, w); }
static void round_is_over(void) { node_stop(&f.node, f.now, CR_FOREVER); }
static void job_ends(enum rendezvous_outcome how) { node_end(&f.node, f.now, how); }

static void time_passes(int64_t ms) {
    f.now += ms;
    node_tick(&f.node, f.now);
}

static void change_comes(uint64_t id) {
    struct rendezvous_change change = {
        .id = id, .kind = RENDEZVOUS_CHANGE_JOIN, .left_ms = 5000, .why = "1 more node"};
    node_change(&f.node, f.now, &change);
}

static void agreed_step_is(uint64_t id, uint64_t step) {
    node_change_at(&f.node, f.now, id, step, 4000);
}

/* Sets the page of worker `w` to a count of `step` steps. */
static void is_at_step(uint32_t w, uint64_t step) {
    f.has_channel[w] = true;
    f.pages[w].step = step;
}

static void can_rejoin(uint32_t w) {
    f.has_channel[w] = true;
    f.pages[w].can_rejoin = 1;
}

static void stops_for(uint32_t w, uint64_t change) { f.pages[w].stopped_for = change; }

/* Brings the node to this state: all workers run in round 0. */
static void running(void) {
    round_begins(0);
    ASKED("start 0 1 2");
}

/* Brings the node to this state: round 0 is over, worker 0 is parked, all others have ended. */
static void one_is_parked(void) {
    running();
    can_rejoin(0);
    round_is_over();
    rejoins(0);
    dies_of_our_signal(1);
    dies_of_our_signal(2);
    processes_are_gone();
    ASKED("send 0 OVER; keep 0; stop 15 30000; join");
}

/* ---- a round without events ---- */

START_TEST(test_all_workers_end_well) {
    running();
    exits(0, 0);
    exits(2, 0);
    ASKED("");
    exits(1, 0);
    ASKED("succeeded 0");
    job_ends(RENDEZVOUS_SUCCEEDED);
    ASKED("stop 15 7000"); /* ends the processes that the workers have left behind */
    processes_are_gone();
    ASKED("finish");
    ck_assert_int_eq(f.node.group.ending, GROUP_SUCCEEDED);
}
END_TEST

/* The node reports a worker as killed if it died by a signal that also ends whole nodes (such as
 * SIGTERM or SIGKILL). A worker that crashed or hung is not reported as killed. */
START_TEST(test_a_worker_that_is_killed_is_reported_as_killed) {
    running();
    exits(1, -15);
    ASKED("stop 15 30000; failed 0 (killed)");
}
END_TEST

START_TEST(test_a_worker_that_crashes_is_not_reported_as_killed) {
    running();
    exits(1, -11);
    ASKED("stop 15 30000; failed 0");
}
END_TEST

START_TEST(test_a_failure_is_reported_before_the_stop) {
    running();
    exits(1, 3);
    ASKED("stop 15 30000; failed 0");
    dies_of_our_signal(0);
    dies_of_our_signal(2);
    ASKED("");
    processes_are_gone();
    ASKED("join");
    ck_assert_uint_eq(f.node.group.failures, 1);
}
END_TEST

START_TEST(test_a_worker_that_dies_of_our_signal_is_no_failure) {
    running();
    round_is_over();
    dies_of_our_signal(0);
    dies_of_our_signal(1);
    ck_assert_uint_eq(f.node.group.failures, 0);
    exits(2, 3); /* worker 2 fails by itself while the node stops the workers */
    ck_assert_uint_eq(f.node.group.failures, 1);
}
END_TEST

START_TEST(test_nothing_joins_before_all_processes_are_gone) {
    running();
    round_is_over();
    for (uint32_t w = 0; w < WORKERS; w++) dies_of_our_signal(w);
    ASKED("stop 15 30000"); /* no join yet: a child process of a worker may still live */
    processes_are_gone();
    ASKED("join");
}
END_TEST

START_TEST(test_a_worker_that_does_not_start_ends_the_job) {
    f.cannot_start = 1;
    round_begins(0);
    ASKED("start 0 1 2; leave; stop 15 30000");
    dies_of_our_signal(1);
    dies_of_our_signal(2);
    processes_are_gone();
    ASKED("finish");
    ck_assert_int_eq(f.node.group.ending, GROUP_UNSTARTED);
}
END_TEST

START_TEST(test_a_new_round_begins_without_failures) {
    running();
    exits(1, 3);
    dies_of_our_signal(0);
    dies_of_our_signal(2);
    processes_are_gone();
    round_begins(1);
    ASKED("stop 15 30000; failed 0; join; start 0 1 2");
    ck_assert_uint_eq(f.node.group.failures, 0);
}
END_TEST

/* ---- a change: freeze, agree, ready ---- */

/* The worker makes a step just before it receives CHANGE. The node must send CHANGE first and then
 * read the worker's page, so that its answer counts this step. Otherwise the agreed step could be a
 * step that the worker has made already. */
START_TEST(test_freezing_sends_first_and_reads_after) {
    running();
    is_at_step(0, 7);
    f.step_on_send[0] = true;
    change_comes(1);
    ASKED("send 0 CHANGE; answer 1 step 8 needs 0");
}
END_TEST

/* Worker 0 has made a step. Worker 1 has made none, but has said that it counts from the start:
 * both are frozen, so that both save after the same step. */
START_TEST(test_a_worker_that_counts_from_the_start_is_frozen_before_its_first_step) {
    running();
    is_at_step(0, 1);
    is_at_step(1, 0);
    f.pages[1].counts_from_start = 1;
    change_comes(1);
    ASKED("send 0 CHANGE; send 1 CHANGE; answer 1 step 1 needs 0");
}
END_TEST

START_TEST(test_the_furthest_worker_and_the_longest_need_are_answered) {
    running();
    is_at_step(0, 7);
    is_at_step(1, 9);
    f.pages[1].answer = CHANNEL_NEEDS;
    f.pages[1].needs_ms = 250;
    change_comes(1);
    ASKED("send 0 CHANGE; send 1 CHANGE; answer 1 step 9 needs 250");
}
END_TEST

START_TEST(test_a_worker_that_may_be_stopped_now_takes_no_part) {
    running();
    is_at_step(0, 7);
    f.pages[0].answer = CHANNEL_NOW;
    change_comes(1);
    ASKED("answer 1 step -1 needs 0");
}
END_TEST

START_TEST(test_the_node_is_ready_when_its_last_worker_is) {
    running();
    is_at_step(0, 7);
    is_at_step(1, 9);
    change_comes(1);
    forget_what_it_asked();
    agreed_step_is(1, 10);
    ASKED("send 0 STOP_AT; send 1 STOP_AT");
    node_worker_ready(&f.node, f.now, 0, 1);
    ASKED("");
    node_worker_ready(&f.node, f.now, 1, 1);
    ASKED("ready 1");
    node_worker_ready(&f.node, f.now, 1, 1);
    ASKED(""); /* the node reports only once that it is ready */
}
END_TEST

/* The agreed step is the first one. Workers 0 and 1 are frozen before it; worker 2 still imports
 * modules. All three make the step together, so the node is ready when all three are. */
START_TEST(test_workers_that_connect_late_make_the_first_step_too) {
    running();
    is_at_step(0, 0);
    f.pages[0].counts_from_start = 1;
    is_at_step(1, 0);
    change_comes(1);
    ASKED("send 0 CHANGE; send 1 CHANGE; answer 1 step 0 needs 0");
    agreed_step_is(1, 1);
    ASKED("send 0 STOP_AT; send 1 STOP_AT");
    node_worker_ready(&f.node, f.now, 0, 1);
    node_worker_ready(&f.node, f.now, 1, 1);
    ASKED("");
    f.has_channel[2] = true;
    node_worker_connected(&f.node, f.now, 2);
    ASKED("send 2 CHANGE; send 2 STOP_AT");
    node_worker_connected(&f.node, f.now, 2);
    ASKED("send 2 CHANGE; send 2 STOP_AT"); /* a new program, after an execve: it knows nothing */
    node_worker_ready(&f.node, f.now, 2, 1);
    ASKED("ready 1");
    node_worker_connected(&f.node, f.now, 2);
    ASKED("");
}
END_TEST

/* Worker 0 has made a step. Worker 1 has connected, but has not counted its first step yet; it must
 * hold in it, or it would go on to a third step. Worker 2 has not connected. All three make the
 * second step together. */
START_TEST(test_workers_without_a_step_make_the_second_step_too) {
    running();
    is_at_step(0, 1);
    is_at_step(1, 0);
    change_comes(1);
    ASKED("send 0 CHANGE; send 1 CHANGE; answer 1 step 1 needs 0");
    agreed_step_is(1, 2);
    ASKED("send 0 STOP_AT; send 1 STOP_AT");
    node_worker_ready(&f.node, f.now, 0, 1);
    f.has_channel[2] = true;
    node_worker_connected(&f.node, f.now, 2);
    ASKED("send 2 CHANGE; send 2 STOP_AT");
    node_worker_ready(&f.node, f.now, 2, 1);
    ASKED("");
    node_worker_ready(&f.node, f.now, 1, 1);
    ASKED("ready 1");
}
END_TEST

/* No worker of this node has made a step, but a worker of another node has made one. */
START_TEST(test_a_node_without_a_step_makes_the_second_step_too) {
    running();
    is_at_step(0, 0);
    change_comes(1);
    ASKED("send 0 CHANGE; answer 1 step -1 needs 0");
    f.has_channel[1] = true;
    node_worker_connected(&f.node, f.now, 1); /* before the agreed step is known */
    ASKED("send 1 CHANGE");
    agreed_step_is(1, 2);
    ASKED("send 0 STOP_AT; send 1 STOP_AT");
    exits(2, 0); /* never connects */
    node_worker_ready(&f.node, f.now, 0, 1);
    forget_what_it_asked();
    node_worker_ready(&f.node, f.now, 1, 1);
    ASKED("ready 1");
}
END_TEST

/* Others have made many steps, so worker 1 counts none: it is let go, and not awaited. If it stops
 * for the change nevertheless, its end is no success. */
START_TEST(test_workers_that_count_no_steps_are_let_go) {
    running();
    is_at_step(0, 7);
    is_at_step(1, 0);
    change_comes(1);
    ASKED("send 0 CHANGE; send 1 CHANGE; answer 1 step 7 needs 0");
    agreed_step_is(1, 8);
    ASKED("send 0 STOP_AT; send 1 STOP_AT");
    node_worker_ready(&f.node, f.now, 0, 1);
    ASKED("ready 1");
    stops_for(0, 1);
    stops_for(1, 1);
    for (uint32_t w = 0; w < WORKERS; w++) exits(w, 0);
    ck_assert_ptr_null(f.asked.len > 0 ? strstr(f.asked.data, "succeeded") : NULL);
}
END_TEST

START_TEST(test_late_workers_that_save_nothing_are_not_awaited) {
    running();
    is_at_step(0, 0);
    f.pages[0].counts_from_start = 1;
    is_at_step(1, 0);
    f.pages[1].answer = CHANNEL_NOW;
    change_comes(1);
    forget_what_it_asked();
    agreed_step_is(1, 1);
    ASKED("send 0 STOP_AT");
    node_worker_ready(&f.node, f.now, 0, 1);
    ASKED("");
    f.has_channel[2] = true;
    f.pages[2].answer = CHANNEL_NOW;
    node_worker_connected(&f.node, f.now, 2);
    ASKED("ready 1");
}
END_TEST

/* When a worker has made two steps, all workers that use crunrt have connected. A worker that has
 * not connected by that time never will, so the node does not wait for it. */
START_TEST(test_workers_that_never_connect_are_not_awaited_later) {
    running();
    is_at_step(0, 2);
    change_comes(1);
    forget_what_it_asked();
    agreed_step_is(1, 3);
    node_worker_ready(&f.node, f.now, 0, 1);
    ASKED("send 0 STOP_AT; ready 1");
}
END_TEST

START_TEST(test_reports_on_another_change_do_not_count) {
    running();
    is_at_step(0, 7);
    change_comes(2);
    forget_what_it_asked();
    agreed_step_is(1, 8);
    ASKED("");
    agreed_step_is(2, 8);
    node_worker_ready(&f.node, f.now, 0, 1);
    ASKED("send 0 STOP_AT");
}
END_TEST

/* A worker that exits with status 0 at the agreed step has stopped for the change. It has not
 * completed its program, so the node must not report success. */
START_TEST(test_ending_for_a_change_is_no_success) {
    running();
    for (uint32_t w = 0; w < WORKERS; w++) is_at_step(w, 5);
    change_comes(1);
    agreed_step_is(1, 6);
    forget_what_it_asked();
    for (uint32_t w = 0; w < WORKERS; w++) {
        stops_for(w, 1);
        exits(w, 0);
    }
    ASKED("ready 1");
    round_is_over();
    processes_are_gone();
    ASKED("stop 15 30000; join");
}
END_TEST

/* Worker 1 ends before the agreed step. The node must report that it is ready, without waiting for
 * worker 1. */
START_TEST(test_a_worker_that_ends_is_not_awaited) {
    running();
    is_at_step(0, 5);
    is_at_step(1, 5);
    change_comes(1);
    agreed_step_is(1, 6);
    node_worker_ready(&f.node, f.now, 0, 1);
    forget_what_it_asked();
    exits(1, 0);
    ASKED("ready 1");
}
END_TEST

START_TEST(test_a_worker_that_parks_for_a_change_is_ready) {
    running();
    is_at_step(0, 5);
    can_rejoin(0);
    change_comes(1);
    agreed_step_is(1, 6);
    stops_for(0, 1);
    forget_what_it_asked();
    rejoins(0);
    ASKED("keep 0; ready 1");
    /* the node has no deadline, because a parked worker waits for the next round without a limit */
    ck_assert_int_eq(node_deadline(&f.node), CR_FOREVER);
}
END_TEST

START_TEST(test_a_change_ends_with_its_round) {
    running();
    is_at_step(0, 5);
    change_comes(1);
    round_is_over();
    for (uint32_t w = 0; w < WORKERS; w++) dies_of_our_signal(w);
    processes_are_gone();
    round_begins(1);
    forget_what_it_asked();
    agreed_step_is(1, 6); /* the agreed step of a change in round 0, which is over */
    ASKED("");
}
END_TEST

START_TEST(test_a_change_outside_of_a_round_is_answered_at_once) {
    change_comes(1);
    ASKED("answer 1 step -1 needs 0");
}
END_TEST

/* ---- workers that are kept ---- */

START_TEST(test_a_worker_that_can_rejoin_is_kept) {
    running();
    can_rejoin(1);
    round_is_over();
    ASKED("send 1 OVER; keep 1; stop 15 30000");
    ck_assert_int_eq(f.node.workers[1].state, WORKER_KEPT);
    dies_of_our_signal(0);
    dies_of_our_signal(2);
    processes_are_gone();
    ASKED(""); /* no join yet: worker 1 lives and is not parked */
    rejoins(1);
    ASKED("join");
}
END_TEST

START_TEST(test_the_grace_of_a_kept_worker_ends) {
    running();
    can_rejoin(1);
    node_stop(&f.node, f.now, 400);
    forget_what_it_asked();
    ck_assert_int_eq(node_deadline(&f.node), f.now + 400);
    time_passes(399);
    ASKED("");
    time_passes(1);
    ASKED("do not keep 1; stop 9 0");
    rejoins(1); /* after worker 1's grace is over */
    ASKED("");
    ck_assert_int_eq(f.node.workers[1].state, WORKER_STOPPING);
}
END_TEST

/* The node is cut off while it stops its workers. The rest of its lease is shorter than the grace,
 * so this rest becomes the limit for all workers, also for kept ones. */
START_TEST(test_a_shorter_grace_holds_for_kept_workers) {
    running();
    can_rejoin(1);
    round_is_over();
    forget_what_it_asked();
    node_stop(&f.node, f.now, 100);
    ASKED("stop 15 100");
    time_passes(100);
    ASKED("do not keep 1; stop 9 0");
}
END_TEST

START_TEST(test_no_worker_is_kept_when_the_job_ends) {
    running();
    can_rejoin(0);
    job_ends(RENDEZVOUS_FAILED);
    ASKED("stop 15 30000");
}
END_TEST

/* The job ends while workers are being stopped. The kept worker gets the signal that the other
 * workers have got when their stop began; the node requests no second stop of all workers. */
START_TEST(test_kept_workers_are_stopped_when_the_job_ends_meanwhile) {
    running();
    can_rejoin(0);
    exits(1, 1);
    ASKED("send 0 OVER; keep 0; stop 15 30000; failed 0");
    job_ends(RENDEZVOUS_FAILED);
    ASKED("do not keep 0; signal 0 15");
}
END_TEST

/* The job ends 10 ms before the grace of the stopped workers is over. Only now the kept worker is
 * stopped, too. It gets no grace of its own, but these 10 ms. After them the node must request
 * SIGKILL for it, because nothing else would end it. */
START_TEST(test_a_kept_worker_that_is_stopped_late_is_killed_in_time) {
    running();
    can_rejoin(0);
    exits(1, 1);
    forget_what_it_asked();
    f.now += STOP_MS - 10;
    job_ends(RENDEZVOUS_FAILED);
    ASKED("do not keep 0; signal 0 15");
    ck_assert_int_eq(node_deadline(&f.node), f.now + 10);
    time_passes(10);
    ASKED("stop 9 0");
}
END_TEST

/* When the job ends, all workers but the kept one are gone. The node requests a stop for the kept
 * worker, which gets the rest of the grace. */
START_TEST(test_a_late_kept_worker_gets_the_rest_of_the_grace) {
    running();
    can_rejoin(0);
    exits(1, 1);
    dies_of_our_signal(2);
    processes_are_gone();
    forget_what_it_asked();
    f.now += 20000;
    job_ends(RENDEZVOUS_FAILED);
    ASKED("do not keep 0; stop 15 10000");
    dies_of_our_signal(0);
    processes_are_gone();
    ASKED("finish");
}
END_TEST

START_TEST(test_a_worker_without_a_channel_is_stopped) {
    running();
    can_rejoin(0);
    f.has_channel[0] = false;
    round_is_over();
    ASKED("stop 15 30000");
}
END_TEST

/* ---- parked workers ---- */

START_TEST(test_a_parked_worker_is_handed_the_next_round) {
    one_is_parked();
    round_begins(1);
    ASKED("hand over 0; start 1 2; do not keep 0");
    exits(1, 0);
    exits(2, 0);
    ASKED(""); /* worker 0 runs in the new round */
    exits(0, 0);
    ASKED("succeeded 1");
}
END_TEST

START_TEST(test_a_parked_worker_that_cannot_be_reached_is_killed) {
    one_is_parked();
    f.has_channel[0] = false;
    round_begins(1);
    ASKED("hand over 0; start 1 2; do not keep 0; signal 0 9");
}
END_TEST

/* The worker died before the round was sent to it, and its exit is reported after that. It has done
 * nothing in the round, so the node must not report that all its workers have ended well. */
START_TEST(test_a_dead_parked_worker_with_exit_code_0_has_failed_in_the_next_round) {
    one_is_parked();
    f.has_channel[0] = false;
    round_begins(1);
    forget_what_it_asked();
    exits(1, 0);
    exits(2, 0);
    ASKED("");
    exits(0, 0);
    ASKED("stop 15 30000; failed 1");
}
END_TEST

START_TEST(test_a_parked_worker_that_died_is_started_again) {
    one_is_parked();
    exits(0, 1);
    ASKED("do not keep 0");
    round_begins(1);
    ASKED("start 0 1 2");
}
END_TEST

/* Parked worker 0 is dead, but its exit is not reported yet. The node must join only after that
 * report, because a dead worker cannot take part in the next round. */
START_TEST(test_a_dead_parked_worker_is_awaited) {
    running();
    can_rejoin(0);
    round_is_over();
    rejoins(0);
    dies_of_our_signal(1);
    dies_of_our_signal(2);
    f.is_dead[0] = true;
    forget_what_it_asked();
    processes_are_gone();
    ASKED("");
    exits(0, 1);
    ASKED("do not keep 0; join");
}
END_TEST

START_TEST(test_parked_workers_are_stopped_when_the_job_ends_between_rounds) {
    one_is_parked();
    job_ends(RENDEZVOUS_LOST);
    ASKED("do not keep 0; stop 15 30000");
    dies_of_our_signal(0);
    processes_are_gone();
    ASKED("finish");
}
END_TEST

/* ---- a worker parks although the round goes on (NODE_PATIENCE_MS) ---- */

START_TEST(test_parking_without_a_failure_breaks_the_round) {
    running();
    can_rejoin(1);
    rejoins(1);
    ASKED("keep 1");
    ck_assert_int_eq(node_deadline(&f.node), f.now + NODE_PATIENCE_MS);
    time_passes(NODE_PATIENCE_MS);
    ASKED("stop 15 30000; failed 0");
    ck_assert(f.node.is_broken);
    ck_assert_uint_eq(f.node.gave_up, 1);
}
END_TEST

START_TEST(test_a_failure_that_comes_in_time_is_the_reason) {
    running();
    can_rejoin(1);
    rejoins(1);
    forget_what_it_asked();
    f.now += NODE_PATIENCE_MS / 2;
    exits(0, 1);
    ASKED("stop 15 30000; failed 0");
    ck_assert_int_eq(node_deadline(&f.node), CR_FOREVER);
    time_passes(NODE_PATIENCE_MS);
    ASKED(""); /* no action: worker 0's failure was reported before, when worker 0 exited */
    ck_assert(!f.node.is_broken);
}
END_TEST

/* Worker 1 parks although the round goes on, and then exits; all other workers succeed. The node
 * must report a failure, because worker 1 has not completed its program. */
START_TEST(test_a_round_without_its_parked_worker_does_not_succeed) {
    running();
    can_rejoin(1);
    rejoins(1);
    exits(1, 0);
    exits(0, 0);
    exits(2, 0);
    ASKED("keep 1; do not keep 1");
    time_passes(NODE_PATIENCE_MS);
    ASKED("stop 15 30000; failed 0");
}
END_TEST

/* ---- hung workers and flight records ---- */

START_TEST(test_a_hung_worker_writes_its_flight_record_first) {
    running();
    f.has_channel[1] = true;
    node_worker_hung(&f.node, f.now, 1, 42, 5000);
    ASKED("ask dump 1 1");
    node_worker_dumped(&f.node, f.now, 1, 1, "/tmp/flight");
    ASKED("kill hung 1");
    exits(1, -9);
    ASKED("stop 15 30000; failed 0");
    ck_assert_int_eq(f.node.workers[1].hung_ms, 5000);
    ck_assert_uint_eq(f.node.workers[1].hung_step, 42);
}
END_TEST

START_TEST(test_a_hung_worker_has_a_second_for_its_record) {
    running();
    f.has_channel[1] = true;
    node_worker_hung(&f.node, f.now, 1, 42, 5000);
    forget_what_it_asked();
    time_passes(NODE_DUMP_MS - 1);
    ASKED("");
    time_passes(1);
    ASKED("kill hung 1");
    time_passes(NODE_DUMP_MS);
    ASKED(""); /* the worker is killed only once */
    ck_assert_int_eq(node_deadline(&f.node), CR_FOREVER);
}
END_TEST

START_TEST(test_a_hung_worker_without_a_handler_is_killed_at_once) {
    running();
    node_worker_hung(&f.node, f.now, 1, 42, 5000);
    ASKED("kill hung 1");
}
END_TEST

/* A hung worker is killed NODE_DUMP_MS after the request for its flight record, even if its node is
 * being stopped with a longer grace. */
START_TEST(test_a_stop_does_not_lengthen_the_life_of_a_hung_worker) {
    running();
    can_rejoin(1);
    node_worker_hung(&f.node, f.now, 1, 42, 5000);
    round_is_over();
    ASKED("ask dump 1 1; stop 15 30000");
    time_passes(NODE_DUMP_MS);
    ASKED("kill hung 1");
}
END_TEST

/* The agreed step must not be smaller than the steps of any worker, and a hung worker may have made
 * the most steps. */
START_TEST(test_a_hung_worker_is_asked_for_its_step_too) {
    running();
    is_at_step(0, 5);
    is_at_step(1, 9);
    node_worker_hung(&f.node, f.now, 1, 9, 60000);
    forget_what_it_asked();
    change_comes(7);
    ASKED("send 0 CHANGE; send 1 CHANGE; answer 7 step 9 needs 0");
}
END_TEST

START_TEST(test_a_record_that_was_not_asked_for_kills_nothing) {
    running();
    f.has_channel[0] = f.has_channel[1] = true;
    node_worker_hung(&f.node, f.now, 1, 42, 5000);
    forget_what_it_asked();
    node_worker_dumped(&f.node, f.now, 1, 2, "");
    node_worker_dumped(&f.node, f.now, 1, 0, "");
    node_worker_dumped(&f.node, f.now, 0, 1, "");
    ASKED("");
}
END_TEST

/* Output and processor time are observed from time to time, so a hang can be reported after the
 * workers have ended. */
START_TEST(test_a_hang_that_is_reported_after_the_workers_ended_has_no_effect) {
    running();
    for (uint32_t i = 0; i < WORKERS; i++) exits(i, 0);
    ASKED("succeeded 0");
    node_hung(&f.node, f.now);
    ASKED("");
    ck_assert_int_eq(f.node.group.state, GROUP_WAITING);
}
END_TEST

START_TEST(test_an_operator_gets_the_records_of_all) {
    running();
    f.has_channel[0] = f.has_channel[2] = true;
    node_dump(&f.node, f.now, "an operator asks");
    ASKED("ask dump 0 1; ask dump 2 1");
    node_worker_dumped(&f.node, f.now, 0, 1, "/tmp/flight");
    ck_assert_ptr_nonnull(strstr(last_line, "has written its flight record to /tmp/flight"));
    node_worker_dumped(&f.node, f.now, 2, 1, ""); /* "" means that no record was written */
    ck_assert_ptr_nonnull(strstr(last_line, "could not write its flight record"));
    ASKED(""); /* a dump for an operator kills no worker */
}
END_TEST

/* ---- notice and leaving ---- */

static void notice(int64_t left_ms) {
    node_notice(&f.node, f.now, RENDEZVOUS_CHANGE_PREEMPTION, left_ms, "spot");
}

START_TEST(test_a_notice_is_announced_and_the_round_goes_on) {
    running();
    notice(9000);
    ASKED("notice 3 9000 'preemption: spot'");
    ck_assert_int_eq(f.node.group.state, GROUP_RUNNING);
    ck_assert_int_eq(node_deadline(&f.node), f.now + 9000);
}
END_TEST

START_TEST(test_a_leaving_node_keeps_no_worker_and_does_not_come_back) {
    running();
    can_rejoin(0);
    notice(9000);
    forget_what_it_asked();
    round_is_over();
    ASKED("leave; stop 15 30000");
    for (uint32_t w = 0; w < WORKERS; w++) dies_of_our_signal(w);
    processes_are_gone();
    ASKED("finish");
    ck_assert_int_eq(f.node.group.ending, GROUP_LEFT);
}
END_TEST

/* Worker 0 was kept for the next round, but worker 1 cannot be killed. So the node leaves the job
 * and does not keep worker 0. */
START_TEST(test_a_node_whose_workers_cannot_be_killed_leaves_at_once) {
    running();
    can_rejoin(0);
    round_is_over();
    dies_of_our_signal(2);
    forget_what_it_asked();
    node_processes_unkillable(&f.node, f.now);
    ASKED("do not keep 0; leave; finish");
    ck_assert_int_eq(f.node.group.ending, GROUP_STUCK);
    ck_assert_int_eq(node_deadline(&f.node), CR_FOREVER);
}
END_TEST

/* A worker fails after this node has given notice and before the round is over. The node stops its
 * workers, and leaves instead of joining again. */
START_TEST(test_a_leaving_node_whose_worker_fails_leaves) {
    running();
    can_rejoin(0);
    notice(9000);
    forget_what_it_asked();
    exits(1, 1);
    ASKED("stop 15 30000; failed 0");
    dies_of_our_signal(0);
    dies_of_our_signal(2);
    processes_are_gone();
    ASKED("leave; finish");
}
END_TEST

START_TEST(test_a_node_leaves_by_its_deadline) {
    running();
    notice(9000);
    forget_what_it_asked();
    time_passes(8999);
    ASKED("");
    time_passes(1);
    ASKED("leave; stop 15 30000");
}
END_TEST

/* The kind of a notice comes from outside, for example from an operator's request. A node can only
 * announce that it leaves, so any kind of notice means that. */
START_TEST(test_a_notice_of_another_kind_means_that_the_node_leaves) {
    running();
    node_notice(&f.node, f.now, RENDEZVOUS_CHANGE_JOIN, 5000, "an operator asks");
    ASKED("notice 2 5000 'leaving: an operator asks'");
}
END_TEST

START_TEST(test_only_the_first_notice_counts) {
    running();
    notice(9000);
    forget_what_it_asked();
    notice(1000);
    ASKED("");
    time_passes(1000);
    ASKED("");
}
END_TEST

START_TEST(test_without_a_round_a_node_leaves_at_once) {
    notice(9000);
    ASKED("leave; finish");
}
END_TEST

START_TEST(test_a_notice_during_a_stop_is_obeyed_when_it_is_complete) {
    running();
    can_rejoin(0);
    round_is_over();
    rejoins(0);
    forget_what_it_asked();
    notice(9000);
    ASKED("leave; do not keep 0; signal 0 15");
    for (uint32_t w = 0; w < WORKERS; w++) dies_of_our_signal(w);
    processes_are_gone();
    ASKED("finish");
}
END_TEST

/* When a node is cut off from the coordinator, its workers have only the rest of its lease, even if
 * the node's notice gives them more time. */
/* The lease limits only the workers of the round in which the node was cut off. */
START_TEST(test_a_node_that_was_cut_off_gives_the_whole_grace_in_its_next_round) {
    running();
    node_stop(&f.node, f.now, 4000);
    ASKED("stop 15 4000");
    for (uint32_t i = 0; i < WORKERS; i++) dies_of_our_signal(i);
    processes_are_gone();
    round_begins(1);
    forget_what_it_asked();
    round_is_over();
    ASKED("stop 15 30000");
}
END_TEST

START_TEST(test_a_leaving_node_that_is_cut_off_has_no_more_time) {
    running();
    notice(9000);
    forget_what_it_asked();
    node_stop(&f.node, f.now, 150);
    ASKED("leave; stop 15 150");
    node_stop(&f.node, f.now, 50);
    ASKED("stop 15 50");
}
END_TEST

/* A signal such as ^C does not lengthen the time of a node that is cut off: when its lease is over,
 * the next round may begin on other nodes. */
START_TEST(test_a_signal_does_not_lengthen_the_time_of_a_node_that_is_cut_off) {
    running();
    node_stop(&f.node, f.now, 150);
    forget_what_it_asked();
    f.now += 50;
    node_signal(&f.node, f.now, SIGTERM);
    ASKED("leave; stop 15 100");
}
END_TEST

/* ---- signals to the launcher ---- */

START_TEST(test_a_signal_is_passed_on_and_kept_workers_get_it_too) {
    running();
    can_rejoin(0);
    node_signal(&f.node, f.now, SIGINT);
    ASKED("leave; stop 2 7000");
    node_signal(&f.node, f.now, SIGINT);
    ASKED("stop 15 7000"); /* a second SIGINT makes the node send SIGTERM */
}
END_TEST

START_TEST(test_a_signal_between_rounds_ends_parked_workers) {
    one_is_parked();
    node_signal(&f.node, f.now, SIGINT);
    ASKED("leave; do not keep 0; stop 2 7000");
}
END_TEST

/* ---- the tables of states ---- */

START_TEST(test_every_state_names_its_limit) {
    for (int s = 0; s < GROUP_STATE_COUNT; s++) {
        ck_assert(group_state_limit((enum group_state) s)[0] != '\0');
    }
    for (int s = 0; s < WORKER_STATE_COUNT; s++) {
        ck_assert(worker_state_limit((enum worker_state) s)[0] != '\0');
        ck_assert(worker_state_name((enum worker_state) s)[0] != '\0');
    }
    for (int s = 0; s < PART_STATE_COUNT; s++) {
        ck_assert(part_state_limit((enum part_state) s)[0] != '\0');
        ck_assert(part_state_name((enum part_state) s)[0] != '\0');
    }
}
END_TEST

/* ---- the policies of several programs ---- */

/* Opens the node once more, with a policy for each worker: worker 0 has the default policy, worker
 * 1 is restarted alone up to twice in a round, and is a service if is_service is true; the failure
 * of worker 2 ends the job. */
static void with_policies(bool is_service) {
    struct node_policy policies[WORKERS] = {
        [1] = {.on_failure = NODE_RESTARTS_ALONE, .restarts = 2, .is_service = is_service},
        [2] = {.on_failure = NODE_ENDS_JOB}};
    node_done(&f.node);
    open_with(policies);
    running();
}

START_TEST(test_a_worker_is_restarted_alone_until_its_restarts_are_used_up) {
    with_policies(false);
    exits(1, 3);
    ASKED("restart 1");
    exits(1, -9);
    ASKED("restart 1");
    ck_assert_int_eq(f.node.group.state, GROUP_RUNNING);
    ck_assert_uint_eq(f.node.group.living, 3);
    exits(1, 3);
    ASKED("stop 15 30000; failed 0");
}
END_TEST

START_TEST(test_the_next_round_begins_with_all_restarts) {
    with_policies(false);
    exits(1, 3);
    exits(1, 3);
    round_is_over();
    for (uint32_t i = 0; i < WORKERS; i++) dies_of_our_signal(i);
    processes_are_gone();
    ASKED("restart 1; restart 1; stop 15 30000; join");
    round_begins(1);
    exits(1, 3);
    ASKED("start 0 1 2; restart 1");
}
END_TEST

START_TEST(test_a_worker_that_ended_well_is_not_restarted) {
    with_policies(false);
    exits(1, 0);
    exits(0, 0);
    ASKED("");
    exits(2, 0);
    ASKED("succeeded 0");
}
END_TEST

START_TEST(test_a_worker_that_is_being_stopped_is_not_restarted) {
    with_policies(false);
    round_is_over();
    ASKED("stop 15 30000");
    exits(1, 3);
    ASKED("");
}
END_TEST

START_TEST(test_a_worker_that_cannot_be_restarted_has_failed) {
    with_policies(false);
    f.cannot_start = 1;
    exits(1, 3);
    ASKED("restart 1; stop 15 30000; failed 0");
    ck_assert_uint_eq(f.node.group.living, 2);
}
END_TEST

START_TEST(test_a_worker_restarted_during_a_change_is_not_waited_for) {
    with_policies(false);
    is_at_step(1, 5);
    change_comes(7);
    ASKED("send 1 CHANGE; answer 7 step 5 needs 0");
    agreed_step_is(7, 6);
    forget_what_it_asked();
    exits(1, 3);
    ASKED("restart 1; ready 7");
}
END_TEST

START_TEST(test_a_failure_that_ends_the_job_is_final) {
    with_policies(false);
    exits(2, 1);
    ASKED("stop 15 30000; failed 0 (final)");
}
END_TEST

START_TEST(test_a_final_failure_by_a_signal_says_so) {
    with_policies(false);
    exits(2, -9);
    ASKED("stop 15 30000; failed 0 (final, killed)");
}
END_TEST

START_TEST(test_the_round_does_not_wait_for_a_service) {
    with_policies(true);
    exits(0, 0);
    ASKED("");
    exits(2, 0);
    ASKED("succeeded 0");
    ck_assert_int_eq(f.node.group.state, GROUP_WAITING);
    exits(1, 3); /* other nodes may still need the service */
    ASKED("restart 1");
    job_ends(RENDEZVOUS_SUCCEEDED);
    ASKED("stop 15 7000");
    dies_of_our_signal(1);
    processes_are_gone();
    ASKED("finish");
    ck_assert_int_eq(f.node.group.ending, GROUP_SUCCEEDED);
}
END_TEST

/* All workers but the service have ended well, so the node's part of the round is a success. */
START_TEST(test_a_service_that_fails_while_the_node_waits_fails_no_round) {
    with_policies(true);
    exits(0, 0);
    exits(2, 0);
    ASKED("succeeded 0");
    exits(1, 3);
    exits(1, 3);
    ASKED("restart 1; restart 1");
    exits(1, 3); /* its restarts are used up */
    ASKED("");
    ck_assert_int_eq(f.node.group.state, GROUP_WAITING);
}
END_TEST

/* While a service is parked, the node does not count it among the services that run. When the job
 * ends, the node stops the parked service, and must count it as running until it has ended. */
START_TEST(test_a_parked_service_is_stopped_and_counted_when_the_job_ends) {
    with_policies(true);
    can_rejoin(1);
    round_is_over();
    rejoins(1);
    ck_assert_uint_eq(f.node.group.services, 0);
    job_ends(RENDEZVOUS_LOST);
    ck_assert_uint_eq(f.node.group.services, 1);
    for (uint32_t i = 0; i < WORKERS; i++) dies_of_our_signal(i);
    ck_assert_uint_eq(f.node.group.services, 0);
    ck_assert_uint_eq(f.node.group.living, 0);
}
END_TEST

/* The node kills a parked worker to which it cannot send the next round. This worker is not
 * restarted alone, because its policy applies to workers that fail by themselves. */
START_TEST(test_a_worker_that_the_node_killed_is_not_restarted_alone) {
    with_policies(false);
    can_rejoin(1);
    round_is_over();
    rejoins(1);
    dies_of_our_signal(0);
    dies_of_our_signal(2);
    processes_are_gone();
    f.has_channel[1] = false;
    round_begins(1);
    forget_what_it_asked();
    node_worker_exited(&f.node, f.now, 1, -SIGKILL, SIGKILL);
    ASKED("stop 15 30000; failed 1");
}
END_TEST

START_TEST(test_a_service_that_ends_while_the_node_waits_changes_nothing) {
    with_policies(true);
    exits(0, 0);
    exits(2, 0);
    ASKED("succeeded 0");
    can_rejoin(1);
    rejoins(1);
    exits(1, 0);
    ASKED("");
    ck_assert_uint_eq(f.node.group.living, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("node");
    TCase *t = tcase_create("node");
    tcase_add_checked_fixture(t, fixture_open, fixture_close);
    tcase_add_test(t, test_all_workers_end_well);
    tcase_add_test(t, test_a_worker_that_is_killed_is_reported_as_killed);
    tcase_add_test(t, test_a_worker_that_crashes_is_not_reported_as_killed);
    tcase_add_test(t, test_a_failure_is_reported_before_the_stop);
    tcase_add_test(t, test_a_worker_that_dies_of_our_signal_is_no_failure);
    tcase_add_test(t, test_nothing_joins_before_all_processes_are_gone);
    tcase_add_test(t, test_a_worker_that_does_not_start_ends_the_job);
    tcase_add_test(t, test_a_new_round_begins_without_failures);
    tcase_add_test(t, test_freezing_sends_first_and_reads_after);
    tcase_add_test(t, test_the_furthest_worker_and_the_longest_need_are_answered);
    tcase_add_test(t, test_a_worker_that_counts_from_the_start_is_frozen_before_its_first_step);
    tcase_add_test(t, test_a_worker_that_may_be_stopped_now_takes_no_part);
    tcase_add_test(t, test_the_node_is_ready_when_its_last_worker_is);
    tcase_add_test(t, test_workers_that_connect_late_make_the_first_step_too);
    tcase_add_test(t, test_workers_without_a_step_make_the_second_step_too);
    tcase_add_test(t, test_a_node_without_a_step_makes_the_second_step_too);
    tcase_add_test(t, test_workers_that_count_no_steps_are_let_go);
    tcase_add_test(t, test_late_workers_that_save_nothing_are_not_awaited);
    tcase_add_test(t, test_workers_that_never_connect_are_not_awaited_later);
    tcase_add_test(t, test_reports_on_another_change_do_not_count);
    tcase_add_test(t, test_ending_for_a_change_is_no_success);
    tcase_add_test(t, test_a_worker_that_ends_is_not_awaited);
    tcase_add_test(t, test_a_worker_that_parks_for_a_change_is_ready);
    tcase_add_test(t, test_a_change_ends_with_its_round);
    tcase_add_test(t, test_a_change_outside_of_a_round_is_answered_at_once);
    tcase_add_test(t, test_a_worker_that_can_rejoin_is_kept);
    tcase_add_test(t, test_the_grace_of_a_kept_worker_ends);
    tcase_add_test(t, test_a_shorter_grace_holds_for_kept_workers);
    tcase_add_test(t, test_no_worker_is_kept_when_the_job_ends);
    tcase_add_test(t, test_kept_workers_are_stopped_when_the_job_ends_meanwhile);
    tcase_add_test(t, test_a_kept_worker_that_is_stopped_late_is_killed_in_time);
    tcase_add_test(t, test_a_late_kept_worker_gets_the_rest_of_the_grace);
    tcase_add_test(t, test_a_worker_without_a_channel_is_stopped);
    tcase_add_test(t, test_a_parked_worker_is_handed_the_next_round);
    tcase_add_test(t, test_a_parked_worker_that_cannot_be_reached_is_killed);
    tcase_add_test(t, test_a_dead_parked_worker_with_exit_code_0_has_failed_in_the_next_round);
    tcase_add_test(t, test_a_parked_worker_that_died_is_started_again);
    tcase_add_test(t, test_a_dead_parked_worker_is_awaited);
    tcase_add_test(t, test_parked_workers_are_stopped_when_the_job_ends_between_rounds);
    tcase_add_test(t, test_parking_without_a_failure_breaks_the_round);
    tcase_add_test(t, test_a_failure_that_comes_in_time_is_the_reason);
    tcase_add_test(t, test_a_round_without_its_parked_worker_does_not_succeed);
    tcase_add_test(t, test_a_hung_worker_writes_its_flight_record_first);
    tcase_add_test(t, test_a_hung_worker_has_a_second_for_its_record);
    tcase_add_test(t, test_a_hung_worker_without_a_handler_is_killed_at_once);
    tcase_add_test(t, test_a_stop_does_not_lengthen_the_life_of_a_hung_worker);
    tcase_add_test(t, test_a_hung_worker_is_asked_for_its_step_too);
    tcase_add_test(t, test_a_record_that_was_not_asked_for_kills_nothing);
    tcase_add_test(t, test_a_hang_that_is_reported_after_the_workers_ended_has_no_effect);
    tcase_add_test(t, test_an_operator_gets_the_records_of_all);
    tcase_add_test(t, test_a_notice_is_announced_and_the_round_goes_on);
    tcase_add_test(t, test_a_leaving_node_keeps_no_worker_and_does_not_come_back);
    tcase_add_test(t, test_a_leaving_node_whose_worker_fails_leaves);
    tcase_add_test(t, test_a_node_whose_workers_cannot_be_killed_leaves_at_once);
    tcase_add_test(t, test_a_node_leaves_by_its_deadline);
    tcase_add_test(t, test_a_notice_of_another_kind_means_that_the_node_leaves);
    tcase_add_test(t, test_only_the_first_notice_counts);
    tcase_add_test(t, test_without_a_round_a_node_leaves_at_once);
    tcase_add_test(t, test_a_notice_during_a_stop_is_obeyed_when_it_is_complete);
    tcase_add_test(t, test_a_node_that_was_cut_off_gives_the_whole_grace_in_its_next_round);
    tcase_add_test(t, test_a_leaving_node_that_is_cut_off_has_no_more_time);
    tcase_add_test(t, test_a_signal_does_not_lengthen_the_time_of_a_node_that_is_cut_off);
    tcase_add_test(t, test_a_signal_is_passed_on_and_kept_workers_get_it_too);
    tcase_add_test(t, test_a_signal_between_rounds_ends_parked_workers);
    tcase_add_test(t, test_every_state_names_its_limit);
    tcase_add_test(t, test_a_worker_is_restarted_alone_until_its_restarts_are_used_up);
    tcase_add_test(t, test_the_next_round_begins_with_all_restarts);
    tcase_add_test(t, test_a_worker_that_ended_well_is_not_restarted);
    tcase_add_test(t, test_a_worker_that_is_being_stopped_is_not_restarted);
    tcase_add_test(t, test_a_worker_that_cannot_be_restarted_has_failed);
    tcase_add_test(t, test_a_worker_restarted_during_a_change_is_not_waited_for);
    tcase_add_test(t, test_a_failure_that_ends_the_job_is_final);
    tcase_add_test(t, test_a_final_failure_by_a_signal_says_so);
    tcase_add_test(t, test_the_round_does_not_wait_for_a_service);
    tcase_add_test(t, test_a_service_that_ends_while_the_node_waits_changes_nothing);
    tcase_add_test(t, test_a_service_that_fails_while_the_node_waits_fails_no_round);
    tcase_add_test(t, test_a_parked_service_is_stopped_and_counted_when_the_job_ends);
    tcase_add_test(t, test_a_worker_that_the_node_killed_is_not_restarted_alone);
    suite_add_tcase(s, t);
    return run_suite(s);
}
