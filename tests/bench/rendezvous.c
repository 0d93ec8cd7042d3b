/* Measures a rendezvous of K nodes. The K members run in this process and the coordinator runs in
 * another process; they use the state machines of crun and real TCP connections.
 *
 *     rendezvous [K…]             default 16 256 1024 4096 10000 (as far as descriptors allow)
 *     rendezvous --relays [K…]    default 10000 100000
 *     rendezvous --secret [K…]    default 10000 (as far as descriptors allow)
 *
 * With --relays, each 12,000 members have a process of their own and a relay of their own, which is
 * also a process; so K is not limited by the descriptors of one process. The times begin when all
 * processes have their members ready to connect. This prints "join", "push" and "rejoin", how many
 * bytes the coordinator's process has allocated per member (in the first round, with all
 * connections, and without what is allocated before the first join), and the processor time of
 * coordinator, relays and members, in microseconds per member: three columns for the first join
 * alone, and three for everything, from the start of the processes to their end.
 *
 * Prints for each K: "join", the time from the first join until the last member has its round;
 * "1% late", the same time if 1 % of the members join 500 ms late, less these 500 ms; "push", the
 * time from a member's report of a failure until the last member has been told to stop its workers;
 * "rejoin", the time from the first join after that until the last member has the next round; and
 * the bytes and messages per member.
 *
 * "CPU us" is the processor time that the coordinator spends on one member, in microseconds: for
 * two joins on new connections, a failure, a rejoin and two ends. The last three columns are
 * microseconds of processor time for one member in the first join only: "host", of the
 * coordinator's process; "busiest", of the thread that takes the most in the coordinator's process,
 * so K times this is the least time in which the coordinator can take K joins if it has enough
 * cores; and "members", of the process with all members, which on a cluster is spread over K nodes.
 *
 * Each K is measured twice: without a secret, and with one, so that all connections are
 * authenticated and encrypted. "--plain" as the first argument leaves out the measurement with a
 * secret.
 *
 * With --secret, only the first join is measured: PAIRS times without a secret and PAIRS times with
 * one, in turn. At most CONNECT_MAX members connect at a time, so that members that share one
 * processor complete their greeting within 10 s. This prints, in microseconds of processor time for
 * one member, the medians of "busiest", "host" and "members", and how many times more they are
 * with a secret: the median of the ratios of the pairs, and the smallest and the largest ratio.
 *
 * For comparison, torchelastic publishes 10 s for 4,000 hosts. That was measured on 4,000 hosts
 * with a network; this program uses one machine for everything, and no network. */
#include "base/cleanup.h"
#include "base/time/clock.h"
#include "base/log/log.h"
#include "base/text/parse.h"
#include "rendezvous/host/host.h"
#include "rendezvous/member/member.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/dial/secured_stream_internal.h"
#include "rendezvous/relay/relay.h"
#include "rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LATE_MS 500

struct node {
    struct member *member;
    struct secured_stream *stream;
    uv_timer_t timer;
    struct member_session session;
    int late;
    bool has_connected;
};

static uv_loop_t loop;
static struct secure_ring *ring; /* the secret of the job that is measured; NULL if it has none */
static const char *run_id;
static struct node *nodes;
/* number of members of this process; of all processes; of those in this process that have not
 * completed the phase that is measured */
static int count, total, waiting;
static int first_member;   /* number of this process's first member */
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

static int asked_fd; /* where on_asked() writes */

/* Handles SIGUSR1, by which the parent asks how much memory this process has allocated: writes the
 * number of bytes to the pipe. */
static void on_asked(uv_signal_t *handle, int signum) {
    struct mallinfo2 info = mallinfo2();
    size_t used = info.uordblks + info.hblkhd; /* blocks of the heap, and large blocks by mmap() */
    (void) handle;
    (void) signum;
    if (write(asked_fd, &used, sizeof(used)) != sizeof(used)) die("pipe");
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
    uv_signal_t asked;
    asked_fd = ready_fd;
    (void) uv_signal_init(&loop, &asked);
    (void) uv_signal_start(&asked, on_asked, SIGUSR1);
    if (write(ready_fd, "1", 1) != 1) die("pipe");
    (void) uv_run(&loop, UV_RUN_DEFAULT);
}

/* read end of the pipe on which the newest coordinator's process reports that it is ready, and how
 * many bytes it has allocated; -1 if there is no such process */
static int host_fd = -1;

