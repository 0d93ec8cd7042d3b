/* Tests of the worker group's policy: every event in every state, first in fixed sequences, then in
 * random order. */
#include "agent/node/worker_group.h"
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>

#define STOP_MS     30000
#define SHUTDOWN_MS 7000

/* One line of a sequence: an event, and the state and the actions of the group that must follow. */
struct scene {
    enum group_event_type event;
    uint32_t count;
    int64_t ms;
    enum group_state state;
    struct group_actions want;
};

#define E(name) GROUP_EVENT_##name

static void play(const struct scene *scenes, size_t count, enum group_ending ending) {
    struct worker_group g;
    int64_t now = 1000;
    worker_group_init(&g, STOP_MS, SHUTDOWN_MS);
    for (size_t i = 0; i < count; i++) {
        const struct scene *s = &scenes[i];
        if (s->event == E(SIGNAL)) now += s->ms; /* how long after the scene before it came */
        struct group_event event = {
            .type = s->event, .count = s->count, .ms = s->ms, .now_ms = now++};
        event.after_our_signal = s->event == E(EXIT_BAD) && s->count != 0;
        struct group_actions got = worker_group_step(&g, &event);
        ck_assert_msg(g.state == s->state, "scene %zu: state %s", i, group_state_name(g.state));
        ck_assert_msg(got.report_failed == s->want.report_failed, "scene %zu: report_failed", i);
        ck_assert_msg(got.report_succeeded == s->want.report_succeeded, "scene %zu: succeeded", i);
        ck_assert_msg(got.leave == s->want.leave, "scene %zu: leave", i);
        ck_assert_msg(got.stop_signal == s->want.stop_signal, "scene %zu: signal %d", i,
                      got.stop_signal);
        ck_assert_msg(got.stop_grace_ms == s->want.stop_grace_ms, "scene %zu: grace %ld", i,
                      (long) got.stop_grace_ms);
        ck_assert_msg(got.join == s->want.join, "scene %zu: join", i);
        ck_assert_msg(got.start == s->want.start, "scene %zu: start", i);
        ck_assert_msg(got.finish == s->want.finish, "scene %zu: finish", i);
    }
    ck_assert_int_eq(g.ending, ending);
}
#define PLAY(ending, ...)                                                                          \
    do {                                                                                           \
        const struct scene scenes_[] = {__VA_ARGS__};                                              \
        play(scenes_, sizeof(scenes_) / sizeof(scenes_[0]), ending);                               \
    } while (0)

#define START     {E(ROUND), 2, 0, GROUP_RUNNING, {.start = 1}}
#define ONE_OK    {E(EXIT_OK), 0, 0, GROUP_RUNNING, {0}}
#define LAST_OK   {E(EXIT_OK), 0, 0, GROUP_WAITING, {.report_succeeded = 1}}
#define ONE_BAD                                                                                    \
    {                                                                                              \
        E(EXIT_BAD), 0, 0, GROUP_STOPPING, {                                                       \
            .report_failed = 1, .stop_signal = SIGTERM, .stop_grace_ms = STOP_MS                   \
        }                                                                                          \
    }
#define VICTIM    {E(EXIT_BAD), 1, 0, GROUP_STOPPING, {0}}
#define JOIN      {E(EMPTY), 0, 0, GROUP_JOINING, {.join = 1}}
#define FINISH    {E(EMPTY), 0, 0, GROUP_ENDED, {.finish = 1}}
#define ENDS(sig, ms) {.stop_signal = (sig), .stop_grace_ms = (ms)}
#define SIGNALLED(n, sig)                                                                          \
    {                                                                                              \
        E(SIGNAL), n, 0, GROUP_STOPPING, { .stop_signal = sig, .stop_grace_ms = SHUTDOWN_MS }      \
    }
/* A signal while the group stops, `after_ms` after the event before it; the workers get `grace_ms`
 * between SIGTERM and SIGKILL. */
#define NEXT_SIGNAL(after_ms, grace_ms)                                                            \
    {                                                                                              \
        E(SIGNAL), SIGINT, after_ms, GROUP_STOPPING, {                                             \
            .stop_signal = SIGTERM, .stop_grace_ms = grace_ms                                      \
        }                                                                                          \
    }
