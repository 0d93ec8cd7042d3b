/* Compares stores under load: crun's store, torch's, Redis, and a bare epoll echo server. The
 * results are ratios of figures that were measured in the same run.
 *
 *     build/tests/bench/store [loop pipeline idle storm join multiget wake values memory notice]
 *
 * An epoll loop on core 0 sends requests to one server on core 1. All servers run all the time; in
 * each round every server is measured for 0.05 s, in an order that changes from round to round, so
 * that a noisy moment disturbs all of them. A figure is the median over all rounds. A ratio is the
 * median of the ratios of the single rounds, with its 95 % confidence interval from order
 * statistics. The operation is GET of an 8-byte value; the echo server returns the request. */
#include "base/time/clock.h"
#include "store/store.h"
#include "store/wire/wire.h"
#include "tests/bench/store_peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS    5
#define TURNS     41 /* number of rounds; in each round every server is measured for TURN_S
                      * seconds */
#define TURN_S    0.05
#define DEPTH_MAX 64

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* ---- the requests for each server ---- */

struct words {
    struct cr_buffer hello; /* sent first; the reply has hello_reply bytes */
    size_t hello_reply;
    struct cr_buffer prepare; /* creates the key; the reply has prepare_reply bytes */
    size_t prepare_reply;
    struct cr_buffer get; /* one GET; its reply has `reply` bytes */
    size_t reply;
};

static void add(struct cr_buffer *b, const void *data, size_t len) {
    if (cr_buffer_append(b, data, len) < 0) die("append");
}

static void add_text(struct cr_buffer *b, const char *text) { add(b, text, strlen(text)); }

static enum store_dialect dialect_of(enum peer_kind kind) {
    bool is_modern = peer_is_greeted(kind) || kind == PEER_ECHO;
    return is_modern ? STORE_DIALECT_MODERN : STORE_DIALECT_LEGACY;
}

static struct words words_of(enum peer_kind kind) {
    struct words w = {0};
    struct store_encoder e = {&w.prepare, dialect_of(kind), STORE_BYTES("/")};
    if (kind == PEER_REDIS) {
        add_text(&w.prepare, "*3\r\n$3\r\nSET\r\n$9\r\n/bench/01\r\n$8\r\n12345678\r\n");
        w.prepare_reply = strlen("+OK\r\n");
        add_text(&w.get, "*2\r\n$3\r\nGET\r\n$9\r\n/bench/01\r\n");
        w.reply = strlen("$8\r\n12345678\r\n");
        return w;
    }
    if (peer_is_greeted(kind)) {
        (void) store_encode_validate(&w.hello);
        (void) store_encode_ping(&w.hello, 1);
        w.hello_reply = 4;
    }
    (void) store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("bench/01"), 8);
    add_text(&w.prepare, "12345678");
    e.out = &w.get;
    (void) store_encode_key(&e, STORE_OP_GET, STORE_BYTES("bench/01"));
    w.reply = kind == PEER_ECHO ? w.get.len : 16;
    if (kind == PEER_ECHO) w.prepare.len = 0;
    return w;
}

static void words_done(struct words *w) {
    cr_buffer_done(&w->hello);
    cr_buffer_done(&w->prepare);
    cr_buffer_done(&w->get);
}

/* ---- connections ---- */

static char scratch[1 << 20];

/* Binds the socket to a loopback address, a new one after every 4,096 sockets. If all sockets used
 * one address, most of its ports would be taken, and the kernel's search for a free port would be
 * slow and distort the measurement. */
static void spread_source(int fd) {
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t) fd / 4096)};
    int one = 1;
    (void) setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    (void) bind(fd, (struct sockaddr *) &from, sizeof(from));
}

static int open_connection(const struct peer *p, bool wait) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(p->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0), one = 1;
    if (fd < 0) die("socket");
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    spread_source(fd);
    int rc = connect(fd, (struct sockaddr *) &address, sizeof(address));
    if (rc < 0 && errno != EINPROGRESS) die("connect");
    return fd;
}

static void send_all(int fd, const void *data, size_t len) {
    const char *at = data;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0) die("send");
        at += n;
        len -= (size_t) n;
    }
}

static void receive_all(int fd, size_t len) {
    while (len > 0) {
        ssize_t n = recv(fd, scratch, len < sizeof(scratch) ? len : sizeof(scratch), 0);
        if (n <= 0) die("recv");
        len -= (size_t) n;
    }
}

