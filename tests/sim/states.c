/* Counts how many distinct states of the job were seen, without times, counts and random numbers. A
 * state is what each node, its workers, its member and its connection do; what each coordinator
 * does, and how it sees each node; and which faults last at present. Two states that differ only in
 * the order of the nodes are one.
 *
 * The number is estimated by HyperLogLog: of the states whose hash begins with the same 16 bits, it
 * keeps only the largest number of leading zeros in the rest of the hash. The standard error is
 * 0.4 %. The kept numbers of two runs can be merged by taking the larger ones, which long.py
 * does. */
#include "tests/sim/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BITS 16

/* The finalizer of splitmix64, which spreads each bit of `z` over the result. */
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Appends `value`, which has `bits` bits, to the word. */
static uint64_t add(uint64_t word, unsigned value, int bits) {
    return word << bits | (value & ((1U << bits) - 1));
}

/* ---- the state of one node ---- */

static uint64_t word_of_workers(const struct sim_node *n) {
    uint64_t word = 0;
    for (uint32_t i = 0; i < n->worker_count; i++) {
        const struct sim_worker *k = &n->workers[i];
        word = add(word, n->up ? (unsigned) n->node.workers[i].state : 0, 4);
        word = add(word, n->up ? (unsigned) n->node.workers[i].part : 0, 2);
        word = add(word, (unsigned) k->alive << 2 | (unsigned) k->waits << 1 | k->hangs, 3);
    }
    return word;
}

static uint64_t word_of_connection(const struct sim_node *n) {
    const struct conn *c = n->conn;
    uint64_t word = (uint64_t) n->session.state;
    if (c == NULL) return word;
    word = add(word, (unsigned) (c->connected << 1 | c->failed), 2);
    word = add(word, (unsigned) (c->node_open << 1 | c->host_open), 2);
    word = add(word, c->is_reset, 1);
    /* 0: the host of this connection is gone, 1: the host is the leader, 2: it is another host */
    return add(word, !host_serves(c) ? 0 : c->host == &n->w->hosts[n->w->leader] ? 1 : 2, 2);
}

static uint64_t word_of_node(const struct sim_node *n) {
    const struct history *history = &n->w->history;
    uint64_t word = (uint64_t) (n->up << 3 | (n->stalled_until != 0) << 2 | n->cut[0] << 1 |
                                n->cut[1]);
    /* 0: the node was in no round, 1: its last round is the newest one, 2: an older one */
    unsigned round = n->record < 0 ? 0 : n->record == history->round_count - 1 ? 1 : 2;
    word = add(word, round, 2);
    word = add(word, n->index == n->w->host_with_node, 1);
    if (!n->up) return mix(word);
    word = add(word, (unsigned) member_state(n->member), 4);
    word = add(word, (unsigned) n->node.group.state, 3);
    word = add(word, n->node.notice.given, 1);
    word = add(word, n->node.change.id != 0, 1);
    return mix(mix(word) ^ word_of_workers(n) ^ mix(word_of_connection(n) + 1));
}

/* ---- the state of one host ---- */

/* The states of the nodes as hash values, to which note_seat() adds the host's view of each
 * node. */
struct seats {
    uint64_t *nodes; /* by index of the node */
    uint64_t salt;   /* differs for each host */
};

static void note_seat(void *arg, const struct seat_view *seat) {
    const struct seats *s = arg;
    uint64_t word = (uint64_t) seat->state << 2 | (uint64_t) seat->suspended << 1 |
                    (seat->group_rank >= 0 ? 1 : 0);
    s->nodes[seat->host[1] - '0'] += mix(word + s->salt);
}

static uint64_t word_of_host(const struct host *h, uint64_t *nodes) {
    struct coordinator_view v;
    bool is_leader = h == &h->w->hosts[h->w->leader];
    jobs_look(h, &v);
    struct seats seats = {.nodes = nodes, .salt = is_leader ? 1000 : 2000};
    coordinator_visit(h->coordinator, note_seat, &seats);
    uint64_t word = (uint64_t) v.phase;
    word = add(word, (unsigned) (v.is_held << 2 | v.lacks_majority << 1 | v.decides), 3);
    word = add(word, (unsigned) (v.has_heirs << 1 | (v.spent < v.max_restarts)), 2);
    word = add(word, (unsigned) (h->terms->leads << 2 | h->may_form << 1 | h->closes), 3);
    word = add(word, (unsigned) (h->job->is_superseded << 1 | (h->stalled_until != 0)), 2);
    return mix(add(word, is_leader, 1));
}

/* ---- the whole state ---- */

static int compare_words(const void *pa, const void *pb) {
    const uint64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

static uint64_t hash_of(const struct world *w) {
    uint64_t nodes[NODES_MAX] = {0}, hash = (uint64_t) (w->heirs << 1 | w->elected);
    for (int i = 0; i < w->node_count; i++) nodes[i] = word_of_node(&w->nodes[i]);
    for (int i = 0; i < HOSTS_MAX; i++) {
        if (w->hosts[i].up) hash += word_of_host(&w->hosts[i], nodes);
    }
    qsort(nodes, (size_t) w->node_count, sizeof(nodes[0]), compare_words);
    for (int i = 0; i < w->node_count; i++) hash = mix(hash ^ nodes[i]);
    return mix(hash);
}

void states_note(struct world *w) {
    if (w->states == NULL) return;
    uint64_t hash = hash_of(w), rest = hash << INDEX_BITS | 1U << (INDEX_BITS - 1);
    uint8_t zeros = (uint8_t) (__builtin_clzll(rest) + 1);
    uint8_t *kept = &w->states[hash >> (64 - INDEX_BITS)];
    if (*kept < zeros) *kept = zeros;
}

int states_begin(struct world *w) {
    w->states = calloc(1U << INDEX_BITS, 1);
    return w->states == NULL ? -ENOMEM : 0;
}

int states_end(struct world *w, const char *path) {
    FILE *file = fopen(path, "wb");
    size_t size = 1U << INDEX_BITS;
    int rc = file != NULL && fwrite(w->states, 1, size, file) == size ? 0 : -EIO;
    if (file != NULL && fclose(file) != 0) rc = -EIO;
    if (rc < 0) (void) fprintf(stderr, "sim_rendezvous: cannot write '%s'\n", path);
    free(w->states);
    w->states = NULL;
    return rc;
}