#define FIRST_SIGNAL(n)                                                                            \
    {                                                                                              \
        E(SIGNAL), n, 0, GROUP_STOPPING, {                                                         \
            .leave = 1, .stop_signal = (int) (n), .stop_grace_ms = SHUTDOWN_MS                     \
        }                                                                                          \
    }

START_TEST(test_all_end_well) {
    PLAY(GROUP_SUCCEEDED, START, ONE_OK, LAST_OK,
         {E(END_OK), 0, 0, GROUP_STOPPING, {.stop_signal = SIGTERM, .stop_grace_ms = SHUTDOWN_MS}},
         FINISH);
}
END_TEST

START_TEST(test_failure_restarts) {
    PLAY(GROUP_SUCCEEDED, START, ONE_BAD, VICTIM, JOIN, START, ONE_OK, LAST_OK,
         {E(END_OK), 0, 0, GROUP_STOPPING, {.stop_signal = SIGTERM, .stop_grace_ms = SHUTDOWN_MS}},
         FINISH);
}
END_TEST

START_TEST(test_early_success_is_remembered) {
    PLAY(GROUP_GOES_ON, START, ONE_OK, ONE_BAD, JOIN);
}
END_TEST

START_TEST(test_budget_spent_before_and_after_empty) {
    PLAY(GROUP_FAILED, START, ONE_BAD, {E(END_FAILED), 0, 0, GROUP_STOPPING, {0}}, VICTIM, FINISH);
    PLAY(GROUP_FAILED, START, ONE_BAD, VICTIM, JOIN,
         {E(END_FAILED), 0, 0, GROUP_ENDED, {.finish = 1}});
}
END_TEST

START_TEST(test_peer_stops_us) {
    PLAY(GROUP_GOES_ON, START,
         {E(STOP), 0, CR_FOREVER, GROUP_STOPPING, ENDS(SIGTERM, STOP_MS)},
         VICTIM, VICTIM, JOIN, START);
    /* All workers ended well, and the group waits for other nodes. A STOP comes, so the group
     * starts all its workers again in the next round. */
    PLAY(GROUP_GOES_ON, START, ONE_OK, LAST_OK,
         {E(STOP), 0, CR_FOREVER, GROUP_STOPPING, ENDS(SIGTERM, STOP_MS)},
         JOIN, START);
}
END_TEST

START_TEST(test_failure_while_a_stop_runs_is_counted_not_told) {
    struct worker_group g;
    worker_group_init(&g, STOP_MS, SHUTDOWN_MS);
    const struct group_event events[] = {{.type = E(ROUND), .count = 3},
                                         {.type = E(STOP), .ms = CR_FOREVER},
                                         {.type = E(EXIT_BAD)},
                                         {.type = E(EXIT_BAD), .after_our_signal = true}};
    for (size_t i = 0; i < 4; i++) {
        struct group_actions a = worker_group_step(&g, &events[i]);
        ck_assert_int_eq(a.report_failed, 0);
    }
    ck_assert_uint_eq(g.failures, 1);
    ck_assert_uint_eq(g.living, 1);
}
END_TEST

START_TEST(test_cut_off_hastens) {
    PLAY(GROUP_GOES_ON, START, ONE_BAD, {E(STOP), 0, CR_FOREVER, GROUP_STOPPING, {0}},
         {E(STOP), 0, 500, GROUP_STOPPING, {.stop_signal = SIGTERM, .stop_grace_ms = 500}},
         {E(STOP), 0, 600, GROUP_STOPPING, {0}}, VICTIM, JOIN);
    PLAY(GROUP_GOES_ON, START,
         {E(STOP), 0, 400, GROUP_STOPPING, {.stop_signal = SIGTERM, .stop_grace_ms = 400}});
}
END_TEST

START_TEST(test_signals) {
    PLAY(GROUP_SIGNALED, {E(SIGNAL), SIGINT, 0, GROUP_ENDED, {.leave = 1, .finish = 1}});
    PLAY(GROUP_SIGNALED, START, FIRST_SIGNAL(SIGUSR1), VICTIM, VICTIM, FINISH);
    PLAY(GROUP_SIGNALED, START, FIRST_SIGNAL(SIGINT), NEXT_SIGNAL(0, SHUTDOWN_MS - 1), VICTIM,
         VICTIM, FINISH);
    PLAY(GROUP_SIGNALED, START, ONE_OK, LAST_OK, FIRST_SIGNAL(SIGHUP), FINISH);
}
END_TEST