static int open_ready(const struct peer *p, const struct words *w) {
    int fd = open_connection(p, true);
    send_all(fd, w->hello.data, w->hello.len);
    receive_all(fd, w->hello_reply);
    return fd;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    qsort(v, n, sizeof(*v), compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct ratio {
    double median, low, high; /* low to high is the 95 % interval */
};

/* Returns the median of a[i] / b[i]. The 95 % interval goes from rank n/2 - 0.98 sqrt(n) to rank
 * n/2 + 0.98 sqrt(n) of the sorted ratios, the normal approximation of the binomial
 * distribution. */
static struct ratio ratio_of(const double *a, const double *b, size_t n) {
    double r[TURNS];
    for (size_t i = 0; i < n; i++) r[i] = a[i] / b[i];
    struct ratio out = {.median = median(r, n)};
    size_t low = n / 2;
    while (low > 0 && (double) (n - 2 * low) < 1.96 * sqrt((double) n)) low--;
    out.low = r[low];
    out.high = r[n - 1 - low];
    return out;
}

static double seconds_since(int64_t begin_ns) {
    return (double) (cr_monotonic_ns() - begin_ns) / 1e9;
}

/* ---- the closed loop: every connection keeps `depth` requests under way ---- */

struct load {
    double per_second;
    double cpu_us; /* CPU time of the server per operation */
};

struct loop {
    int epoll, *fds;
    size_t *got; /* for each connection: number of bytes of replies received so far */
    size_t count, depth, reply;
    char requests[DEPTH_MAX * 64];
    size_t request_len;
};

static struct loop loop_open(const struct peer *p, const struct words *w, size_t count,
                             size_t depth) {
    struct loop l = {.epoll = epoll_create1(EPOLL_CLOEXEC),
                     .count = count,
                     .depth = depth,
                     .reply = w->reply,
                     .request_len = w->get.len};
    l.fds = calloc(count, sizeof(*l.fds));
    l.got = calloc(count, sizeof(*l.got));
    for (size_t i = 0; i < depth; i++) memcpy(l.requests + i * w->get.len, w->get.data, w->get.len);
    for (size_t i = 0; i < count; i++) {
        l.fds[i] = open_ready(p, w);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
        (void) epoll_ctl(l.epoll, EPOLL_CTL_ADD, l.fds[i], &event);
    }
    send_all(l.fds[0], w->prepare.data, w->prepare.len);
    receive_all(l.fds[0], w->prepare_reply);
    return l;
}

static void loop_close(struct loop *l) {
    for (size_t i = 0; i < l->count; i++) (void) close(l->fds[i]);
    (void) close(l->epoll);
    free(l->fds);
    free(l->got);
}

/* Receives the replies that have arrived on connection i, and returns their number. If `more` is
 * set, sends a new request for each reply. */
static uint64_t loop_turn(struct loop *l, size_t i, bool more) {
    ssize_t n = recv(l->fds[i], scratch, sizeof(scratch), 0);
    if (n <= 0) die("recv");
    size_t total = l->got[i] + (size_t) n, done = total / l->reply;
    l->got[i] = total % l->reply;
    if (done > 0 && more) send_all(l->fds[i], l->requests, done * l->request_len);
    return done;
}

/* Sends requests for `seconds`, then waits for all outstanding replies. */
static struct load loop_run(struct loop *l, const struct peer *p, double seconds) {
    struct epoll_event events[1024];
    int64_t begin = cr_monotonic_ns(), cpu = peer_cpu_ns(p);
    uint64_t done = 0, sent = l->count * l->depth, turns = 0;
    for (size_t i = 0; i < l->count; i++)
        send_all(l->fds[i], l->requests, l->depth * l->request_len);
    bool more = true;
    while (done < sent) {
        if (more && turns++ % 16 == 0) more = seconds_since(begin) < seconds;
        int n = epoll_wait(l->epoll, events, 1024, -1);
        for (int i = 0; i < n; i++) {
            uint64_t replies = loop_turn(l, (size_t) events[i].data.u64, more);
            done += replies;
            if (more) sent += replies;
        }
    }
    struct load load = {.per_second = (double) done / seconds_since(begin)};
    load.cpu_us = (double) (peer_cpu_ns(p) - cpu) / 1000.0 / (double) done;
    return load;
}

static struct load measure(const struct peer *p, size_t connections, size_t depth, double seconds) {
    struct words w = words_of(p->kind);
    struct loop l = loop_open(p, &w, connections, depth);
    struct load load = loop_run(&l, p, seconds);
    loop_close(&l);
    words_done(&w);
    return load;
}

static void compare_peers(const char *title, struct peer *peers, size_t connections, size_t depth) {
    double speed[PEER_COUNT][TURNS], cpu[PEER_COUNT][TURNS];
    struct words words[PEER_COUNT];
    struct loop loops[PEER_COUNT];
    for (int k = 0; k < PEER_COUNT; k++) {
        if (peers[k].pid == 0) continue;
        words[k] = words_of(peers[k].kind);
        loops[k] = loop_open(&peers[k], &words[k], connections, depth);
        (void) loop_run(&loops[k], &peers[k], 0); /* returns when all connections are accepted */
    }
    for (int r = 0; r < TURNS; r++) {
        for (int i = 0; i < PEER_COUNT; i++) {
            int k = (r + (r % 2 ? i : PEER_COUNT - i)) % PEER_COUNT;
            if (peers[k].pid == 0) continue;
            struct load load = loop_run(&loops[k], &peers[k], TURN_S);
            speed[k][r] = load.per_second;
            cpu[k][r] = load.cpu_us;
        }
    }
    for (int k = 0; k < PEER_COUNT; k++) {
        if (peers[k].pid == 0) continue;
        struct ratio ratio = ratio_of(speed[PEER_OURS], speed[k], TURNS);
        (void) printf(
            "%-24s %-10s %9.0f op/s %6.2f us server cpu/op  ours/it %5.2f (%.2f to %.2f)\n", title,
            peers[k].name, median(speed[k], TURNS), median(cpu[k], TURNS), ratio.median, ratio.low,
            ratio.high);
        loop_close(&loops[k]);
        words_done(&words[k]);
    }
}

static void start_all(struct peer peers[PEER_COUNT]) {
    for (int k = 0; k < PEER_COUNT; k++) {
        peers[k] = peer_start((enum peer_kind) k);
        if (peers[k].pid == 0) (void) printf("%s is not installed: left out\n", peers[k].name);
    }
}

static void stop_all(struct peer peers[PEER_COUNT]) {
    for (int k = 0; k < PEER_COUNT; k++) peer_stop(&peers[k]);
}

static void bench_loop(void) {
    const size_t counts[] = {1, 64, 1024, 2048};
    struct peer peers[PEER_COUNT];
    start_all(peers);
    for (size_t i = 0; i < 4; i++) {
        char title[64];
        (void) snprintf(title, sizeof(title), "1 outstanding, %zu conn", counts[i]);
        compare_peers(title, peers, counts[i], 1);
    }
    stop_all(peers);
}

static void bench_pipeline(void) {
    struct peer peers[PEER_COUNT];
    start_all(peers);
    compare_peers("16 deep, 64 conn", peers, 64, 16);
    stop_all(peers);
}

/* ---- CPU time per request beside idle connections ---- */

/* Waits until the server uses almost no CPU time: then it has handled all earlier connects and
 * closes. */
static void settle(const struct peer *p) {
    int64_t before;
    do {
        before = peer_cpu_ns(p);
        (void) usleep(20000);
    } while (peer_cpu_ns(p) - before > 200000);
}

/* Measures the server's CPU time per request, alternately without and with `idle` idle
 * connections. */
static void bench_idle_one(enum peer_kind kind, size_t idle, size_t active) {
    struct peer p = peer_start(kind);
    if (p.pid == 0) return;
    struct words w = words_of(kind);
    double alone[ROUNDS], beside[ROUNDS], ratio[ROUNDS];
    int *fds = calloc(idle, sizeof(*fds));
    for (int r = 0; r < ROUNDS; r++) {
        settle(&p);
        alone[r] = measure(&p, active, 1, 0.2).cpu_us;
        for (size_t i = 0; i < idle; i++) fds[i] = open_ready(&p, &w);
        settle(&p);
        beside[r] = measure(&p, active, 1, 0.2).cpu_us;
        ratio[r] = beside[r] / alone[r];
        for (size_t i = 0; i < idle; i++) (void) close(fds[i]);
    }
    (void) printf(
        "beside %5zu idle, %2zu active %-10s %6.2f us server cpu/op alone, %7.2f beside: x%.2f\n",
        idle, active, p.name, median(alone, ROUNDS), median(beside, ROUNDS), median(ratio, ROUNDS));
    free(fds);
    peer_stop(&p);
    words_done(&w);
}

static void bench_idle(void) {
    for (size_t active = 1; active <= 16; active += 15) {
        bench_idle_one(PEER_OURS, 10000, active);
        bench_idle_one(PEER_ECHO, 10000, active);
    }
    bench_idle_one(PEER_TORCH, 1000, 1);
}

/* ---- storms: each client connects, sends one request and disconnects ---- */

static double storm(const struct peer *p, size_t clients, size_t at_a_time) {
    struct words w = words_of(p->kind);
    struct cr_buffer say = {0};
    add(&say, w.hello.data, w.hello.len);
    add(&say, w.get.data, w.get.len);
    size_t wanted = w.hello_reply + w.reply, started = 0, finished = 0;
    if (p->kind == PEER_ECHO) wanted = say.len;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint32_t *got = calloc(1 << 16, sizeof(*got));
    struct epoll_event events[1024];
    int64_t begin = cr_monotonic_ns();
    while (finished < clients) {
        while (started < clients && started - finished < at_a_time) {
            int fd = open_connection(p, false);
            struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
            (void) epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            got[fd] = 0;
            started++;
        }
        int n = epoll_wait(epoll, events, 1024, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (events[i].events & EPOLLERR) die("storm");
            if (events[i].events & EPOLLOUT) {
                send_all(fd, say.data, say.len);
                struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
                (void) epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
                continue;
            }
            ssize_t bytes = recv(fd, scratch, sizeof(scratch), 0);
            if (bytes <= 0) die("storm: recv");
            got[fd] += (uint32_t) bytes;
            if (got[fd] < wanted) continue;
            (void) close(fd);
            finished++;
        }
    }
    double spent = seconds_since(begin);
    (void) close(epoll);
    free(got);
    cr_buffer_done(&say);
    words_done(&w);
    return spent;
}

static void prepare_key(const struct peer *p) { (void) measure(p, 1, 1, 0.01); }

static void bench_storm(void) {
    struct peer peers[PEER_COUNT];
    double spent[PEER_COUNT][ROUNDS], ratio[PEER_COUNT][ROUNDS];
    start_all(peers);
    for (int k = 0; k < PEER_COUNT; k++) {
        if (peers[k].pid != 0) prepare_key(&peers[k]);
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int k = PEER_COUNT - 1; k >= 0; k--) {
            if (peers[k].pid != 0) spent[k][r] = storm(&peers[k], 2000, 1000);
        }
        for (int k = 0; k < PEER_COUNT; k++) ratio[k][r] = spent[k][r] / spent[PEER_OURS][r];
    }
    for (int k = 0; k < PEER_COUNT; k++) {
        if (peers[k].pid == 0) continue;
        (void) printf("storm 2000, 1000 at once   %-11s %8.1f ms   its time/ours %5.2f\n",
                      peers[k].name, median(spent[k], ROUNDS) * 1e3, median(ratio[k], ROUNDS));
    }
    stop_all(peers);
}

/* ---- joining: each client adds to a counter and waits for all the others ---- */

/* Measures a barrier as torch makes it from store calls: each client adds 1 to a counter and waits
 * for a key, which the last client to arrive sets. */
static void bench_join_one(enum peer_kind kind, size_t clients) {
    struct peer p = peer_start(kind);
    if (p.pid == 0) return;
    enum store_dialect dialect = dialect_of(kind);
    struct words w = words_of(kind);
    int *fds = calloc(clients, sizeof(*fds));
    struct cr_buffer out = {0};
    struct store_encoder e = {&out, dialect, STORE_BYTES("/")};
    struct store_bytes gate = STORE_BYTES("gate");
    int64_t begin = cr_monotonic_ns();
    for (size_t i = 0; i < clients; i++) {
        char key[32];
        (void) snprintf(key, sizeof(key), "rank%zu", i);
        cr_buffer_clear(&out);
        fds[i] = open_connection(&p, true);
        if (peer_is_greeted(kind)) (void) store_encode_validate(&out);
        (void) store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES(key), 4);
        add_text(&out, "here");
        (void) store_encode_number(&e, STORE_OP_ADD, STORE_BYTES("joined"), 1);
        (void) store_encode_keys(&e, STORE_OP_WAIT, &gate, 1);
        send_all(fds[i], out.data, out.len);
    }
    double connected = seconds_since(begin);
    /* each reply is the new value of the counter */
    for (size_t i = 0; i < clients; i++) receive_all(fds[i], 8);
    int last = open_ready(&p, &w);
    cr_buffer_clear(&out);
    (void) store_encode_value_head(&e, STORE_OP_SET, gate, 1);
    add_text(&out, "1");
    send_all(last, out.data, out.len);
    for (size_t i = 0; i < clients; i++) receive_all(fds[i], 1);
    (void) printf("join of %5zu clients      %-11s %8.1f ms (%.1f ms until all were connected)\n",
                  clients, p.name, seconds_since(begin) * 1e3, connected * 1e3);
    for (size_t i = 0; i < clients; i++) (void) close(fds[i]);
    (void) close(last);
    free(fds);
    cr_buffer_done(&out);
    words_done(&w);
    peer_stop(&p);
}

