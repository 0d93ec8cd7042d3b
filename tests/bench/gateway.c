/* Measures what a gateway costs and saves: workers that use the round's store directly, through
 * their node's gateway, and through a gateway of a job with a secret.
 *
 *     gateway [trip|start]     default: both
 *
 * "trip": the time of one GET of 8 bytes by one worker, as median and 99th percentile, on loopback
 * and over a slow link. The slow link is a TCP proxy of this program before the store, which
 * forwards all bytes 1 ms after they have come, in both directions; a real link would also limit
 * its rate and lose packets.
 *
 * "start": 4,096 workers on 512 nodes connect, count themselves with ADD, and WAIT for a key, which
 * is SET when all are counted. The program prints the time until the last WAIT is answered; the
 * processor time of the processes with the store, the gateways and the workers; and for the store's
 * process, the number of its connections at the end, and how many KiB of resident memory it has
 * gained since its start. The gateways are connected to the store before the workers start: a node
 * opens its gateway before it executes its workers, which need longer to start than the gateway
 * needs to connect. So the columns "open" have the time and the processor time from the start of
 * the gateways' process until all 512 are connected and have carried a request. The workers of one
 * node connect one after the other, as they do when a launcher has started them together. "Relays"
 * is the floor for anything between workers and store: 512 programs of one thread that copy the
 * bytes of each worker to a connection of its own, and back.
 *
 * The store is in a process of its own, all gateways in another one; so one machine does the work
 * of 512. */
#include "base/time/clock.h"
#include "rendezvous/host/host.h"
#include "rendezvous/way/way_internal.h"
#include "store/store.h"
#include "store/wire/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NODES            512
#define WORKERS_PER_NODE 8
#define WORKERS          (NODES * WORKERS_PER_NODE)
#define TRIPS            4000
#define LINK_NS          1000000 /* delay of the slow link in each direction, in ns */
#define ROUND            7
#define INCARNATION      42

static uv_loop_t loop;
static struct secure_ring *ring; /* NULL = the job has no secret */

static void die(const char *what) {
    (void) fprintf(stderr, "gateway: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- processes ---- */

/* Starts a process that runs `body`, which writes `count` ports to the descriptor that it is given
 * and then runs its loop for ever. Stores the ports in `ports`. */
static pid_t start(void (*body)(int fd, void *arg), void *arg, uint16_t *ports, size_t count) {
    int fds[2];
    size_t len = count * sizeof(*ports);
    if (pipe(fds) < 0) die("pipe");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(fds[1], arg);
        _exit(0);
    }
    (void) close(fds[1]);
    for (size_t at = 0; at < len;) {
        ssize_t n = read(fds[0], (char *) ports + at, len - at);
        if (n <= 0) die("a process did not start");
        at += (size_t) n;
    }
    (void) close(fds[0]);
    return pid;
}

/* Ends a process, if `pid` is not 0. Returns the processor time that it has taken, in ms. */
static double end(pid_t pid) {
    struct rusage used = {0};
    if (pid <= 0) return 0;
    (void) kill(pid, SIGKILL);
    (void) wait4(pid, NULL, 0, &used);
    return 1e3 * (double) (used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-3 * (double) (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Returns the processor time that a process has taken so far, in ms. */
static double cpu_ms(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0) die("clock");
    return 1e3 * (double) t.tv_sec + 1e-6 * (double) t.tv_nsec;
}

static void tell(int fd, const void *data, size_t len) {
    if (write(fd, data, len) != (ssize_t) len) die("pipe");
}

static void run_store(int fd, void *arg) {
    struct cr_error err = {0};
    uint16_t port = 0;
    const struct store_offer_options o = {.listen_host = "127.0.0.1", .has_secret = ring != NULL,
                                          .serves_gateways = true, .ring = ring,
                                          .run_id = "bench"};
    (void) arg;
    if (uv_loop_init(&loop) < 0) die("loop");
    struct store_offer *offer = store_offer_new(&o, &err);
    if (offer == NULL || store_offer_port(offer, &port, &err) < 0) die(err.text);
    store_offer_settle(offer, port, true);
    (void) store_offer_begin_round(offer, INCARNATION, ROUND);
    tell(fd, &port, sizeof(port));
    for (;;) (void) pause();
}

struct gateways {
    uint16_t store_port;
    int count;
};

static void run_gateways(int fd, void *arg) {
    const struct gateways *g = arg;
    struct way way = {.loop = &loop, .ring = ring};
    struct cr_error err = {0};
    uint16_t ports[NODES];
    const struct way_gateway_options o = {.host = "127.0.0.1", .port = g->store_port,
                                          .run_id = "bench", .incarnation = INCARNATION,
                                          .round = ROUND};
    if (uv_loop_init(&loop) < 0) die("loop");
    for (int i = 0; i < g->count; i++) {
        struct way_gateway *one;
        if (way_gateway_open(&way, &o, &one, &ports[i], &err) < 0) die(err.text);
    }
    tell(fd, ports, (size_t) g->count * sizeof(*ports));
    (void) uv_run(&loop, UV_RUN_DEFAULT);
}

/* ---- sockets ---- */

static int listen_on_loopback(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *) &a, len) < 0 || listen(fd, 100) < 0) die("listen");
    if (getsockname(fd, (struct sockaddr *) &a, &len) < 0) die("getsockname");
    *port = ntohs(a.sin_port);
    return fd;
}

