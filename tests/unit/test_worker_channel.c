/* Tests a worker's channel and crunrt_step() with an agent that a thread of the test simulates:
 * which agents the worker accepts, what a change does, and that no worker passes the agreed
 * step. */
#include "worker_runtime/runtime/runtime.h"

#include "base/cleanup.h"
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define TOKEN   "0123456789abcdef0123456789abcdef"
#define CHANGES 4000

/* ---- the simulated agent ---- */

struct agent {
    int listener, fd, hello_signal;
    struct channel_page *page;
    pthread_t thread;
    void (*play)(struct agent *a);
};

static struct agent the_agent;
static struct crunrt rt;

static void send_packet(struct agent *a, const struct channel_packet *p) {
    ck_assert_int_eq(send(a->fd, p, sizeof(*p), MSG_NOSIGNAL), sizeof(*p));
    if (a->page != NULL) (void) atomic_fetch_add(&a->page->bell, 1);
}

static struct channel_packet receive_packet(struct agent *a) {
    struct channel_packet p;
    ck_assert_int_eq(recv(a->fd, &p, sizeof(p), 0), sizeof(p));
    return p;
}

static void welcome(struct agent *a) {
    int page_fd = memfd_create("page", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(page_fd, CHANNEL_PAGE_SIZE), 0);
    a->page = mmap(NULL, CHANNEL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    struct channel_packet p = {.type = CHANNEL_WELCOME, .welcome = {.version = CHANNEL_VERSION}};
    struct iovec part = {&p, sizeof(p)};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &page_fd, sizeof(int));
    ck_assert_int_eq(sendmsg(a->fd, &m, 0), sizeof(p));
    (void) close(page_fd);
}

static void *run_agent(void *arg) {
    struct agent *a = arg;
    a->fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    struct channel_packet hello = receive_packet(a);
    ck_assert_uint_eq(hello.type, CHANNEL_HELLO);
    ck_assert_uint_eq(hello.hello.version, CHANNEL_VERSION);
    ck_assert_str_eq(hello.hello.token, TOKEN);
    a->hello_signal = hello.hello.dump_signal;
    a->play(a);
    cr_close_fd(&a->fd);
    return NULL;
}

static void start_agent(void (*play)(struct agent *a)) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char variable[160];
    the_agent = (struct agent){.fd = -1, .play = play};
    int n = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "crun-test-%d", (int) getpid());
    the_agent.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + (size_t) n);
    ck_assert_int_eq(bind(the_agent.listener, (struct sockaddr *) &at, len), 0);
    ck_assert_int_eq(listen(the_agent.listener, 4), 0);
    (void) snprintf(variable, sizeof(variable), "%s:" TOKEN, at.sun_path + 1);
    ck_assert_int_eq(setenv(CHANNEL_VARIABLE, variable, 1), 0);
    ck_assert_int_eq(pthread_create(&the_agent.thread, NULL, run_agent, &the_agent), 0);
}

static void join_agent(void) {
    ck_assert_int_eq(pthread_join(the_agent.thread, NULL), 0);
    (void) close(the_agent.listener);
}

static void open_channel(void) {
    rt = (struct crunrt){.channel.fd = -1};
    worker_channel_open(&rt.channel, &rt.channel_error);
}

static void open_good_channel(void (*play)(struct agent *a)) {
    start_agent(play);
    open_channel();
    ck_assert_msg(rt.channel.page != NULL, "%s", rt.channel_error.text);
}

/* ---- which agents are accepted ---- */

static void expect_no_channel(const char *variable, const char *why) {
    if (variable != NULL) ck_assert_int_eq(setenv(CHANNEL_VARIABLE, variable, 1), 0);
    open_channel();
    ck_assert_ptr_null(rt.channel.page);
    ck_assert_msg(strstr(rt.channel_error.text, why) != NULL, "'%s' lacks '%s'",
                  rt.channel_error.text, why);
    ck_assert_int_eq(crunrt_step(&rt, NULL), 0); /* a worker without a channel makes steps
                                                  * nevertheless */
    ck_assert_int_eq(crunrt_can_rejoin(&rt, 1), 0);
    ck_assert_int_eq(crunrt_watch_steps(&rt, 100), 0);
    ck_assert_int_eq(crunrt_answer_changes(&rt, CRUNRT_NEEDS, 100), 0);
    ck_assert_int_eq(crunrt_change_done(&rt), 0);
}

