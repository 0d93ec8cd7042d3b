/* Measures the coordinator's state machine for K members, without sockets.
 *
 *     coordinator [K…]        default 1000 10000 100000
 *
 * Prints for each K these times: "join", until all members have joined and the first round has
 * formed; "push", from the report of a failure until STOP was sent to all other members; "rejoin",
 * until all members have joined again and have the next round; "renew", until each member has been
 * replaced by a new launcher on the same host, one after the other, and all have the next round;
 * "tick", one check of all leases. Also prints the number of bytes that the coordinator has
 * allocated per member. */
#include "base/text/parse.h"
#include "base/time/clock.h"
#include "tests/bench/coordinator_actions.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
    struct coordinator_seat *seat;
    uint64_t round;
};

static struct coordinator *coordinator;
static struct member *members;
static uint32_t count;
static uint64_t messages;

static void do_send(void *arg, void *peer, const struct rdzv_message *m) {
    (void) arg;
    if (m->type == RDZV_ROUND) ((struct member *) peer)->round = m->round.round + 1;
    messages++;
}

static const struct coordinator_actions actions = {
    .send = do_send, .hang_up = no_hang_up, .open_store = no_store, .log = no_log,
    .wants_log = wants_no_log};

static void expect(int is_right, const char *what) {
    if (is_right) return;
    (void) fprintf(stderr, "coordinator: %s\n", what);
    exit(1);
}

static void join(uint32_t i, uint64_t launcher) {
    char host[32];
    (void) snprintf(host, sizeof(host), "node-%06" PRIu32, i);
    struct rdzv_join j = {.host = host, .addr = "10.1.2.3", .role = "default", .pid = 4711,
                          .instance = launcher << 32 | (i + 1), .connection = 1, .node_rank = -1,
                          .local_world_size = 8, .last_rank = -1, .min_nodes = count,
                          .max_nodes = count, .max_restarts = 3, .join_timeout_ms = 600000,
                          .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
                          .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3};
    members[i].seat = coordinator_join(coordinator, 0, &members[i], false, &j);
    expect(members[i].seat != NULL, "a member was refused");
}

static void say(uint32_t i, const struct rdzv_message *m) {
    expect(coordinator_receive(coordinator, 0, members[i].seat, m, NULL) == 0, "a message failed");
}

static void expect_round(uint64_t round) {
    for (uint32_t i = 0; i < count; i++) {
        expect(members[i].round == round + 1, "a member has no round");
    }
}

/* Returns how many ms have passed since the last call of this function. */
static double lap(void) {
    static int64_t last_ns;
    int64_t now_ns = cr_monotonic_ns(), since_ns = now_ns - last_ns;
    last_ns = now_ns;
    return (double) since_ns / 1e6;
}

static void join_again(void) {
    struct rdzv_message again = {.type = RDZV_JOIN};
    for (uint32_t i = 0; i < count; i++) say(i, &again);
}

static void measure(void) {
    struct rdzv_message failed = {.type = RDZV_FAILED};
    failed.failed = (struct rdzv_failed){.round = 0, .what = "rank 7: exit code 1"};
    size_t before = mallinfo2().uordblks;
    (void) lap();
    for (uint32_t i = 0; i < count; i++) join(i, 1);
    double join_ms = lap();
    size_t used = mallinfo2().uordblks - before;
    expect_round(0);
    (void) lap();
    say(count / 2, &failed);
    double push_ms = lap();
    join_again();
    double rejoin_ms = lap();
    expect_round(1);
    (void) lap();
    coordinator_lost(coordinator, 0, members[0].seat, "replaced");
    for (uint32_t i = 1; i < count; i++) {
        coordinator_lost(coordinator, 0, members[i].seat, "replaced");
        join(i, 2);
    }
    join(0, 2);
    double renew_ms = lap();
    expect_round(2);
    (void) lap();
    coordinator_tick(coordinator, coordinator_deadline(coordinator));
    (void) printf("%7" PRIu32 " %9.1f %9.1f %9.1f %9.1f %9.1f %9zu\n", count, join_ms, push_ms,
                  rejoin_ms, renew_ms, lap(), used / count);
}

static void run(uint32_t k) {
    count = k;
    members = calloc(k, sizeof(*members));
    coordinator = coordinator_new("bench", &actions, NULL);
    expect(members != NULL && coordinator != NULL, "out of memory");
    measure();
    coordinator_free(coordinator);
    free(members);
}

int main(int argc, char **argv) {
    static const uint32_t sizes[] = {1000, 10000, 100000};
    (void) printf("%7s %9s %9s %9s %9s %9s %9s\n", "members", "join ms", "push ms", "rejoin ms",
                  "renew ms", "tick ms", "bytes");
    for (int i = 1; i < argc; i++) {
        int64_t k;
        expect(cr_parse_i64(argv[i], 1, RDZV_NODES_MAX, &k) == 0, "wrong number of members");
        run((uint32_t) k);
    }
    for (size_t i = 0; argc == 1 && i < sizeof(sizes) / sizeof(sizes[0]); i++) run(sizes[i]);
    return 0;
}