/* Returns how many bytes the coordinator's process has allocated. */
static double allocated(pid_t pid) {
    size_t used;
    if (kill(pid, SIGUSR1) < 0 || read(host_fd, &used, sizeof(used)) != sizeof(used))
        die("the coordinator does not answer");
    return (double) used;
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
    if (host_fd >= 0) (void) close(host_fd);
    host_fd = fds[0];
    return pid;
}

/* Ends a process of the benchmark. Returns the processor time that it has taken, in us. */
static double end_process(pid_t pid) {
    struct rusage used = {0};
    int status;
    (void) kill(pid, SIGKILL);
    (void) wait4(pid, &status, 0, &used);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        (void) fprintf(stderr, "rendezvous: process %d has ended: status %x\n", (int) pid, status);
        exit(1);
    }
    return 1e6 * (double) (used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double) (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Processor time that the threads of one process have taken, in us. Threads that have ended are not
 * counted. */
struct cpu {
    double process; /* the sum over all threads */
    double busiest; /* the time of the thread that has taken the most */
};

/* Reads how much processor time the threads of a process have taken until now. */
static struct cpu cpu_of(pid_t pid) {
    char path[32];
    struct cpu sum = {0};
    struct dirent *entry;
    (void) snprintf(path, sizeof(path), "/proc/%d/task", (int) pid);
    DIR *tasks = opendir(path);
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        uint64_t ns = 0;
        char file[128 + sizeof(entry->d_name)];
        (void) snprintf(file, sizeof(file), "%s/%s/schedstat", path, entry->d_name);
        FILE *f = entry->d_name[0] != '.' ? fopen(file, "re") : NULL;
        if (f != NULL && fscanf(f, "%" SCNu64, &ns) != 1) ns = 0;
        if (f != NULL) (void) fclose(f);
        sum.process += (double) ns / 1e3;
        if ((double) ns / 1e3 > sum.busiest) sum.busiest = (double) ns / 1e3;
    }
    if (tasks != NULL) (void) closedir(tasks);
    return sum;
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

static int unconnected; /* with relays: number of the next member to connect */
static void join(struct node *n);

static void on_welcome(void *arg, const struct rdzv_welcome *w) {
    struct node *n = arg;
    messages++;
    member_welcomed(n->member, now(), w);
    if (unconnected > 0 && unconnected < count) join(&nodes[unconnected++]);
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

static void do_connect(void *arg) {
    struct node *n = arg;
    /* a second connect means that the first connection was lost */
    if (n->has_connected) die("a connection was lost: this machine is too busy for so many nodes");
    n->has_connected = true;
    secured_stream_open(n->stream);
}

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
    if (r->group_world_size != (uint32_t) total) die("a round without all members");
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
        (void) snprintf(host_name, sizeof(host_name), "host%d", first_member + i);
        struct member_settings s = {
            .where = "bench", .facts = "", .connect_timeout_ms = 60000,
            .self = {.host = host_name, .addr = "", .pid = 1,
                     .instance = (uint64_t) (first_member + i) + 1,
                     .role = "default", .node_rank = -1, .local_world_size = 8,
                     .min_nodes = (uint32_t) total, .max_nodes = (uint32_t) total,
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
    member_join(n->member, now(), 0);
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
    count = total = k;
    pid_t pid = start_host(port);
    if (uv_loop_init(&loop) < 0) die("loop");

    make_nodes(port, "job");
    bytes = messages = 0;
    struct cpu host_before = cpu_of(pid), own_before = cpu_of(getpid());
    double first = join_all(0);
    struct cpu host_after = cpu_of(pid), own_after = cpu_of(getpid());
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

    (void) printf("%6d  %6s  %8.1f  %10.1f  %8.1f  %8.1f  %7.0f %5.1f  %7.0f %5.1f  %8.1f  "
                  "%7.1f %7.1f %7.1f\n", k,
                  ring != NULL ? "yes" : "no", first, late_extra_ms, push, again, first_bytes,
                  first_messages, again_bytes, again_messages, end_process(pid) / k,
                  (host_after.process - host_before.process) / k,
                  (host_after.busiest - host_before.busiest) / k,
                  (own_after.process - own_before.process) / k);
    (void) fflush(stdout);
    (void) uv_loop_close(&loop);
}

/* ---- with relays ---- */

#define SHARE 12000 /* number of members in one process; they share one relay */
#define GROUPS_MAX 32

/* One process with members, and its relay: their pids and the parent's pipes to the members. */
struct group {
    pid_t relay, members;
    int orders;  /* pipe: 1 byte for each phase */
    int answers; /* pipe: for each phase, the time at which the last member was ready, in ns */
};

static void relay_process(uint16_t upstream, int port_fd) {
    struct rendezvous_relay *relay;
    struct cr_error err = {0};
    struct rendezvous_relay_options o = {.listen = {.host = "127.0.0.1"},
                                         .upstream = {.host = "127.0.0.1", .port = upstream},
                                         .auth = RENDEZVOUS_AUTH_OFF};
    uint16_t port;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (uv_loop_init(&loop) < 0) die("loop");
    if (rendezvous_relay_open(&loop, &o, &relay, &port, &err) < 0) die(err.text);
    if (write(port_fd, &port, sizeof(port)) != sizeof(port)) die("pipe");
    (void) uv_run(&loop, UV_RUN_DEFAULT);
}

/* The largest number of members of one process that connect at a time. On a cluster each node has a
 * processor of its own. Here the members of one process share one: without this limit, most of them
 * would not join within the 10 s that a node has for it. */
#define CONNECT_MAX 128

static void join_every(bool is_first) {
    int at_once = is_first && count > CONNECT_MAX ? CONNECT_MAX : count;
    begin(count);
    unconnected = is_first ? at_once : count;
    for (int i = 0; i < at_once; i++) join(&nodes[i]);
    (void) run_phase();
}

/* The first member of the first process reports a failure. All other members wait until they are
 * told to stop. */
static void fail_or_stop(void) {
    begin(first_member == 0 ? count - 1 : count);
    if (first_member == 0) {
        member_failed(nodes[0].member, now(), 0, "rank 7: signal 9", false);
        settle(&nodes[0]);
    }
    (void) run_phase();
}

/* Reports that the process has its members, or that a phase is over for all of them. */
static void answer(int answers) {
    int64_t ready_ns = cr_monotonic_ns();
    if (write(answers, &ready_ns, sizeof(ready_ns)) != sizeof(ready_ns)) die("pipe");
}

static void members_process(uint16_t port, int orders, int answers) {
    char order;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (uv_loop_init(&loop) < 0) die("loop");
    make_nodes(port, "job");
    answer(answers);
    while (read(orders, &order, 1) == 1) {
        uv_update_time(&loop);
        if (order != 'f') join_every(order == 'c');
        else fail_or_stop();
        answer(answers);
    }
    _exit(0);
}

static pid_t start_process(void (*run)(uint16_t, int, int), uint16_t port, int a, int b) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid > 0) return pid;
    run(port, a, b);
    _exit(0);
}

static void run_relay(uint16_t upstream, int port_fd, int unused) {
    (void) unused;
    relay_process(upstream, port_fd);
}

/* Starts the relay before the pipes to the members exist, and closes the members' ends of these
 * pipes. So only the members have them, and await_all() sees it if the members' process ends. */
static void start_group(struct group *g, uint16_t upstream) {
    int ports[2], orders[2], answers[2];
    uint16_t port;
    if (pipe2(ports, O_CLOEXEC) < 0) die("pipe");
    g->relay = start_process(run_relay, upstream, ports[1], -1);
    (void) close(ports[1]);
    if (read(ports[0], &port, sizeof(port)) != sizeof(port)) die("a relay did not start");
    (void) close(ports[0]);
    if (pipe2(orders, O_CLOEXEC) < 0 || pipe2(answers, O_CLOEXEC) < 0) die("pipe");
    g->members = start_process(members_process, port, orders[0], answers[1]);
    (void) close(orders[0]);
    (void) close(answers[1]);
    g->orders = orders[1];
    g->answers = answers[0];
}

/* Waits until all processes with members have answered. Returns the time of the last answer in ns;
 * since_ns if all were earlier. If one of these processes ends, this one ends, too. */
static int64_t await_all(const struct group *groups, int n, int64_t since_ns) {
    struct pollfd fds[GROUPS_MAX];
    int64_t last_ns = since_ns, ready_ns;
    for (int i = 0; i < n; i++) fds[i] = (struct pollfd){.fd = groups[i].answers, .events = POLLIN};
    for (int left = n; left > 0;) {
        if (poll(fds, (nfds_t) n, -1) < 0) die("poll");
        for (int i = 0; i < n; i++) {
            if (fds[i].revents == 0) continue;
            if (read(fds[i].fd, &ready_ns, sizeof(ready_ns)) != sizeof(ready_ns))
                die("a process of members has ended");
            if (ready_ns > last_ns) last_ns = ready_ns;
            fds[i].fd = -1; /* poll() ignores it */
            left--;
        }
    }
    return last_ns;
}

/* Makes all processes execute the phase `order`. Returns the time in ms until the last member was
 * ready. */
static double order_all(const struct group *groups, int n, char order) {
    int64_t began_ns = cr_monotonic_ns();
    for (int i = 0; i < n; i++) {
        if (write(groups[i].orders, &order, 1) != 1) die("pipe");
    }
    return (double) (await_all(groups, n, began_ns) - began_ns) / 1e6;
}

/* Processor time in us of the processes of one run. */
struct shares {
    double coordinator, relays, members;
};

static struct shares shares_of(pid_t coordinator, const struct group *groups, int n) {
    struct shares s = {.coordinator = cpu_of(coordinator).process};
    for (int i = 0; i < n; i++) {
        s.relays += cpu_of(groups[i].relay).process;
        s.members += cpu_of(groups[i].members).process;
    }
    return s;
}

static void end_groups(const struct group *groups, int n, struct shares *used) {
    for (int i = 0; i < n; i++) {
        used->members += end_process(groups[i].members);
        used->relays += end_process(groups[i].relay);
        (void) close(groups[i].orders);
        (void) close(groups[i].answers);
    }
}

static void measure_relayed(int k) {
    struct group groups[GROUPS_MAX] = {{.orders = -1}};
    int n = (k + SHARE - 1) / SHARE;
    uint16_t port = free_port();
    if (n > GROUPS_MAX) die("too many members");
    ring = NULL;
    total = k;
    pid_t pid = start_host(port);
    for (int i = 0; i < n; i++) {
        first_member = i * SHARE;
        count = k - first_member < SHARE ? k - first_member : SHARE;
        start_group(&groups[i], port);
    }
    (void) await_all(groups, n, 0);
    double before = allocated(pid);
    struct shares start = shares_of(pid, groups, n);
    double joined = order_all(groups, n, 'c');
    struct shares join = shares_of(pid, groups, n), all = {0};
    /* wait 500 ms, in which the coordinator's process sends its output and frees the memory */
    (void) usleep(500000);
    double size = allocated(pid) - before;
    double pushed = order_all(groups, n, 'f'), again = order_all(groups, n, 'j');
    end_groups(groups, n, &all);
    all.coordinator = end_process(pid);
    (void) printf("%6d  %6d  %7.0f %7.0f %7.0f  %6.0f  %7.1f %7.1f %7.1f  %7.1f %7.1f %7.1f\n", k,
                  n, joined, pushed, again, size / k, (join.coordinator - start.coordinator) / k,
                  (join.relays - start.relays) / k, (join.members - start.members) / k,
                  all.coordinator / k, all.relays / k, all.members / k);
    (void) fflush(stdout);
}

static int relayed_main(int argc, char **argv) {
    int64_t k;
    (void) printf("milliseconds; bytes that the coordinator allocates per member; processor "
                  "time in us per member, of the first join and of all\n"
                  "%6s  %6s  %7s %7s %7s  %6s  %7s %7s %7s  %7s %7s %7s\n", "K", "relays", "join",
                  "push", "rejoin", "bytes", "coord.", "relays", "members", "coord.", "relays",
                  "members");
    (void) fflush(stdout); /* or each process would print it again */
    for (int i = 2; i < argc; i++) {
        if (cr_parse_i64(argv[i], 2, RDZV_NODES_MAX, &k) < 0) {
            die("usage: rendezvous --relays [K…]");
        }
        measure_relayed((int) k);
    }
    if (argc > 2) return 0;
    measure_relayed(10000);
    measure_relayed(100000);
    return 0;
}

/* ---- with and without a secret, in turn ---- */

#define PAIRS 5

/* What the first join of one run has cost: processor time in us for one member. The fields are
 * named like the columns. */
enum cost { BUSIEST, HOST, MEMBERS, COST_COUNT };
static double costs[2][COST_COUNT][PAIRS]; /* [0] without a secret, [1] with one */

static int compare(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void measure_join(int k, double out[COST_COUNT][PAIRS], int pair) {
    uint16_t port = free_port();
    count = total = k;
    pid_t pid = start_host(port);
    if (uv_loop_init(&loop) < 0) die("loop");
    make_nodes(port, "job");
    struct cpu host_before = cpu_of(pid), own_before = cpu_of(getpid());
    join_every(true);
    struct cpu host_after = cpu_of(pid), own_after = cpu_of(getpid());
    out[BUSIEST][pair] = (host_after.busiest - host_before.busiest) / k;
    out[HOST][pair] = (host_after.process - host_before.process) / k;
    out[MEMBERS][pair] = (own_after.process - own_before.process) / k;
    unconnected = 0;
    succeed(0);
    free_nodes();
    (void) end_process(pid);
    (void) uv_loop_close(&loop);
}

static void print_cost(const char *what, enum cost cost) {
    double ratios[PAIRS];
    for (int i = 0; i < PAIRS; i++) ratios[i] = costs[1][cost][i] / costs[0][cost][i];
    qsort(ratios, PAIRS, sizeof(ratios[0]), compare);
    for (int i = 0; i < 2; i++) qsort(costs[i][cost], PAIRS, sizeof(double), compare);
    (void) printf("%-42s %8.1f %8.1f   %.2fx (%.2f to %.2f)\n", what, costs[0][cost][PAIRS / 2],
                  costs[1][cost][PAIRS / 2], ratios[PAIRS / 2], ratios[0], ratios[PAIRS - 1]);
    (void) fflush(stdout);
}

static struct secure_ring *make_ring(void);

static void measure_pairs(int k) {
    struct secure_ring *made = make_ring();
    if (made == NULL) return;
    for (int i = 0; i < PAIRS; i++) {
        ring = NULL;
        measure_join(k, costs[0], i);
        ring = made;
        measure_join(k, costs[1], i);
    }
    (void) printf("%d joins: processor time in us for a member%8s %8s   ratio\n", k, "plain",
                  "secret");
    print_cost("coordinator, busiest thread", BUSIEST);
    print_cost("coordinator, all threads", HOST);
    print_cost("members, all in one process", MEMBERS);
    secure_ring_close(made);
}

static int secret_main(int argc, char **argv, rlim_t descriptors) {
    int64_t k = 10000;
    if (argc == 2 && descriptors < 10100) k = (int64_t) descriptors - 100;
    if (argc == 2) measure_pairs((int) k);
    for (int i = 2; i < argc; i++) {
        if (cr_parse_i64(argv[i], 2, 100000, &k) < 0) die("usage: rendezvous --secret [K…]");
        measure_pairs((int) k);
    }
    return 0;
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

static bool is_plain; /* true if --plain was given, so that nothing is measured with a secret */

static void measure(int k) {
    static struct secure_ring *made;
    ring = NULL;
    measure_once(k);
    if (is_plain) return;
    if (made == NULL) made = make_ring();
    ring = made;
    if (ring != NULL) measure_once(k);
}

int main(int argc, char **argv) {
    static const int usual[] = {16, 256, 1024, 4096, 10000};
    struct rlimit fds;
    (void) signal(SIGPIPE, SIG_IGN);
    cr_log_setup("rendezvous", CR_LOG_WARN);
    if (getrlimit(RLIMIT_NOFILE, &fds) < 0) die("getrlimit");
    fds.rlim_cur = fds.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &fds);
    if (argc > 1 && strcmp(argv[1], "--relays") == 0) return relayed_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--secret") == 0) {
        int status = secret_main(argc, argv, fds.rlim_max);
        (void) unlink(token_path);
        return status;
    }
    (void) printf("milliseconds; bytes and messages a member, both directions\n"
                  "%6s  %6s  %8s  %10s  %8s  %8s  %13s  %13s  %8s  %7s %7s %7s\n", "K",
                  "secret", "join",
                  "1% late -500", "push", "rejoin", "first round", "next round", "CPU us",
                  "host", "busiest", "members");
    is_plain = argc > 1 && strcmp(argv[1], "--plain") == 0;
    int first = is_plain ? 2 : 1;
    for (int i = first; i < argc; i++) {
        int64_t k;
        if (cr_parse_i64(argv[i], 2, 100000, &k) < 0) die("usage: rendezvous [--plain] [K…]");
        measure((int) k);
    }
    for (size_t i = 0; argc == first && i < CR_ARRAY_LEN(usual); i++) {
        if ((rlim_t) usual[i] + 100 < fds.rlim_max) measure(usual[i]);
        else
            (void) printf("%6d  skipped: %llu descriptors allowed\n", usual[i],
                          (unsigned long long) fds.rlim_max);
    }
    (void) unlink(token_path);
    return 0;
}