static int connect_to(uint16_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *) &a, sizeof(a)) < 0) die("connect");
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void send_all(int fd, const void *data, size_t len) {
    if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t) len) die("send");
}

static void receive_all(int fd, size_t len) {
    char bytes[64];
    if (recv(fd, bytes, len, MSG_WAITALL) != (ssize_t) len) die("receive");
}

/* ---- the slow link ---- */

struct pipe_end {
    int from, to;
};

/* Forwards bytes, each LINK_NS after it has come. Bytes that come while others are held back wait
 * for up to LINK_NS longer; a single worker sends its next request only after the reply. */
static void *carry(void *arg) {
    struct pipe_end e = *(struct pipe_end *) arg;
    char bytes[65536];
    ssize_t n;
    free(arg);
    while ((n = recv(e.from, bytes, sizeof(bytes), 0)) > 0) {
        int64_t due = cr_monotonic_ns() + LINK_NS;
        struct timespec when = {due / 1000000000, due % 1000000000};
        (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
        if (send(e.to, bytes, (size_t) n, MSG_NOSIGNAL) != n) break;
    }
    (void) shutdown(e.to, SHUT_RDWR);
    return NULL;
}

static void carry_in_thread(int from, int to) {
    pthread_t thread;
    struct pipe_end *e = malloc(sizeof(*e));
    if (e == NULL) die("malloc");
    *e = (struct pipe_end){from, to};
    if (pthread_create(&thread, NULL, carry, e) != 0) die("thread");
    (void) pthread_detach(thread);
}

static void run_link(int fd, void *arg) {
    uint16_t port, target = *(uint16_t *) arg;
    int listener = listen_on_loopback(&port), one = 1;
    (void) prctl(PR_SET_TIMERSLACK, 1UL);
    tell(fd, &port, sizeof(port));
    for (;;) {
        int near = accept4(listener, NULL, NULL, SOCK_CLOEXEC), far = connect_to(target);
        if (near < 0) die("accept");
        (void) setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        carry_in_thread(near, far);
        carry_in_thread(far, near);
    }
}

/* ---- relays that only copy bytes ---- */

/* One end of a connection, or a listening socket, whose `other` is NULL. */
struct copy_end {
    int fd;
    struct copy_end *other;
};

static struct copy_end *watch_end(int epoll, int fd) {
    struct copy_end *end = calloc(1, sizeof(*end));
    if (end == NULL) die("calloc");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = end};
    end->fd = fd;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll");
    return end;
}

