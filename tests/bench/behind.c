/* Measures how long it takes to name the rank for which others wait, for K simulated ranks on nodes
 * of 8, each in three groups: all ranks, the ranks of its node, and the ranks with its local rank.
 *
 *     behind [K…]        default 4 16 64 256 1000
 *
 * In each trial one rank, drawn at random, does not enter an operation of the group of its node.
 * The other ranks of that node wait in this operation, and the ranks of all other nodes wait in an
 * operation of the group of all ranks. The code of crun reads all pages, encodes and decodes each
 * message, and finds the rank; only the pages and the network are simulated. Prints the median and
 * the largest time from the operator's order until the result, and the number of messages. Fails if
 * a trial names a rank other than the drawn one. */
#include "base/buffer.h"
#include "base/text/parse.h"
#include "base/time/clock.h"
#include "contract/progress.h"
#include "tests/bench/coordinator_actions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PER_NODE = 8, TRIALS = 200 };

struct node {
    struct coordinator_seat *seat;
    uint32_t first_rank;
    uint64_t asked; /* number of the inquiry that the node has to answer; 0 if it has none */
};

static struct coordinator *coordinator;
static struct node *nodes;
static struct channel_page *pages; /* [rank_count] */
static uint32_t rank_count, node_count, per_node;
static uint64_t messages;
static char found[1024];

static void expect(bool is_right, const char *what) {
    if (is_right) return;
    (void) fprintf(stderr, "behind: %s: %s\n", what, found);
    exit(1);
}

/* ---- the coordinator's actions ---- */

static void do_send(void *arg, void *peer, const struct rdzv_message *m) {
    struct node *n = peer;
    (void) arg;
    if (m->type == RDZV_ROUND) n->first_rank = m->round.first_rank;
    if (m->type == RDZV_ASK_PROGRESS) n->asked = m->ask_progress.inquiry;
    messages++;
}

static void on_behind(void *arg, const char *what) {
    (void) arg;
    (void) snprintf(found, sizeof(found), "%s", what);
}

static const struct coordinator_actions actions = {
    .send = do_send, .hang_up = no_hang_up, .open_store = no_store, .log = no_log,
    .wants_log = wants_no_log, .on_behind = on_behind};

/* ---- the workers' side: pages ---- */

static void show(uint32_t rank, size_t slot, uint64_t number, uint32_t place, uint32_t size) {
    struct channel_group *g = &pages[rank].groups[slot];
    (void) snprintf(g->name, sizeof(g->name), "group %u", (unsigned) number);
    g->place = place;
    g->size = size;
    atomic_store(&g->number, number + 1);
}

static void make_pages(void) {
    for (uint32_t r = 0; r < rank_count; r++) {
        uint32_t node = r / per_node, local = r % per_node;
        show(r, 0, 0, r, rank_count);
        show(r, 1, 1 + node, local, per_node);
        show(r, 2, 1 + node_count + local, node, node_count);
    }
}

static void set(uint32_t rank, size_t slot, uint32_t begun, bool waits) {
    atomic_store(&pages[rank].groups[slot].since_ns, cr_monotonic_ns() - 2000000000);
    atomic_store(&pages[rank].groups[slot].collective,
                 progress_collective(begun, 0, PROGRESS_ALL_REDUCE, waits, false));
}

/* Sets the pages: all ranks have made operations 0 to 15 of each group. `late` does not enter
 * operation 16 in the group of its node (slot 1), in which the other ranks of its node wait. The
 * ranks of all other nodes wait in operation 16 of the group of all ranks (slot 0). */
static void hang(uint32_t late) {
    for (uint32_t r = 0; r < rank_count; r++) {
        bool with_late = r / per_node == late / per_node;
        set(r, 0, with_late ? 16 : 17, !with_late);
        set(r, 1, with_late && r != late ? 17 : 16, with_late && r != late);
        set(r, 2, 16, false);
    }
}

/* ---- the agents' side ---- */

static void pass_on(struct node *n, const struct rdzv_message *m) {
    struct cr_buffer frame = {0};
    struct rdzv_message heard;
    size_t used = 0;
    expect(rdzv_message_encode(m, RDZV_VERSION_MAX, &frame) == 0 &&
               rdzv_message_decode(frame.data, frame.len, &heard, &used, NULL) == 0 &&
               coordinator_receive(coordinator, 0, n->seat, &heard, NULL) == 0,
           "a message failed");
    cr_buffer_done(&frame);
    messages++;
}

