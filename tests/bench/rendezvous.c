/* Measures a rendezvous of K nodes. The K members run in this process and the coordinator runs in
 * another process; they use the state machines of crun and real TCP connections.
 *
 *     rendezvous [K…]        default 16 256 1024 4096 10000 (as far as descriptors allow)
 *
 * Prints for each K: "join", the time from the first join until the last member has its round;
 * "1% late", the same time if 1 % of the members join 500 ms late, less these 500 ms; "push", the
 * time from a member's report of a failure until the last member has been told to stop its workers;
 * "rejoin", the time from the first join after that until the last member has the next round; and
 * the bytes and messages per member.
 *
 * "CPU us" is the processor time that the coordinator spends on one member, in microseconds: for
 * two joins on new connections, a failure, a rejoin and two ends. Each K is measured twice: without
 * a secret, and with one, so that all connections are authenticated and encrypted.
 *
 * For comparison, torchelastic publishes 10 s for 4,000 hosts. That was measured on 4,000 hosts
 * with a network; this program uses one machine for everything, and no network. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "rendezvous/host/host.h"
#include "rendezvous/member/member.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/dial/secured_stream_internal.h"
#include "rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LATE_MS 500

struct node {
    struct member *member;
    struct secured_stream *stream;
    uv_timer_t timer;
    struct member_session session;
    int late;
};

static uv_loop_t loop;
static struct secure_ring *ring; /* the secret of the job that is measured; NULL if it has none */
static const char *run_id;
static struct node *nodes;
static int count, waiting; /* number of members; number of members that have not completed the
                            * phase that is measured */
static uint64_t bytes, messages;
static int64_t mark_ns;
static double late_extra_ms;

static void die(const char *what) {
    (void) fprintf(stderr, "rendezvous: %s\n", what);
    exit(1);
}

/* ---- the coordinator's process ---- */

static uint16_t free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    CR_AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *) &a, len) < 0) die("bind");
    if (getsockname(fd, (struct sockaddr *) &a, &len) < 0) die("getsockname");
    return ntohs(a.sin_port);
}

static void host(uint16_t port, int ready_fd) {
    struct coordinator_host *h;
    struct cr_error err = {0};
    struct coordinator_host_options o = {.store_host = "127.0.0.1", .listen_host = "127.0.0.1",
                                         .listen_port = port, .close_timeout_ms = 1000,
                                         .ring = ring};
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (uv_loop_init(&loop) < 0) die("loop");
    if (coordinator_host_open(&loop, &o, &h, &err) < 0) die(err.text);
    if (write(ready_fd, "1", 1) != 1) die("pipe");
    (void) uv_run(&loop, UV_RUN_DEFAULT);
}

static pid_t start_host(uint16_t port) {
    int fds[2];
    char ready;
    if (pipe(fds) < 0) die("pipe");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        host(port, fds[1]);
        _exit(0);
    }
    (void) close(fds[1]);
    if (read(fds[0], &ready, 1) != 1) die("the coordinator did not start");
    (void) close(fds[0]);
    return pid;
}

