/* Implements pairs_internal.h: pairs the nodes for the paired tests, and judges the results. */
#include "rendezvous/rules/pairs_internal.h"

static bool has_failed_with(const struct pairs_node *node, const struct pairs_node *other) {
    for (size_t i = 0; i < node->failures; i++) {
        if (node->failed_with[i] == other->id) return true;
    }
    return false;
}

static bool may_meet(const struct pairs_node *a, const struct pairs_node *b) {
    return !has_failed_with(a, b) && !has_failed_with(b, a);
}

/* Returns the index of a node in the state `state` that is in no pair yet and may be tested with
 * node `i`; `n` if there is none. The search begins behind `i`, because the nodes before `i` are
 * mostly in pairs already. */
static size_t find(struct pairs_node *const *nodes, size_t n, const bool *used, size_t i,
                   enum pairs_state state) {
    for (size_t k = 1; k < n; k++) {
        size_t j = (i + k) % n;
        if (!used[j] && nodes[j]->state == state && may_meet(nodes[i], nodes[j])) return j;
    }
    return n;
}

/* Returns the best partner of node `i`, or `n` if there is none. Two untested nodes test each
 * other. A suspect gets a node that has passed, because the result then says most. */
static size_t find_partner(struct pairs_node *const *nodes, size_t n, const bool *used, size_t i) {
    static const enum pairs_state of_suspect[] = {PAIRS_PASSED, PAIRS_UNTESTED, PAIRS_SUSPECT};
    static const enum pairs_state of_untested[] = {PAIRS_UNTESTED, PAIRS_PASSED, PAIRS_SUSPECT};
    const enum pairs_state *wanted = nodes[i]->state == PAIRS_SUSPECT ? of_suspect : of_untested;
    for (size_t k = 0; k < 3; k++) {
        size_t j = find(nodes, n, used, i, wanted[k]);
        if (j < n) return j;
    }
    return n;
}

static size_t pair_all(struct pairs_node *const *nodes, size_t n, enum pairs_state state,
                       bool *used, struct pairs_pair *out) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (used[i] || nodes[i]->state != state) continue;
        size_t j = find_partner(nodes, n, used, i);
        if (j == n) continue;
        used[i] = used[j] = true;
        out[count++] = (struct pairs_pair){.a = i, .b = j};
    }
    return count;
}

size_t pairs_plan(struct pairs_node *const *nodes, size_t n, bool *used, struct pairs_pair *out) {
    for (size_t i = 0; i < n; i++) used[i] = false;
    size_t count = pair_all(nodes, n, PAIRS_SUSPECT, used, out);
    return count + pair_all(nodes, n, PAIRS_UNTESTED, used, out + count);
}

static void note_failure(struct pairs_node *node, const struct pairs_node *other) {
    if (node->state == PAIRS_PASSED) return;
    node->state = PAIRS_SUSPECT;
    if (node->failures < PAIRS_TRIES) node->failed_with[node->failures++] = other->id;
}

void pairs_note(struct pairs_node *a, struct pairs_node *b, bool passed) {
    if (passed) {
        a->state = b->state = PAIRS_PASSED;
        a->failures = b->failures = 0;
        return;
    }
    note_failure(a, b);
    note_failure(b, a);
}

void pairs_forget(struct pairs_node *node) {
    node->state = PAIRS_UNTESTED;
    node->failures = 0;
}

enum pairs_verdict pairs_judge(struct pairs_node *const *nodes, size_t n, size_t i) {
    const struct pairs_node *node = nodes[i];
    size_t witnesses = 0; /* nodes that have passed, and with which this node has failed */
    bool has_partner = false;
    if (node->state != PAIRS_SUSPECT) return PAIRS_FIT;
    for (size_t j = 0; j < n; j++) {
        bool failed = has_failed_with(node, nodes[j]);
        if (failed && nodes[j]->state == PAIRS_PASSED) witnesses++;
        if (j != i && may_meet(node, nodes[j])) has_partner = true;
    }
    if (witnesses >= 2 || node->failures == PAIRS_TRIES) return PAIRS_AT_FAULT;
    if (has_partner) return PAIRS_FIT;
    return witnesses > 0 ? PAIRS_AT_FAULT : PAIRS_UNCLEAR;
}
