/* Writes what the coordinators and nodes of a job with heirs do, as steps of the model
 * tests/model/succession.pml. tests/model/check_succession.py lets the model take these steps.
 *
 * The model has one coordinator for each node, and begins when the coordinator of its node 0 has
 * formed a round of all nodes. So a trace begins at the first such moment of a schedule, and the
 * number of the hosting node is exchanged with 0. The trace ends when something happens that the
 * model leaves out: a process ends, a round has so few nodes that it has no heirs, or the node
 * whose launcher has hosted takes over again. */
#include "rendezvous/coordinator/coordinator_internal.h"
#include "rendezvous/member/member_internal.h"
#include "tests/sim/world.h"

#define NO_HOST         (-1)
#define TRACE_NODES_MAX 4 /* most nodes of the model */

/* Returns the number of the node in the model. */
static int number_of(const struct world *w, int node) {
    if (node == 0) return w->host_with_node;
    return node == w->host_with_node ? 0 : node;
}

static const struct coordinator_seat *find_seat(const struct host *h, const struct sim_node *n) {
    for (uint32_t i = 0; h->up && i < h->coordinator->seat_count; i++) {
        if (h->coordinator->seats[i]->instance == n->instance) return h->coordinator->seats[i];
    }
    return NULL;
}

/* Returns whether the host's coordinator counts the ballot of the node as held. */
static bool holds(const struct host *h, const struct sim_node *n) {
    const struct coordinator_seat *s = find_seat(h, n);
    return s != NULL && s->confirmed_ms != COORDINATOR_NEVER &&
           s->confirmed_ms + h->coordinator->lease_ms > host_now(h);
}

/* Returns the index of the host at which the node has a seat for its present connection. */
static int linked_to(const struct world *w, const struct sim_node *n) {
    for (int i = 0; i < HOSTS_MAX; i++) {
        const struct coordinator_seat *s = find_seat(&w->hosts[i], n);
        if (s != NULL && s->peer == n->conn && n->conn->node_open) return i;
    }
    return NO_HOST;
}

static bool is_settled(const struct sim_node *n) { return n->member->succession.before_seen == 0; }

static int coordinator_of(const struct world *w, int host) {
    return number_of(w, w->hosts[host].owner);
}

static void write_step(struct world *w, const char *step, int a, int b) {
    (void) fprintf(w->trace.file, "%s %d %d\n", step, a, b);
}

static void end_trace(struct world *w, const char *why) {
    if (!w->trace.is_on) return;
    (void) fprintf(w->trace.file, "end %s\n", why);
    w->trace.is_on = false;
    w->trace.is_over = true;
}

/* ---- the begin ---- */

static bool is_ready_to_begin(const struct world *w) {
    const struct host *h = &w->hosts[0];
    if (!w->heirs || !h->up || w->history.round_count == 0) return false;
    const struct round_record *r = &w->history.rounds[w->history.round_count - 1];
    if (h->coordinator->succession.before.rounds_seen != 0 || r->host_id != h->id) return false;
    if ((int) r->group != w->node_count || w->node_count > TRACE_NODES_MAX) return false;
    for (int i = 0; i < w->node_count; i++) {
        const struct sim_node *n = &w->nodes[i];
        if (!n->up || n->record != w->history.round_count - 1 || linked_to(w, n) != 0 ||
            !holds(h, n) || !is_settled(n)) {
            return false;
        }
    }
    return true;
}

static void begin_trace(struct world *w) {
    struct trace *t = &w->trace;
    t->is_on = true;
    t->first_record = w->history.round_count - 1;
    (void) fprintf(t->file, "begin %d %" PRIu64 "\n", w->node_count, w->seed);
    for (int i = 0; i < w->node_count; i++) {
        t->record[i] = t->first_record;
        t->link[i] = 0;
        t->is_settled[i] = true;
        t->inc[i] = w->nodes[i].inc;
        for (int h = 0; h < HOSTS_MAX; h++) t->holds[h][i] = h == 0;
    }
}

/* ---- the steps ---- */

static void lose(struct world *w, int node) {
    if (w->trace.link[node] == NO_HOST) return;
    w->trace.link[node] = NO_HOST;
    write_step(w, "lose", 0, number_of(w, node));
}

static void note_releases(struct world *w, int node) {
    struct trace *t = &w->trace;
    for (int h = 0; h < HOSTS_MAX; h++) {
        if (!t->holds[h][node] || holds(&w->hosts[h], &w->nodes[node])) continue;
        t->holds[h][node] = false;
        write_step(w, "release", coordinator_of(w, h), number_of(w, node));
    }
}

/* Writes a step "join" if the node has got a seat on a new connection, or if its ballot has become
 * held again. */
static void note_join(struct world *w, int node) {
    struct trace *t = &w->trace;
    int h = linked_to(w, &w->nodes[node]);
    if (h == NO_HOST || !holds(&w->hosts[h], &w->nodes[node])) return;
    if (h == t->link[node] && t->holds[h][node]) return;
    t->link[node] = h;
    t->holds[h][node] = true;
    write_step(w, "join", coordinator_of(w, h), number_of(w, node));
}

static void note_round(struct world *w, int node) {
    struct trace *t = &w->trace;
    const struct sim_node *n = &w->nodes[node];
    if (n->record != t->record[node]) {
        t->record[node] = n->record;
        t->is_settled[node] = false;
        write_step(w, "hear", number_of(w, node), n->record - t->first_record + 1);
    }
    if (is_settled(n) && !t->is_settled[node]) {
        t->is_settled[node] = true;
        write_step(w, "settle", 0, number_of(w, node));
    }
}

void trace_note(struct world *w) {
    struct trace *t = &w->trace;
    if (t->file == NULL || t->is_over) return;
    if (!t->is_on && is_ready_to_begin(w)) begin_trace(w);
    for (int i = 0; t->is_on && i < w->node_count; i++) {
        if (!w->nodes[i].up || w->nodes[i].inc != t->inc[i]) end_trace(w, "a process has ended");
    }
    for (int i = 0; t->is_on && i < w->node_count; i++) {
        if (t->link[i] != NO_HOST && linked_to(w, &w->nodes[i]) != t->link[i]) lose(w, i);
        note_releases(w, i);
    }
    for (int i = 0; t->is_on && i < w->node_count; i++) {
        note_join(w, i);
        note_round(w, i);
    }
}

void trace_serve(struct host *h) {
    struct world *w = h->w;
    trace_note(w);
    if (!w->trace.is_on) return;
    if (h->owner == w->host_with_node) end_trace(w, "the first coordinator's node takes over");
    else write_step(w, "serve", 0, number_of(w, h->owner));
}

void trace_naming(const struct host *h, int node, uint64_t rounds_seen) {
    struct world *w = h->w;
    trace_note(w);
    const struct round_record *r = &w->history.rounds[w->trace.is_on ? w->trace.record[node] : 0];
    bool names_it = w->trace.is_on && rounds_seen == r->round + 1;
    if (names_it) write_step(w, "beat", 0, number_of(w, node));
}

void trace_form(const struct host *h) {
    struct world *w = h->w;
    int nodes = 0;
    trace_note(w);
    if (!w->trace.is_on) return;
    for (int i = 0; i < w->history.candidate_count; i++) {
        nodes |= 1 << number_of(w, w->history.candidates[i].node);
    }
    if (__builtin_popcount((unsigned) nodes) < 3) end_trace(w, "a round has no heirs");
    else write_step(w, "form", coordinator_of(w, (int) (h - w->hosts)), nodes);
}

void trace_end(struct world *w) {
    end_trace(w, "the schedule is over");
    w->trace.is_over = false;
}