static void bench_join(void) {
    for (int r = 0; r < 3; r++) bench_join_one(PEER_OURS, 4096);
    for (int r = 0; r < 3; r++) bench_join_one(PEER_OURS, 16384);
    bench_join_one(PEER_TORCH, 4096);
}

/* ---- one multi-get of 10,000 keys ---- */

static void multiget_words(enum peer_kind kind, size_t n, struct cr_buffer *sets,
                           struct cr_buffer *get) {
    struct store_encoder e = {sets, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    struct store_bytes *keys = calloc(n, sizeof(*keys));
    char *names = calloc(n, 32), line[128];
    if (kind == PEER_REDIS) {
        (void) snprintf(line, sizeof(line), "*%zu\r\n$4\r\nMGET\r\n", n + 1);
        add_text(get, line);
    }
    for (size_t i = 0; i < n; i++) {
        int len = snprintf(names + 32 * i, 32, "some/usual/prefix/rank%06zu", i);
        keys[i] = (struct store_bytes){names + 32 * i, (size_t) len};
        if (kind == PEER_REDIS) {
            (void) snprintf(line, sizeof(line),
                            "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$8\r\n12345678\r\n", len,
                            names + 32 * i);
            add_text(sets, line);
            (void) snprintf(line, sizeof(line), "$%d\r\n%s\r\n", len, names + 32 * i);
            add_text(get, line);
        } else {
            (void) store_encode_value_head(&e, STORE_OP_SET, keys[i], 8);
            add_text(sets, "12345678");
        }
    }
    e.out = get;
    if (kind != PEER_REDIS) (void) store_encode_keys(&e, STORE_OP_MULTI_GET, keys, n);
    free(keys);
    free(names);
}

static void bench_multiget_one(enum peer_kind kind) {
    enum { N = 10000 };
    struct peer p = peer_start(kind);
    if (p.pid == 0) return;
    struct words w = words_of(kind);
    struct cr_buffer sets = {0}, get = {0};
    multiget_words(kind, N, &sets, &get);
    int fd = open_ready(&p, &w);
    if (kind == PEER_REDIS) {
        for (size_t i = 0; i < N; i++) {
            send_all(fd, sets.data + i * (sets.len / N), sets.len / N);
            receive_all(fd, 5);
        }
    } else {
        send_all(fd, sets.data, sets.len);
    }
    double spent[4 * ROUNDS];
    size_t reply = kind == PEER_REDIS ? strlen("*10000\r\n") + N * 14 : (size_t) N * 16;
    for (int r = 0; r < 4 * ROUNDS; r++) {
        int64_t begin = cr_monotonic_ns();
        send_all(fd, get.data, get.len);
        receive_all(fd, reply);
        spent[r] = seconds_since(begin);
    }
    (void) printf("multi-get of 10000 keys    %-11s %8.2f ms\n", p.name,
                  median(spent, 4 * ROUNDS) * 1e3);
    (void) close(fd);
    cr_buffer_done(&sets);
    cr_buffer_done(&get);
    words_done(&w);
    peer_stop(&p);
}

static void bench_multiget(void) {
    bench_multiget_one(PEER_OURS);
    bench_multiget_one(PEER_REDIS);
}

/* ---- waking: all clients wait for one key ---- */

static double wake_once(const struct peer *p, int epoll, int setter, size_t waiters,
                        const void *set, size_t set_len) {
    (void) p;
    struct epoll_event events[1024];
    int64_t begin = cr_monotonic_ns();
    send_all(setter, set, set_len);
    for (size_t woken = 0; woken < waiters;) {
        int n = epoll_wait(epoll, events, 1024, 20000);
        if (n <= 0) die("wake: a waiter was forgotten");
        for (int i = 0; i < n; i++) {
            if (recv(events[i].data.fd, scratch, 16, MSG_DONTWAIT) != 1) die("wake: recv");
            woken++;
        }
    }
    return seconds_since(begin);
}

static void bench_wake_one(enum peer_kind kind, size_t waiters) {
    struct peer p = peer_start(kind);
    if (p.pid == 0) return;
    struct words w = words_of(kind);
    enum store_dialect dialect = dialect_of(kind);
    int epoll = epoll_create1(EPOLL_CLOEXEC), setter = open_ready(&p, &w);
    int *fds = calloc(waiters, sizeof(*fds));
    for (size_t i = 0; i < waiters; i++) {
        fds[i] = open_ready(&p, &w);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        (void) epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
    }
    double spent[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        struct cr_buffer wait = {0}, set = {0}, num = {0};
        char key[32];
        (void) snprintf(key, sizeof(key), "gate%d", r);
        struct store_bytes name = STORE_BYTES(key);
        struct store_encoder e = {&wait, dialect, STORE_BYTES("/")};
        (void) store_encode_keys(&e, STORE_OP_WAIT, &name, 1);
        e.out = &set;
        (void) store_encode_value_head(&e, STORE_OP_SET, name, 1);
        add_text(&set, "1");
        e.out = &num;
        (void) store_encode_plain(&e, STORE_OP_NUM_KEYS);
        if (kind == PEER_ECHO) {
            cr_buffer_clear(&set);
            add(&set, (const uint8_t[]){ECHO_BROADCAST}, 1);
        } else {
            for (size_t i = 0; i < waiters; i++) send_all(fds[i], wait.data, wait.len);
            (void) usleep(200000); /* wait 200 ms, in which the server reads the waits */
            send_all(setter, num.data, num.len);
            receive_all(setter, 8);
        }
        spent[r] = wake_once(&p, epoll, setter, waiters, set.data, set.len);
        cr_buffer_done(&wait);
        cr_buffer_done(&set);
        cr_buffer_done(&num);
    }
    (void) printf("wake %5zu waiters         %-11s %8.2f ms\n", waiters, p.name,
                  median(spent, ROUNDS) * 1e3);
    for (size_t i = 0; i < waiters; i++) (void) close(fds[i]);
    (void) close(setter);
    (void) close(epoll);
    free(fds);
    words_done(&w);
    peer_stop(&p);
}

static void bench_wake(void) {
    bench_wake_one(PEER_OURS, 10000);
    bench_wake_one(PEER_ECHO, 10000);
    bench_wake_one(PEER_TORCH, 4000);
}

/* ---- big values ---- */

static void value_words(enum peer_kind kind, size_t size, struct cr_buffer *set,
                        struct cr_buffer *get, size_t *set_reply, size_t *get_reply) {
    char line[64];
    struct store_encoder e = {set, dialect_of(kind), STORE_BYTES("/")};
    if (kind == PEER_REDIS) {
        (void) snprintf(line, sizeof(line), "$%zu\r\n", size);
        add_text(set, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n");
        add_text(set, line);
        *get_reply = strlen(line) + size + 2;
        *set_reply = 5;
        add_text(get, "*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n");
    } else {
        (void) store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("big"), size);
        e.out = get;
        (void) store_encode_key(&e, STORE_OP_GET, STORE_BYTES("big"));
        *get_reply = 8 + size;
        *set_reply = 8; /* SET has no reply, so a GETNUMKEYS follows, whose reply has 8 bytes */
    }
    if (cr_buffer_reserve(set, size) < 0) die("reserve");
    memset(set->data + set->len, 'x', size);
    set->len += size;
    if (kind == PEER_REDIS) add_text(set, "\r\n");
    e.out = set;
    if (kind != PEER_REDIS) (void) store_encode_plain(&e, STORE_OP_NUM_KEYS);
}

static void bench_values_one(struct peer *p, size_t size, double *set_speed, double *get_speed) {
    struct words w = words_of(p->kind);
    struct cr_buffer set = {0}, get = {0};
    size_t set_reply, get_reply;
    value_words(p->kind, size, &set, &get, &set_reply, &get_reply);
    int fd = open_ready(p, &w);
    size_t repeats = (64 << 20) / size;
    int64_t begin = cr_monotonic_ns();
    for (size_t i = 0; i < repeats; i++) {
        send_all(fd, set.data, set.len);
        receive_all(fd, set_reply);
    }
    *set_speed = (double) (repeats * size) / seconds_since(begin) / 1e9;
    begin = cr_monotonic_ns();
    for (size_t i = 0; i < repeats; i++) {
        send_all(fd, get.data, get.len);
        receive_all(fd, get_reply);
    }
    *get_speed = (double) (repeats * size) / seconds_since(begin) / 1e9;
    (void) close(fd);
    cr_buffer_done(&set);
    cr_buffer_done(&get);
    words_done(&w);
}

enum { VALUE_ROUNDS = 15 };

static void bench_values(void) {
    struct peer peers[PEER_COUNT];
    start_all(peers);
    for (size_t size = 1 << 20; size <= 16 << 20; size *= 16) {
        double set[PEER_COUNT][VALUE_ROUNDS], get[PEER_COUNT][VALUE_ROUNDS];
        for (int r = 0; r < VALUE_ROUNDS; r++) {
            for (int i = 0; i < PEER_ECHO; i++) {
                int k = (r + (r % 2 ? i : PEER_ECHO - i)) % PEER_ECHO;
                if (peers[k].pid != 0) bench_values_one(&peers[k], size, &set[k][r], &get[k][r]);
            }
        }
        for (int k = 0; k < PEER_ECHO; k++) {
            if (peers[k].pid == 0) continue;
            struct ratio s = ratio_of(set[PEER_OURS], set[k], VALUE_ROUNDS);
            struct ratio g = ratio_of(get[PEER_OURS], get[k], VALUE_ROUNDS);
            (void) printf("values of %2zu MiB %-10s set %5.2f GB/s ours/it %.2f (%.2f to %.2f)   "
                          "get %5.2f GB/s ours/it %.2f (%.2f to %.2f)\n",
                          size >> 20, peers[k].name, median(set[k], VALUE_ROUNDS), s.median, s.low,
                          s.high, median(get[k], VALUE_ROUNDS), g.median, g.low, g.high);
        }
    }
    stop_all(peers);
}

/* ---- memory ---- */

static void bench_memory(void) {
    enum { KEYS = 500000, IDLE = 10000 };
    struct peer p = peer_start(PEER_OURS);
    struct words w = words_of(PEER_OURS);
    int fd = open_ready(&p, &w);
    long before = peer_resident_kib(&p);
    struct cr_buffer out = {0};
    struct store_encoder e = {&out, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];
        (void) snprintf(key, sizeof(key), "key%09zu", i);
        (void) store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES(key), 8);
        add_text(&out, "12345678");
    }
    (void) store_encode_plain(&e, STORE_OP_NUM_KEYS);
    send_all(fd, out.data, out.len);
    receive_all(fd, 8);
    double each = (double) (peer_resident_kib(&p) - before) * 1024 / KEYS - 21;
    (void) printf("overhead of a key          crun-store  %8.0f bytes (resident, beside 21 of key "
                  "and value)\n",
                  each);
    peer_stop(&p);
    (void) close(fd);
    p = peer_start(PEER_OURS);
    before = peer_resident_kib(&p);
    for (size_t i = 0; i < IDLE; i++) (void) open_ready(&p, &w);
    (void) printf("an idle connection         crun-store  %8.0f bytes (resident)\n",
                  (double) (peer_resident_kib(&p) - before) * 1024 / IDLE);
    peer_stop(&p);
    cr_buffer_done(&out);
    words_done(&w);
}