START_TEST(test_later_signals_hasten_the_end) {
    PLAY(GROUP_SIGNALED, START, FIRST_SIGNAL(SIGINT), NEXT_SIGNAL(500, SHUTDOWN_MS - 501),
         NEXT_SIGNAL(600, GROUP_HASTE_MS), NEXT_SIGNAL(100, 0), VICTIM, VICTIM, FINISH);
    PLAY(GROUP_SIGNALED, START, FIRST_SIGNAL(SIGINT), NEXT_SIGNAL(4999, 2000), NEXT_SIGNAL(0, 0),
         VICTIM, VICTIM, FINISH);
}
END_TEST

START_TEST(test_signal_during_a_restart) {
    PLAY(GROUP_SIGNALED, START, ONE_BAD, FIRST_SIGNAL(SIGINT), VICTIM, FINISH);
    PLAY(GROUP_SIGNALED, START, ONE_BAD, VICTIM, JOIN,
         {E(SIGNAL), SIGTERM, 0, GROUP_ENDED, {.leave = 1, .finish = 1}});
}
END_TEST

START_TEST(test_first_known_end_stands) {
    PLAY(GROUP_FAILED, START, ONE_BAD, {E(END_FAILED), 0, 0, GROUP_STOPPING, {0}},
         SIGNALLED(SIGTERM, SIGTERM), VICTIM, FINISH);
    PLAY(GROUP_SIGNALED, START, FIRST_SIGNAL(SIGTERM), {E(END_LOST), 0, 0, GROUP_STOPPING, {0}},
         VICTIM, VICTIM, FINISH);
}
END_TEST

START_TEST(test_lost_while_running) {
    PLAY(GROUP_LOST, START,
         {E(END_LOST), 0, 0, GROUP_STOPPING, {.stop_signal = SIGTERM, .stop_grace_ms = STOP_MS}},
         VICTIM, VICTIM, FINISH);
    PLAY(GROUP_LOST, {E(END_LOST), 0, 0, GROUP_ENDED, {.finish = 1}});
}
END_TEST

START_TEST(test_a_parked_worker_is_there_in_the_next_round) {
    PLAY(GROUP_SUCCEEDED, START, ONE_BAD, {E(PARKED), 0, 0, GROUP_STOPPING, {0}}, JOIN, START,
         ONE_OK, LAST_OK, {E(END_OK), 0, 0, GROUP_STOPPING, ENDS(SIGTERM, SHUTDOWN_MS)}, FINISH);
}
END_TEST

/* When the job ends while the group is in JOINING, parked workers are alive and must be stopped. */
START_TEST(test_parked_workers_are_stopped_at_the_end) {
    PLAY(GROUP_FAILED, START, ONE_BAD, {E(PARKED), 0, 0, GROUP_STOPPING, {0}}, JOIN,
         {E(END_FAILED), 0, 0, GROUP_STOPPING, ENDS(SIGTERM, STOP_MS)},
         {E(UNPARKED), 0, 0, GROUP_STOPPING, {0}}, VICTIM, FINISH);
}
END_TEST

START_TEST(test_a_broken_round_is_a_failure) {
    PLAY(GROUP_GOES_ON, START, {E(PARKED), 0, 0, GROUP_RUNNING, {0}},
         {E(BROKEN), 0, 0, GROUP_STOPPING,
          {.report_failed = 1, .stop_signal = SIGTERM, .stop_grace_ms = STOP_MS}},
         {E(PARKED), 0, 0, GROUP_STOPPING, {0}}, JOIN, START);
}
END_TEST

/* Workers that end with status 0 because of a change have not completed their program, so the group
 * must not report success. */
START_TEST(test_making_way_is_no_success) {
    PLAY(GROUP_GOES_ON, START, {E(EXIT_READY), 0, 0, GROUP_RUNNING, {0}},
         {E(EXIT_READY), 0, 0, GROUP_RUNNING, {0}},
         {E(STOP), 0, CR_FOREVER, GROUP_STOPPING, ENDS(SIGTERM, STOP_MS)}, JOIN, START);
}
END_TEST