/* Ends the coordinator's process. Returns the processor time that it has taken, in microseconds. */
static double end_host(pid_t pid) {
    struct rusage used = {0};
    (void) kill(pid, SIGKILL);
    (void) wait4(pid, NULL, 0, &used);
    return 1e6 * (double) (used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double) (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* ---- one member: the shell of rendezvous.c, with counters ---- */

static double since_mark_ms(void) { return (double) (cr_monotonic_ns() - mark_ns) / 1e6; }
static int64_t now(void) { return (int64_t) uv_now(&loop); }
static void on_timer(uv_timer_t *timer);

static void settle(struct node *n) {
    int64_t when = member_deadline(n->member), t = now();
    secured_stream_send(n->stream, n->session.out.data, n->session.out.len);
    bytes += n->session.out.len;
    cr_buffer_clear(&n->session.out);
    secured_stream_flush(n->stream);
    if (when == CR_FOREVER) (void) uv_timer_stop(&n->timer);
    else (void) uv_timer_start(&n->timer, on_timer, when > t ? (uint64_t) (when - t) : 0, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct node *n = timer->data;
    member_tick(n->member, now());
    settle(n);
}

static void on_open(void *arg, const char *own, const char *peer) {
    struct node *n = arg;
    (void) peer;
    member_session_open(&n->session, run_id);
    messages++; /* HELLO */
    member_set_addr(n->member, own);
    settle(n);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct node *n = arg;
    bytes += len;
    member_session_receive(&n->session, data, len);
    settle(n);
}

static void on_welcome(void *arg, const struct rdzv_welcome *w) {
    struct node *n = arg;
    messages++;
    member_welcomed(n->member, now(), w);
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct node *n = arg;
    messages++;
    return member_receive(n->member, now(), m, err);
}

static void on_broken(void *arg, const char *why) {
    (void) arg;
    die(why);
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    (void) text;
}

static const struct member_session_actions session_actions = {
    .on_welcome = on_welcome, .on_message = on_message, .on_broken = on_broken, .log = on_log};

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct node *n = arg;
    (void) fprintf(stderr, "rendezvous: lost: %s\n", why);
    member_disconnected(n->member, now(), how, why);
    settle(n);
}

static void on_refused(void *arg, enum secure_failure failure, const char *why) {
    (void) arg;
    (void) failure;
    die(why);
}

static const struct secured_stream_events stream_events = {on_open, on_data, on_lost, on_refused};

static void do_connect(void *arg) { secured_stream_open(((struct node *) arg)->stream); }
/* Does nothing: free_nodes() closes the connection. */
static void do_hang_up(void *arg) { (void) arg; }

static void do_send(void *arg, const struct rdzv_message *m) {
    struct node *n = arg;
    if (member_session_send(&n->session, m) < 0) die("out of memory");
    messages++;
}

static void arrived(void) {
    if (--waiting == 0) uv_stop(&loop);
}

static void do_round(void *arg, const struct rdzv_round *r) {
    (void) arg;
    if (r->group_world_size != (uint32_t) count) die("a round without all members");
    arrived();
}
static void do_stop(void *arg, int64_t grace_ms, const char *why) {
    (void) arg;
    (void) grace_ms;
    (void) why;
    arrived();
}
static void do_end(void *arg, int outcome, const char *why) {
    (void) arg;
    if (outcome != RENDEZVOUS_SUCCEEDED) die(why);
    arrived();
}
static const struct member_actions member_actions = {
    .connect = do_connect, .send = do_send, .hang_up = do_hang_up, .log = on_log,
    .on_round = do_round, .on_stop = do_stop, .on_end = do_end};

static void make_nodes(uint16_t port, const char *job) {
    run_id = job;
    nodes = calloc((size_t) count, sizeof(*nodes));
    if (nodes == NULL) die("out of memory");
    for (int i = 0; i < count; i++) {
        struct node *n = &nodes[i];
        char host_name[32];
        (void) snprintf(host_name, sizeof(host_name), "host%d", i);
        struct member_settings s = {
            .where = "bench", .facts = "", .connect_timeout_ms = 60000,
            .self = {.host = host_name, .addr = "", .pid = 1, .instance = (uint64_t) i + 1,
                     .role = "default", .node_rank = -1, .local_world_size = 8,
                     .min_nodes = (uint32_t) count, .max_nodes = (uint32_t) count,
                     .max_restarts = 3, .join_timeout_ms = 600000, .last_call_timeout_ms = 30000,
                     .close_timeout_ms = 30000, .keep_alive_interval_ms = 5000,
                     .keep_alive_max_attempt = 3}};
        member_session_init(&n->session, &session_actions, n);
        n->member = member_new(&s, &member_actions, n);
        n->stream = secured_stream_new(&loop, "127.0.0.1", port, ring, job, &stream_events, n);
        if (n->member == NULL || n->stream == NULL) die("out of memory");
        (void) uv_timer_init(&loop, &n->timer);
        n->timer.data = n;
    }
}

/* ---- the measured phases ---- */

static double run_phase(void) {
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    if (waiting != 0) die("not everybody got there");
    return since_mark_ms();
}

static void begin(int who) {
    waiting = who;
    uv_update_time(&loop);
    mark_ns = cr_monotonic_ns();
}

static void join(struct node *n) {
    member_join(n->member, now());
    settle(n);
}

static void on_late(uv_timer_t *timer) {
    (void) timer;
    for (int i = 0; i < count; i++) {
        if (nodes[i].late) join(&nodes[i]);
    }
}

static double join_all(int percent_late) {
    uv_timer_t late;
    (void) uv_timer_init(&loop, &late);
    begin(count);
    for (int i = 0; i < count; i++) {
        nodes[i].late = percent_late > 0 && i % 100 < percent_late;
        if (!nodes[i].late) join(&nodes[i]);
    }
    if (percent_late > 0) (void) uv_timer_start(&late, on_late, LATE_MS, 0);
    double ms = run_phase();
    uv_close((uv_handle_t *) &late, NULL);
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    return ms;
}

static double push_failure(uint64_t round) {
    begin(count - 1);
    member_failed(nodes[count / 2].member, now(), round, "rank 7: signal 9", false);
    settle(&nodes[count / 2]);
    return run_phase();
}

static void succeed(uint64_t round) {
    begin(count);
    for (int i = 0; i < count; i++) {
        member_succeeded(nodes[i].member, now(), round);
        settle(&nodes[i]);
    }
    (void) run_phase();
}

static void on_stream_closed(void *arg) {
    (void) arg;
    arrived();
}

static void free_nodes(void) {
    begin(count);
    for (int i = 0; i < count; i++) {
        uv_close((uv_handle_t *) &nodes[i].timer, NULL);
        secured_stream_close(nodes[i].stream, on_stream_closed, NULL);
    }
    (void) run_phase();
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 0; i < count; i++) {
        member_free(nodes[i].member);
        member_session_done(&nodes[i].session);
    }
    free(nodes);
}

static void measure_once(int k) {
    uint16_t port = free_port();
    count = k;
    pid_t pid = start_host(port);
    if (uv_loop_init(&loop) < 0) die("loop");

    make_nodes(port, "job");
    bytes = messages = 0;
    double first = join_all(0);
    double first_bytes = (double) bytes / k, first_messages = (double) messages / k;
    double push = push_failure(0);
    bytes = messages = 0;
    double again = join_all(0);
    double again_bytes = (double) bytes / k, again_messages = (double) messages / k;
    succeed(1);
    free_nodes();

    make_nodes(port, "job with stragglers");
    late_extra_ms = join_all(1) - LATE_MS;
    succeed(0);
    free_nodes();

    (void) printf("%6d  %6s  %8.1f  %10.1f  %8.1f  %8.1f  %7.0f %5.1f  %7.0f %5.1f  %8.1f\n", k,
                  ring != NULL ? "yes" : "no", first, late_extra_ms, push, again, first_bytes,
                  first_messages, again_bytes, again_messages, end_host(pid) / k);
    (void) fflush(stdout);
    (void) uv_loop_close(&loop);
}

static char token_path[] = "/tmp/crun_bench_token.XXXXXX";

/* Returns the secrets of a new token file, which main() removes. */
static struct secure_ring *make_ring(void) {
    static const char secret[] = "a secret of more than 32 characters\n";
    struct secure_ring *made = NULL;
    struct cr_error err = {0};
    CR_AUTO_FD int fd = mkstemp(token_path);
    if (fd < 0 || write(fd, secret, sizeof(secret) - 1) < 0) die("cannot write a token file");
    if (secure_ring_open(token_path, &made, &err) < 0) {
        (void) fprintf(stderr, "rendezvous: measures without a secret only: %s\n", err.text);
    }
    return made;
}

static void measure(int k) {
    static struct secure_ring *made;
    ring = NULL;
    measure_once(k);
    if (made == NULL) made = make_ring();
    ring = made;
    if (ring != NULL) measure_once(k);
}

int main(int argc, char **argv) {
    static const int usual[] = {16, 256, 1024, 4096, 10000};
    struct rlimit fds;
    cr_log_setup("rendezvous", CR_LOG_WARN);
    if (getrlimit(RLIMIT_NOFILE, &fds) < 0) die("getrlimit");
    fds.rlim_cur = fds.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &fds);
    (void) printf("milliseconds; bytes and messages a member, both directions\n"
                  "%6s  %6s  %8s  %10s  %8s  %8s  %13s  %13s  %8s\n", "K", "secret", "join",
                  "1% late -500", "push", "rejoin", "first round", "next round", "CPU us");
    for (int i = 1; i < argc; i++) {
        int64_t k;
        if (cr_parse_i64(argv[i], 2, 100000, &k) < 0) die("usage: rendezvous [K…]");
        measure((int) k);
    }
    for (size_t i = 0; argc == 1 && i < CR_ARRAY_LEN(usual); i++) {
        if ((rlim_t) usual[i] + 100 < fds.rlim_max) measure(usual[i]);
        else
            (void) printf("%6d  skipped: %llu descriptors allowed\n", usual[i],
                          (unsigned long long) fds.rlim_max);
    }
    (void) unlink(token_path);
    return 0;
}