static void answer(struct node *n) {
    for (uint32_t r = n->first_rank; r < n->first_rank + per_node; r++) {
        for (size_t i = 0; i < CHANNEL_GROUPS_MAX; i++) {
            struct progress p;
            struct rdzv_message m = {.type = RDZV_PROGRESS};
            if (!progress_read(&pages[r].groups[i], &p)) continue;
            m.progress = (struct rdzv_progress){
                .inquiry = n->asked, .rank = r, .group = p.number, .name = p.name,
                .place = p.place, .size = p.size, .begun = p.begun, .seq = p.seq,
                .state = p.state == PROGRESS_COLLECTIVE ? RENDEZVOUS_WAITS_COLLECTIVE
                                                        : RENDEZVOUS_IDLE,
                .op = progress_kind_name(p.kind),
                .since_ms = (cr_monotonic_ns() - p.since_ns) / CR_NS_PER_MS};
            pass_on(n, &m);
        }
    }
    struct rdzv_message last = {.type = RDZV_PROGRESS};
    last.progress = (struct rdzv_progress){.inquiry = n->asked, .is_last = 1, .name = "", .op = ""};
    n->asked = 0;
    pass_on(n, &last);
}

static void join(uint32_t i) {
    char host[32];
    (void) snprintf(host, sizeof(host), "node-%06" PRIu32, i);
    struct rdzv_join j = {.host = host, .addr = "10.1.2.3", .role = "default", .pid = 4711,
                          .instance = i + 1, .connection = 1, .node_rank = -1,
                          .local_world_size = per_node, .last_rank = -1, .min_nodes = node_count,
                          .max_nodes = node_count, .join_timeout_ms = 600000,
                          .last_call_timeout_ms = 30000, .close_timeout_ms = 30000,
                          .keep_alive_interval_ms = 5000, .keep_alive_max_attempt = 3};
    nodes[i].seat = coordinator_join(coordinator, 0, &nodes[i], false, &j);
    expect(nodes[i].seat != NULL, "a node was refused");
}

/* Returns the time in ms from the operator's order until the line that names the rank. */
static double trial(uint32_t late) {
    char right[64];
    struct rdzv_operate order = {.run_id = "job", .host = "", .why = "bench"};
    hang(late);
    found[0] = '\0';
    messages = 0;
    int64_t since_ns = cr_monotonic_ns();
    (void) coordinator_operate(coordinator, 0, &order);
    for (uint32_t i = 0; i < node_count; i++) answer(&nodes[i]);
    double ms = (double) (cr_monotonic_ns() - since_ns) / 1e6;
    (void) snprintf(right, sizeof(right), "rank %" PRIu32 " has not entered ", late);
    expect(strncmp(found, right, strlen(right)) == 0, right);
    return ms;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void measure(uint32_t ranks) {
    double took[TRIALS];
    rank_count = ranks;
    per_node = ranks < PER_NODE ? 2 : PER_NODE;
    node_count = ranks / per_node;
    nodes = calloc(node_count, sizeof(*nodes));
    pages = calloc(rank_count, sizeof(*pages));
    coordinator = coordinator_new("job", &actions, NULL);
    if (nodes == NULL || pages == NULL || coordinator == NULL) abort();
    for (uint32_t i = 0; i < node_count; i++) join(i);
    make_pages();
    srand(1);
    for (int t = 0; t < TRIALS; t++) took[t] = trial((uint32_t) rand() % rank_count);
    qsort(took, TRIALS, sizeof(took[0]), by_value);
    (void) printf("%5" PRIu32 " ranks on %3" PRIu32 " nodes: median %.3f ms, largest %.3f ms, "
                  "%" PRIu64 " messages, %d of %d right\n",
                  ranks, node_count, took[TRIALS / 2], took[TRIALS - 1], messages, TRIALS, TRIALS);
    coordinator_free(coordinator);
    free(nodes);
    free(pages);
}

int main(int argc, char **argv) {
    static const uint32_t sizes[] = {4, 16, 64, 256, 1000};
    int64_t ranks = 0;
    for (int i = 1; i < argc; i++) {
        expect(cr_parse_i64(argv[i], 4, 100000, &ranks) == 0 && ranks % 8 == 0,
               "K is a multiple of 8");
        measure((uint32_t) ranks);
    }
    for (size_t i = 0; argc == 1 && i < sizeof(sizes) / sizeof(sizes[0]); i++) measure(sizes[i]);
    return 0;
}