static void accept_worker(int epoll, const struct copy_end *listener, uint16_t store_port) {
    int one = 1, fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) die("accept");
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    struct copy_end *near = watch_end(epoll, fd), *far = watch_end(epoll, connect_to(store_port));
    near->other = far;
    far->other = near;
}

/* Copies what has come at this end to the other one. When one end is closed, both are. */
static void copy_bytes(struct copy_end *end) {
    char bytes[4096];
    if (end->fd < 0) return;
    ssize_t n = recv(end->fd, bytes, sizeof(bytes), 0);
    if (n > 0 && send(end->other->fd, bytes, (size_t) n, MSG_NOSIGNAL) == n) return;
    (void) close(end->fd);
    (void) close(end->other->fd);
    end->fd = end->other->fd = -1;
}

static void run_relays(int fd, void *arg) {
    const struct gateways *g = arg;
    struct epoll_event events[256];
    uint16_t ports[NODES];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < g->count; i++) (void) watch_end(epoll, listen_on_loopback(&ports[i]));
    tell(fd, ports, (size_t) g->count * sizeof(*ports));
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct copy_end *end = events[i].data.ptr;
            if (end->other == NULL) accept_worker(epoll, end, g->store_port);
            else copy_bytes(end);
        }
    }
}

/* ---- the time of one request ---- */

static int compare(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

static void greet(int fd) {
    struct cr_buffer b = {0};
    if (store_encode_validate(&b) < 0 || store_encode_ping(&b, 1) < 0) die("encode");
    send_all(fd, b.data, b.len);
    receive_all(fd, 4);
    cr_buffer_done(&b);
}

/* Sets a key to a value of 8 bytes, and returns the bytes of the request that GETs this key. */
static struct cr_buffer prepare_get(int fd) {
    struct cr_buffer b = {0}, get = {0};
    struct store_encoder e = {&b, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    (void) store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("key"), 8);
    if (cr_buffer_append(&b, "12345678", 8) < 0) die("encode");
    send_all(fd, b.data, b.len);
    cr_buffer_done(&b);
    e.out = &get;
    if (store_encode_key(&e, STORE_OP_GET, STORE_BYTES("key")) < 0) die("encode");
    return get;
}

static void measure_trips(const char *link, const char *how, uint16_t port) {
    static double us[TRIPS];
    int fd = connect_to(port);
    greet(fd);
    struct cr_buffer get = prepare_get(fd);
    for (int i = -200; i < TRIPS; i++) { /* the first 200 warm up */
        int64_t begin = cr_monotonic_ns();
        send_all(fd, get.data, get.len);
        receive_all(fd, 16);
        if (i >= 0) us[i] = (double) (cr_monotonic_ns() - begin) / 1000;
    }
    qsort(us, TRIPS, sizeof(*us), compare);
    (void) printf("%-10s %-22s %10.1f %10.1f\n", link, how, us[TRIPS / 2], us[TRIPS / 100 * 99]);
    (void) fflush(stdout);
    cr_buffer_done(&get);
    (void) close(fd);
}

static void trips(const char *how) {
    for (int slow = 0; slow < 2; slow++) {
        const char *link = slow ? "1 ms" : "loopback";
        uint16_t store, at, gateway;
        pid_t server = start(run_store, NULL, &store, 1), wire = 0;
        at = store;
        if (slow) wire = start(run_link, &store, &at, 1);
        if (ring == NULL) measure_trips(link, "direct", at);
        struct gateways g = {at, 1};
        pid_t node = start(run_gateways, &g, &gateway, 1);
        measure_trips(link, how, gateway);
        (void) end(node);
        (void) end(wire);
        (void) end(server);
    }
}

/* ---- the start of 4,096 workers ---- */

enum step { GREETED, COUNTED, WAITS, DONE };
struct worker {
    int fd;
    enum step step;
    size_t awaited; /* bytes of the reply that have not come yet */
};
static struct worker workers[WORKERS];
static int counted, answered;
static struct cr_buffer hello, add, wait_for_all, set;

static void encode_requests(void) {
    struct store_bytes all = STORE_BYTES("all");
    struct store_encoder e = {&add, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    if (store_encode_validate(&hello) < 0 || store_encode_ping(&hello, 1) < 0) die("encode");
    (void) store_encode_number(&e, STORE_OP_ADD, STORE_BYTES("init/"), 1);
    e.out = &wait_for_all;
    (void) store_encode_keys(&e, STORE_OP_WAIT, &all, 1);
    e.out = &set;
    (void) store_encode_value_head(&e, STORE_OP_SET, all, 1);
    if (cr_buffer_append(&set, "1", 1) < 0) die("encode");
}

/* Sends the worker's next request, when the reply to its last one has come. */
static void advance(struct worker *w) {
    if (w->step == GREETED) {
        send_all(w->fd, add.data, add.len);
        w->step = COUNTED;
        w->awaited = 8;
    } else if (w->step == COUNTED) {
        send_all(w->fd, wait_for_all.data, wait_for_all.len);
        w->step = WAITS;
        w->awaited = 1;
        counted++;
    } else {
        w->step = DONE;
        answered++;
    }
}

static void on_reply(struct worker *w) {
    char bytes[16];
    ssize_t n = recv(w->fd, bytes, w->awaited, 0);
    if (n <= 0) die("a worker's connection ended");
    w->awaited -= (size_t) n;
    if (w->awaited == 0) advance(w);
}

static void run_workers(int epoll, int other) {
    struct epoll_event events[256];
    bool is_set = false;
    while (answered < WORKERS) {
        int n = epoll_wait(epoll, events, 256, 60000);
        if (n <= 0) die("the workers wait in vain");
        for (int i = 0; i < n; i++) on_reply(events[i].data.ptr);
        if (counted == WORKERS && !is_set) send_all(other, set.data, set.len);
        is_set = is_set || counted == WORKERS;
    }
}

static long resident_kib(pid_t pid) {
    char path[64], line[256];
    long kib = 0;
    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) break; /* NOLINT: a kernel's file */
    }
    if (f != NULL) (void) fclose(f);
    return kib;
}