START_TEST(test_no_agent) {
    (void) unsetenv(CHANNEL_VARIABLE);
    expect_no_channel(NULL, "CRUN_AGENT is not set");
    expect_no_channel("", "CRUN_AGENT is not set");
    expect_no_channel("nonsense", "is not an address");
    expect_no_channel(":" TOKEN, "is not an address");
    expect_no_channel("crun-nobody:short", "is not an address");
    expect_no_channel("crun-nobody-is-here:" TOKEN, "refused");
    char longest[200];
    memset(longest, 'x', sizeof(longest));
    (void) strcpy(longest + 100, ":" TOKEN);
    expect_no_channel(longest, "is not an address");
}
END_TEST

static void refuse(struct agent *a) {
    struct channel_packet p = {.type = CHANNEL_REFUSED, .text = "for this reason"};
    send_packet(a, &p);
}
static void send_nonsense(struct agent *a) {
    struct channel_packet p = {.type = CHANNEL_ROUND};
    send_packet(a, &p);
}
static void send_half(struct agent *a) { ck_assert_int_eq(send(a->fd, "half", 4, 0), 4); }
static void welcome_without_page(struct agent *a) {
    struct channel_packet p = {.type = CHANNEL_WELCOME};
    send_packet(a, &p);
}
static void hang_up(struct agent *a) { (void) a; }

START_TEST(test_agents_that_make_no_sense) {
    static void (*const plays[])(struct agent *) = {refuse, send_nonsense, send_half,
                                                    welcome_without_page, hang_up};
    static const char *const why[] = {"for this reason", "not a valid WELCOME", "damaged packet",
                                      "not a valid WELCOME", "closed the connection"};
    for (size_t i = 0; i < CR_ARRAY_LEN(plays); i++) {
        start_agent(plays[i]);
        expect_no_channel(NULL, why[i]);
        join_agent();
    }
}
END_TEST

/* ---- changes ---- */

/* Announces many changes. As the protocol requires, the agent first sends CHANGE, and reads the
 * worker's count of steps after that; the agreed step is this count plus 1. */
static void announce_many(struct agent *a) {
    unsigned seed = 7;
    welcome(a);
    while (atomic_load(&a->page->step) == 0) {
    }
    for (uint64_t id = 1; id <= CHANGES; id++) {
        struct channel_packet p = {.type = CHANNEL_CHANGE, .id = id,
                                .change = {.kind = CHANNEL_CHANGE_JOIN, .left_ms = 60000},
                                .text = "more nodes"};
        send_packet(a, &p);
        uint64_t step = atomic_load(&a->page->step) + 1;
        for (volatile int i = rand_r(&seed) % 20000; i > 0; i--) {
        }
        p = (struct channel_packet){.type = CHANNEL_STOP_AT, .id = id,
                                 .stop_at = {.step = step, .left_ms = 60000}};
        send_packet(a, &p);
        p = receive_packet(a);
        ck_assert_uint_eq(p.type, CHANNEL_READY);
        ck_assert_uint_eq(p.id, id);
        ck_assert_uint_eq(atomic_load(&a->page->stopped_for), id);
    }
}

START_TEST(test_no_step_beyond_the_agreed_one) {
    open_good_channel(announce_many);
    for (uint64_t changes = 0; changes < CHANGES;) {
        crunrt_change change = CRUNRT_CHANGE_INIT;
        int rc = crunrt_step(&rt, &change);
        ck_assert_int_ge(rc, 0);
        if (rc != CRUNRT_CHANGE) continue;
        changes++;
        ck_assert_int_eq(change.kind, CRUNRT_CHANGE_JOIN);
        ck_assert_str_eq(change.reason, "more nodes");
        ck_assert_uint_eq(change.step, rt.channel.round.steps);
        ck_assert_uint_eq(rt.channel.round.steps, rt.channel.round.stop_at);
        /* cleared as at the beginning of a round */
        rt.channel.round.change = (struct channel_packet){0};
        rt.channel.round.stop_at = 0;
        ck_assert_int_eq(worker_channel_send(&rt.channel, CHANNEL_READY, changes), 0);
    }
    join_agent();
    ck_assert_int_eq(crunrt_step(&rt, NULL), 0); /* a worker that has lost its agent makes steps
                                                  * nevertheless */
    worker_channel_close(&rt.channel);
}
END_TEST