/* ---- latency of a client while another key space of the server is busy ---- */

struct deed {
    const char *name;
    void (*run)(struct deed *d);
    size_t keys, clients;
    struct store_space *space;
    int fd; /* connection of a client of `space` */
    /* time in ns at which run() returned; 0 before it has returned; accessed atomically */
    int64_t done_ns;
};

static void add_request(struct store_encoder *e, enum store_op op, size_t number) {
    char key[32];
    (void) snprintf(key, sizeof(key), "key%09zu", number);
    if (op == STORE_OP_SET) {
        (void) store_encode_value_head(e, op, STORE_BYTES(key), 8);
        add_text(e->out, "12345678");
    } else {
        (void) store_encode_key(e, op, STORE_BYTES(key));
    }
}

/* Sends one request per key, in batches of 10,000 requests. */
static void ask_of_all(struct deed *d, enum store_op op, size_t reply) {
    enum { AT_A_TIME = 10000 };
    struct cr_buffer out = {0};
    struct store_encoder e = {&out, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    for (size_t done = 0; done < d->keys; done += AT_A_TIME) {
        cr_buffer_clear(&out);
        for (size_t i = 0; i < AT_A_TIME; i++) add_request(&e, op, done + i);
        (void) store_encode_plain(&e, STORE_OP_NUM_KEYS);
        send_all(d->fd, out.data, out.len);
        receive_all(d->fd, AT_A_TIME * reply + 8);
    }
    cr_buffer_done(&out);
}

static void do_set(struct deed *d) { ask_of_all(d, STORE_OP_SET, 0); }
static void do_delete(struct deed *d) { ask_of_all(d, STORE_OP_DELETE, 8); }
static void do_clear(struct deed *d) { store_space_clear(d->space); }
static void do_close(struct deed *d) { store_space_close(d->space); }

static void do_list(struct deed *d) {
    struct cr_buffer out = {0};
    struct store_encoder e = {&out, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    (void) store_encode_plain(&e, STORE_OP_LIST_KEYS);
    send_all(d->fd, out.data, out.len);
    receive_all(d->fd, 8 + d->keys * (8 + strlen("/key000000000")));
    cr_buffer_done(&out);
}

/* Sends one request with the operation `op` about all keys, and after it one with the operation
 * `then`. Receives `reply` bytes of replies. */
static void ask_at_once(struct deed *d, enum store_op op, enum store_op then, size_t reply) {
    struct cr_buffer out = {0};
    struct store_encoder e = {&out, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    struct store_bytes *names = calloc(d->keys, sizeof(*names));
    char *text = calloc(d->keys, 16);
    for (size_t i = 0; i < d->keys; i++) {
        int len = snprintf(text + 16 * i, 16, "key%09zu", i);
        names[i] = (struct store_bytes){text + 16 * i, (size_t) len};
    }
    if (op == STORE_OP_MULTI_SET) (void) store_encode_pairs(&e, names, names, d->keys);
    if (op != STORE_OP_MULTI_SET) (void) store_encode_keys(&e, op, names, d->keys);
    (void) store_encode_plain(&e, then);
    send_all(d->fd, out.data, out.len);
    receive_all(d->fd, reply);
    cr_buffer_done(&out);
    free(names);
    free(text);
}

static void do_multi_set(struct deed *d) {
    ask_at_once(d, STORE_OP_MULTI_SET, STORE_OP_NUM_KEYS, 8);
}

static void do_multi_get(struct deed *d) {
    ask_at_once(d, STORE_OP_MULTI_GET, STORE_OP_NUM_KEYS, d->keys * 16 + 8);
}

static void do_wait(struct deed *d) { ask_at_once(d, STORE_OP_WAIT, STORE_OP_CANCEL_WAIT, 1); }

static void *do_deed(void *arg) {
    struct deed *d = arg;
    d->run(d);
    __atomic_store_n(&d->done_ns, cr_monotonic_ns(), __ATOMIC_RELEASE);
    return NULL;
}

struct noticed {
    double longest_ms, p99_ms; /* latency of one GET */
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Sends GETs one after another for `seconds`; if d is not NULL, at least until d->run() has
 * returned in another thread. Returns their latencies. */
static struct noticed notice(int fd, const struct words *w, double seconds, const struct deed *d) {
    enum { GETS_MAX = 1 << 20 };
    static double took_ms[GETS_MAX];
    size_t n = 0;
    int64_t begin = cr_monotonic_ns();
    while (n < GETS_MAX) {
        int64_t at = cr_monotonic_ns();
        bool doing = d != NULL && __atomic_load_n(&d->done_ns, __ATOMIC_ACQUIRE) == 0;
        if (!doing && (double) (at - begin) / 1e9 > seconds) break;
        send_all(fd, w->get.data, w->get.len);
        receive_all(fd, w->reply);
        took_ms[n++] = (double) (cr_monotonic_ns() - at) / 1e6;
    }
    qsort(took_ms, n, sizeof(*took_ms), by_size);
    return (struct noticed){took_ms[n - 1], took_ms[n * 99 / 100]};
}

static struct peer open_space(struct store_server *server, struct store_space **space) {
    struct peer p = {.kind = PEER_OURS, .name = "crun-store"};
    struct cr_error err = {0};
    if (store_server_open(server, "127.0.0.1", 0, space, &p.port, &err) < 0) die(err.text);
    return p;
}

static void bench_deed(struct deed d) {
    struct store_server *server = NULL;
    struct store_space *elsewhere;
    pthread_t thread;
    pin_to_core(1); /* the thread of the server, started next, inherits the binding to core 1 */
    if (store_server_start(NULL, &server, NULL) < 0) die("store_server_start");
    pin_to_core(0);
    struct peer there = open_space(server, &elsewhere), here = open_space(server, &d.space);
    struct words w = words_of(PEER_OURS);
    int *fds = calloc(d.clients, sizeof(*fds)), fd = open_ready(&there, &w);
    d.fd = open_ready(&here, &w);
    send_all(fd, w.prepare.data, w.prepare.len);
    if (d.run != do_set && d.run != do_multi_set && d.run != do_wait) do_set(&d);
    for (size_t i = 0; i < d.clients; i++) fds[i] = open_ready(&here, &w);
    struct noticed before = notice(fd, &w, 1, NULL);
    int64_t begin = cr_monotonic_ns();
    if (pthread_create(&thread, NULL, do_deed, &d) != 0) die("pthread_create");
    struct noticed during = notice(fd, &w, 1.5, &d);
    (void) pthread_join(thread, NULL);
    (void) printf("%-9s %7zu keys, %4zu clients  done in %8.2f ms   a GET elsewhere: longest "
                  "%7.2f ms, p99 %.3f (before: %.2f, %.3f)\n",
                  d.name, d.keys, d.clients, (double) (d.done_ns - begin) / 1e6, during.longest_ms,
                  during.p99_ms, before.longest_ms, before.p99_ms);
    for (size_t i = 0; i < d.clients; i++) (void) close(fds[i]);
    free(fds);
    (void) close(fd);
    (void) close(d.fd);
    words_done(&w);
    store_server_stop(server);
}

static void bench_notice(void) {
    for (int r = 0; r < 3; r++) {
        bench_deed((struct deed){.name = "set", .run = do_set, .keys = 1000000});
        bench_deed((struct deed){.name = "list", .run = do_list, .keys = 1000000});
        bench_deed((struct deed){.name = "multi_set", .run = do_multi_set, .keys = 130000});
        bench_deed((struct deed){.name = "multi_get", .run = do_multi_get, .keys = 130000});
        bench_deed((struct deed){.name = "wait", .run = do_wait, .keys = 130000});
        bench_deed((struct deed){.name = "delete", .run = do_delete, .keys = 1000000});
        bench_deed((struct deed){.name = "clear", .run = do_clear, .keys = 1000000});
        bench_deed((struct deed){.name = "close", .run = do_close, .keys = 1000000});
        bench_deed((struct deed){.name = "clear", .run = do_clear, .clients = 8000});
    }
}

/* ---- the program ---- */

static const struct section {
    const char *name;
    void (*run)(void);
} sections[] = {
    {"loop", bench_loop},   {"pipeline", bench_pipeline}, {"idle", bench_idle},
    {"storm", bench_storm}, {"join", bench_join},         {"multiget", bench_multiget},
    {"wake", bench_wake},   {"values", bench_values},     {"memory", bench_memory},
    {"notice", bench_notice},
};

static bool asked_for(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) return true;
    }
    return argc == 1;
}

int main(int argc, char **argv) {
    struct rlimit limit;
    (void) getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &limit);
    (void) signal(SIGPIPE, SIG_IGN);
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    pin_to_core(0);
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (asked_for(sections[i].name, argc, argv)) sections[i].run();
    }
    return 0;
}