START_TEST(test_leaving) {
    PLAY(GROUP_LEFT, START,
         {E(LEAVE), 0, CR_FOREVER, GROUP_STOPPING,
          {.leave = 1, .stop_signal = SIGTERM, .stop_grace_ms = STOP_MS}},
         VICTIM, VICTIM, FINISH);
    PLAY(GROUP_LEFT, START, ONE_BAD, VICTIM,
         {E(LEAVE), 0, CR_FOREVER, GROUP_STOPPING, {.leave = 1}}, FINISH);
    PLAY(GROUP_LEFT, START, ONE_BAD, VICTIM, JOIN,
         {E(LEAVE), 0, CR_FOREVER, GROUP_ENDED, {.leave = 1, .finish = 1}});
}
END_TEST

START_TEST(test_start_failed) {
    PLAY(GROUP_UNSTARTED, START,
         {E(START_FAILED), 1, 0, GROUP_STOPPING,
          {.leave = 1, .stop_signal = SIGTERM, .stop_grace_ms = STOP_MS}},
         VICTIM, FINISH);
    PLAY(GROUP_UNSTARTED, START,
         {E(START_FAILED), 0, 0, GROUP_STOPPING,
          {.leave = 1, .stop_signal = SIGTERM, .stop_grace_ms = STOP_MS}},
         FINISH);
}
END_TEST

/* Workers live on after SIGKILL. The node leaves the job, so that the other nodes go on without it.
 * The result is GROUP_STUCK, unless the job has failed or a signal has ended it before. */
START_TEST(test_workers_that_cannot_be_killed) {
    PLAY(GROUP_STUCK, START, ONE_BAD,
         {E(UNKILLABLE), 0, 0, GROUP_ENDED, {.leave = 1, .finish = 1}},
         {E(END_LOST), 0, 0, GROUP_ENDED, {0}});
    PLAY(GROUP_FAILED, START, ONE_BAD, {E(END_FAILED), 0, 0, GROUP_STOPPING, {0}},
         {E(UNKILLABLE), 0, 0, GROUP_ENDED, {.finish = 1}});
    PLAY(GROUP_SIGNALED, START, FIRST_SIGNAL(SIGTERM), VICTIM,
         {E(UNKILLABLE), 0, 0, GROUP_ENDED, {.finish = 1}});
}
END_TEST

/* A model of the nursery and the rendezvous, which produces random events. The group must always
 * reach its end, report each round at most once, and never join or finish while a worker lives. */
struct model {
    struct worker_group g;
    unsigned seed;
    int64_t now;
    uint32_t living, parked;
    int ending_nursery, told, over, stop_told, left;
};

static unsigned draw(struct model *m, unsigned n) {
    m->seed = m->seed * 1664525u + 1013904223u;
    return (m->seed >> 16) % n;
}

static void feed(struct model *m, enum group_event_type type, uint32_t count, int64_t ms) {
    struct group_event e = {.type = type, .count = count, .ms = ms, .now_ms = m->now += 10};
    e.after_our_signal = type == E(EXIT_BAD) && count != 0;
    struct group_actions a = worker_group_step(&m->g, &e);
    if (a.report_failed || a.report_succeeded) {
        ck_assert(!m->told && !m->over);
        m->told = 1;
    }
    if (a.leave) {
        ck_assert(!m->over);
        m->over = 1;
    }
    if (a.stop_signal != 0) m->ending_nursery = 1;
    if (a.join) ck_assert(m->living == 0 && !m->over && !m->ending_nursery);
    if (a.finish) ck_assert(m->living + m->parked == 0 && m->g.ending != GROUP_GOES_ON);
    if (a.start) {
        m->living = count; /* includes the parked workers, which take part in the new round */
        m->parked = 0;
        m->told = m->stop_told = 0;
        if (draw(m, 20) == 0) {
            m->living = draw(m, count);
            feed(m, E(START_FAILED), m->living, 0);
        }
    }
}