static void send_change(struct agent *a, uint64_t stop_at) {
    struct channel_packet p = {.type = CHANNEL_CHANGE, .id = 3, .change = {.left_ms = 60000}};
    send_packet(a, &p);
    p = (struct channel_packet){.type = CHANNEL_STOP_AT, .id = 3,
                                .stop_at = {.step = stop_at, .left_ms = 60000}};
    send_packet(a, &p);
}

static void announce_before_welcome(struct agent *a) {
    send_change(a, 2);
    welcome(a);
    struct channel_packet p = receive_packet(a);
    ck_assert_uint_eq(p.type, CHANNEL_READY);
    ck_assert_uint_eq(p.id, 3);
}

/* The agent announces a change to a worker that connects. The worker knows of it in its first step
 * although the bell has not been rung since it has the page. */
START_TEST(test_a_change_that_comes_before_welcome) {
    open_good_channel(announce_before_welcome);
    ck_assert_int_eq(crunrt_step(&rt, NULL), 0);
    ck_assert_int_eq(crunrt_step(&rt, NULL), CRUNRT_CHANGE);
    ck_assert_int_eq(crunrt_change_done(&rt), 0);
    join_agent();
    worker_channel_close(&rt.channel);
}
END_TEST

static void announce_and_die(struct agent *a) {
    struct channel_packet p = {.type = CHANNEL_CHANGE, .id = 1, .change = {.left_ms = 600000}};
    welcome(a);
    while (atomic_load(&a->page->step) == 0) {
    }
    send_packet(a, &p);
}

START_TEST(test_an_agent_that_dies_frees_the_frozen) {
    open_good_channel(announce_and_die);
    while (rt.channel.page != NULL) ck_assert_int_eq(crunrt_step(&rt, NULL), 0);
    join_agent();
}
END_TEST

static void send_over(struct agent *a) {
    struct channel_packet p = {.type = CHANNEL_OVER};
    welcome(a);
    send_packet(a, &p);
    p = receive_packet(a);
    ck_assert_uint_eq(p.type, CHANNEL_LIMIT);
    ck_assert_int_eq(atomic_load(&a->page->limit_ms), 1234);
    ck_assert_uint_eq(atomic_load(&a->page->answer), CHANNEL_NEEDS);
    ck_assert_int_eq(atomic_load(&a->page->needs_ms), 77);
    ck_assert_uint_eq(atomic_load(&a->page->can_rejoin), 1);
}

START_TEST(test_the_end_of_a_round_and_what_a_worker_says) {
    open_good_channel(send_over);
    ck_assert_int_eq(crunrt_change_done(&rt), -EINVAL);
    ck_assert_int_eq(crunrt_answer_changes(&rt, (crunrt_answer) 9, 0), -EINVAL);
    ck_assert_int_eq(crunrt_answer_changes(&rt, CRUNRT_NEEDS, -1), -EINVAL);
    ck_assert_int_eq(crunrt_watch_steps(&rt, -1), -EINVAL);
    ck_assert_int_eq(crunrt_answer_changes(&rt, CRUNRT_NEEDS, 77), 0);
    ck_assert_int_eq(crunrt_can_rejoin(&rt, 1), 0);
    int rc = 0;
    while (rc == 0) rc = crunrt_step(&rt, NULL);
    ck_assert_int_eq(rc, -ECONNRESET);
    ck_assert_ptr_nonnull(strstr(crunrt_last_error(), "the round is over"));
    ck_assert_int_eq(crunrt_watch_steps(&rt, 1234), 0);
    join_agent();
    worker_channel_close(&rt.channel);
}
END_TEST

/* ---- a thread that waits for the end of the round ---- */

struct watcher {
    pthread_t thread;
    atomic_int tid;
    int result; /* of worker_channel_wait_over() */
};

/* Lets this thread, and threads that it makes, run only on the first processor that this process
 * may use. */
static void use_one_processor(void) {
    cpu_set_t all, one;
    size_t cpu = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
}