static int descriptors(pid_t pid) {
    char path[64];
    int count = -2; /* "." and ".." */
    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    DIR *d = opendir(path);
    while (d != NULL && readdir(d) != NULL) count++;
    if (d != NULL) (void) closedir(d);
    return count;
}

static double start_workers(const uint16_t *ports, size_t count, int other) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    counted = answered = 0;
    int64_t begin = cr_monotonic_ns();
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){connect_to(ports[(size_t) i * count / WORKERS]), GREETED, 4};
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &workers[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, workers[i].fd, &e) < 0) die("epoll");
        send_all(workers[i].fd, hello.data, hello.len);
    }
    run_workers(epoll, other);
    (void) close(epoll);
    return (double) (cr_monotonic_ns() - begin) / 1e6;
}

/* Returns the processor time that this process has taken, in ms. */
static double own_cpu_ms(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) < 0) die("clock");
    return 1e3 * (double) t.tv_sec + 1e-6 * (double) t.tv_nsec;
}

/* Waits until all gateways are connected to the store: each one carries requests to it. */
static void await_gateways(const uint16_t *ports) {
    static int fds[NODES];
    for (int i = 0; i < NODES; i++) {
        fds[i] = connect_to(ports[i]);
        greet(fds[i]);
        struct cr_buffer get = prepare_get(fds[i]);
        send_all(fds[i], get.data, get.len);
        cr_buffer_done(&get);
    }
    for (int i = 0; i < NODES; i++) {
        receive_all(fds[i], 16);
        (void) close(fds[i]);
    }
}