/* Produces one random event of a kept or parked worker, or of a worker that ends for a change. */
static void one_event_of_stayers(struct model *m) {
    int running = m->g.state == GROUP_RUNNING;
    int may_park = running || (m->g.state == GROUP_STOPPING && m->g.ending == GROUP_GOES_ON);
    switch (draw(m, 5)) {
    case 0:
        if (m->living == 0 || !may_park) return;
        m->living--;
        m->parked++;
        feed(m, E(PARKED), 0, 0);
        return;
    case 1:
        if (m->parked == 0) return;
        m->parked--;
        feed(m, E(PARKED_GONE), 0, 0);
        return;
    case 2:
        if (m->living == 0) return;
        m->living--;
        feed(m, E(EXIT_READY), 0, 0);
        return;
    case 3:
        if (running && m->parked > 0) feed(m, E(BROKEN), 0, 0);
        return;
    default:
        if (m->left || draw(m, 20) != 0) return;
        m->left = 1;
        feed(m, E(LEAVE), 0, CR_FOREVER);
    }
}

static void one_event(struct model *m) {
    unsigned what = draw(m, 12);
    if (draw(m, 3) == 0) {
        one_event_of_stayers(m);
        return;
    }
    if (what < 6 && m->living > 0) {
        m->living--;
        int bad = draw(m, 2) == 1;
        feed(m, bad ? E(EXIT_BAD) : E(EXIT_OK), m->ending_nursery ? draw(m, 2) : 0, 0);
    } else if (what < 8 && m->ending_nursery && m->living == 0 &&
               (m->parked == 0 || m->g.ending == GROUP_GOES_ON)) {
        m->ending_nursery = 0;
        feed(m, E(EMPTY), 0, 0);
    } else if (what == 8 && draw(m, 10) == 0) {
        feed(m, E(SIGNAL), SIGINT, 0);
    } else if (m->over) {
        return;
    } else if (what == 9 && m->g.state == GROUP_JOINING) {
        feed(m, E(ROUND), 1 + draw(m, 4), 0);
    } else if (what == 10 && m->g.state != GROUP_JOINING && !m->stop_told && !m->g.failures) {
        m->stop_told = 1;
        feed(m, E(STOP), 0, draw(m, 2) ? CR_FOREVER : (int64_t) draw(m, 1000));
    } else if (what == 11 && draw(m, 20) == 0) {
        m->over = 1;
        feed(m, (enum group_event_type)(E(END_OK) + draw(m, 3)), 0, 0);
    }
}

START_TEST(test_random_orders) {
    for (unsigned seed = 1; seed <= 20000; seed++) {
        struct model m = {.seed = seed};
        worker_group_init(&m.g, STOP_MS, SHUTDOWN_MS);
        unsigned steps = 0;
        while (m.g.state != GROUP_ENDED && steps++ < 20000) one_event(&m);
        ck_assert_msg(m.g.state == GROUP_ENDED, "seed %u does not end", seed);
        ck_assert_uint_eq(m.living, 0);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_group");
    TCase *t = tcase_create("worker_group");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_all_end_well);
    tcase_add_test(t, test_failure_restarts);
    tcase_add_test(t, test_early_success_is_remembered);
    tcase_add_test(t, test_budget_spent_before_and_after_empty);
    tcase_add_test(t, test_peer_stops_us);
    tcase_add_test(t, test_failure_while_a_stop_runs_is_counted_not_told);
    tcase_add_test(t, test_cut_off_hastens);
    tcase_add_test(t, test_signals);
    tcase_add_test(t, test_later_signals_hasten_the_end);
    tcase_add_test(t, test_signal_during_a_restart);
    tcase_add_test(t, test_first_known_end_stands);
    tcase_add_test(t, test_lost_while_running);
    tcase_add_test(t, test_a_parked_worker_is_there_in_the_next_round);
    tcase_add_test(t, test_parked_workers_are_stopped_at_the_end);
    tcase_add_test(t, test_a_broken_round_is_a_failure);
    tcase_add_test(t, test_making_way_is_no_success);
    tcase_add_test(t, test_leaving);
    tcase_add_test(t, test_start_failed);
    tcase_add_test(t, test_workers_that_cannot_be_killed);
    tcase_add_test(t, test_random_orders);
    suite_add_tcase(s, t);
    return run_suite(s);
}