/* A thread of the policy SCHED_IDLE runs only when the other threads of its processor sleep. */
static void *wait_over(void *arg) {
    struct watcher *w = arg;
    struct sched_param none = {0};
    ck_assert_int_eq(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    atomic_store(&w->tid, (int) syscall(SYS_gettid));
    w->result = worker_channel_wait_over(&rt.channel, cr_deadline_ms(60000));
    return NULL;
}

/* Starts the watcher, and returns when it sleeps: it waits for the end of the round. */
static void start_watcher(struct watcher *w) {
    char path[64], state = 0;
    ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_over, w), 0);
    while (atomic_load(&w->tid) == 0) (void) usleep(1000);
    (void) snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&w->tid));
    while (state != 'S') {
        (void) usleep(1000);
        FILE *stat = fopen(path, "re");
        ck_assert_ptr_nonnull(stat);
        ck_assert_int_eq(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
        (void) fclose(stat);
    }
}

static int result_of(struct watcher *w) {
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
    return w->result;
}

static void wait_for_the_end(struct agent *a) {
    struct channel_packet p;
    welcome(a);
    ck_assert_int_eq(recv(a->fd, &p, sizeof(p), 0), 0);
}

/* The watcher gets the processor only when this thread sleeps. So the packet OVER wakes the
 * watcher, but this thread has read the packet before the watcher runs. */
START_TEST(test_another_thread_reads_the_end_first) {
    struct channel_packet over = {.type = CHANNEL_OVER};
    struct watcher w = {0};
    use_one_processor();
    open_good_channel(wait_for_the_end);
    start_watcher(&w);
    atomic_store(&the_agent.page->over, 1);
    send_packet(&the_agent, &over);
    worker_channel_read_all(&rt.channel);
    ck_assert(rt.channel.round.is_over);
    ck_assert_int_eq(result_of(&w), 1);
    worker_channel_close(&rt.channel);
    join_agent();
}
END_TEST

START_TEST(test_another_thread_closes_the_channel) {
    struct watcher w = {0};
    open_good_channel(wait_for_the_end);
    start_watcher(&w);
    worker_channel_close(&rt.channel);
    ck_assert_int_eq(result_of(&w), -ENOTCONN);
    join_agent();
}
END_TEST

/* ---- the flight record ---- */

static void ask_for_record(struct agent *a) {
    welcome(a);
    while (atomic_load(&a->page->step) == 0) {
    }
    atomic_store(&a->page->dump_id, 5);
    ck_assert_int_eq(kill(getpid(), a->hello_signal), 0);
    struct channel_packet p = receive_packet(a);
    ck_assert_uint_eq(p.type, CHANNEL_DUMPED);
    ck_assert_uint_eq(p.id, 5);
    ck_assert_str_eq(p.text, ""); /* no launcher has set a path, so no record was written */
}

START_TEST(test_the_flight_record_on_request) {
    open_good_channel(ask_for_record);
    ck_assert_int_eq(crunrt_step(&rt, NULL), 0);
    join_agent();
    worker_channel_close(&rt.channel);
    /* a dump signal after the channel is closed does no harm */
    ck_assert_int_eq(kill(getpid(), the_agent.hello_signal), 0);
}
END_TEST

static void note_signal(int signum) { (void) signum; }
static void expect_no_signal(struct agent *a) {
    ck_assert_int_eq(a->hello_signal, 0);
    welcome(a);
}

START_TEST(test_a_program_that_has_the_signal_keeps_it) {
    (void) signal(SIGRTMIN + 5, note_signal);
    open_good_channel(expect_no_signal);
    join_agent();
    worker_channel_close(&rt.channel);
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_channel");
    TCase *t = tcase_create("worker_channel");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_no_agent);
    tcase_add_test(t, test_agents_that_make_no_sense);
    tcase_add_test(t, test_no_step_beyond_the_agreed_one);
    tcase_add_test(t, test_a_change_that_comes_before_welcome);
    tcase_add_test(t, test_an_agent_that_dies_frees_the_frozen);
    tcase_add_test(t, test_the_end_of_a_round_and_what_a_worker_says);
    tcase_add_test(t, test_another_thread_reads_the_end_first);
    tcase_add_test(t, test_another_thread_closes_the_channel);
    tcase_add_test(t, test_the_flight_record_on_request);
    tcase_add_test(t, test_a_program_that_has_the_signal_keeps_it);
    suite_add_tcase(s, t);
    return run_suite(s);
}