/* `between` is what runs between the workers and the store; NULL = nothing. */
static void measure_start(const char *how, void (*between)(int fd, void *arg)) {
    static uint16_t ports[NODES];
    uint16_t store;
    bool is_direct = between == NULL;
    pid_t server = start(run_store, NULL, &store, 1), nodes = 0;
    int other = connect_to(store);
    greet(other);
    long kib = resident_kib(server);
    int before = descriptors(server);
    struct gateways g = {store, NODES};
    int64_t begin = cr_monotonic_ns();
    if (!is_direct) {
        nodes = start(between, &g, ports, NODES);
        await_gateways(ports);
    }
    double open_ms = (double) (cr_monotonic_ns() - begin) / 1e6;
    double open_store_ms = cpu_ms(server), open_nodes_ms = is_direct ? 0 : cpu_ms(nodes);
    double own_ms = own_cpu_ms();
    double ms = is_direct ? start_workers(&store, 1, other) : start_workers(ports, NODES, other);
    own_ms = own_cpu_ms() - own_ms;
    int connections = descriptors(server) - before;
    kib = resident_kib(server) - kib;
    /* ends the gateways before the store's process, so that they do not report the store's end */
    double nodes_ms = end(nodes), store_ms = end(server);
    (void) printf("%-17s %6.0f %6.0f %6.0f %6.0f %6.0f %6.0f %6.0f %12d %8ld\n", how, ms,
                  store_ms - open_store_ms, nodes_ms - open_nodes_ms, own_ms,
                  is_direct ? 0 : open_ms, open_store_ms, open_nodes_ms, connections, kib);
    (void) fflush(stdout);
    for (int i = 0; i < WORKERS; i++) (void) close(workers[i].fd);
    (void) close(other);
}

/* ---- all of it ---- */

static char token_path[] = "/tmp/crun_bench_token.XXXXXX";

/* Returns the secrets of a new token file, which main() removes. */
static struct secure_ring *make_ring(void) {
    static const char secret[] = "a secret of more than 32 characters\n";
    struct secure_ring *made = NULL;
    struct cr_error err = {0};
    int fd = mkstemp(token_path);
    if (fd < 0 || write(fd, secret, sizeof(secret) - 1) < 0) die("cannot write a token file");
    (void) close(fd);
    if (secure_ring_open(token_path, &made, &err) < 0) {
        (void) fprintf(stderr, "gateway: measures without a secret only: %s\n", err.text);
    }
    return made;
}

int main(int argc, char **argv) {
    bool does_trips = argc < 2 || strcmp(argv[1], "trip") == 0;
    bool does_start = argc < 2 || strcmp(argv[1], "start") == 0;
    struct rlimit fds;
    if (getrlimit(RLIMIT_NOFILE, &fds) < 0) die("getrlimit");
    fds.rlim_cur = fds.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &fds);
    encode_requests();
    struct secure_ring *with_secret = make_ring();
    if (does_trips) {
        (void) printf("%-10s %-22s %10s %10s\n", "link", "GET of 8 bytes", "median us", "p99 us");
        trips("gateway");
        ring = with_secret;
        if (ring != NULL) trips("gateway, secret");
    }
    for (int i = 0; does_start && i < 3; i++) {
        ring = NULL;
        if (i == 0) {
            (void) printf("%-17s %6s %20s %6s %13s\n", "4,096 workers", "ms", "CPU ms", "open",
                          "CPU ms");
            (void) printf("%-17s %6s %6s %6s %6s %6s %6s %6s %12s %8s\n", "", "", "store",
                          "nodes", "work", "ms", "store", "nodes", "connections", "KiB");
        }
        measure_start("direct", NULL);
        measure_start("relays", run_relays);
        measure_start("gateways", run_gateways);
        ring = with_secret;
        if (ring != NULL) measure_start("gateways, secret", run_gateways);
    }
    (void) unlink(token_path);
    return 0;
}
