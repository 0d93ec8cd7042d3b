/* With CRUNRT_DEBUG=1, compares the calls of all ranks before each collective. If the calls differ,
 * all ranks fail with the same sentence. Without this check, the ranks would hang or compute wrong
 * numbers. The keys of call number <seq> are
 *
 *   check/<seq>/call           "rank 2: all_reduce(float32 x 1000, sum)", set by the first rank
 *   check/<seq>/count          number of ranks whose call is equal to that of the first rank
 *   check/<seq>/counts/<rank>  for an all-to-all with counts: the numbers of elements that the rank
 *                              sends to each rank, then the numbers that it expects from each rank
 *   check/<seq>/verdict        "ok" if all ranks agree, else a sentence that names the difference
 *
 * The check costs four requests to the store per rank and call. The last rank to arrive compares
 * the counts. The keys of call <seq> are deleted during call <seq> + 2. */
#include "worker_runtime/group/group.h"
#include "worker_runtime/group/op_check.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void key_of(uint32_t seq, const char *what, char out[64]) {
    (void) snprintf(out, 64, "check/%u/%s", seq, what);
}

/* Sets the key check/<seq>/verdict to `sentence`, unless another rank has set it before. Returns 0
 * or the store's error. */
static int set_verdict(struct crunrt_group *g, uint32_t seq, const char *sentence) {
    char key[64];
    key_of(seq, "verdict", key);
    return crunrt_store_compare_set(g->store, key, "", 0, sentence, strlen(sentence), NULL, NULL);
}

/* ---- the counts of an all-to-all: a row of 2 * size numbers per rank ---- */

static void counts_key(uint32_t seq, int rank, char out[64]) {
    (void) snprintf(out, 64, "check/%u/counts/%d", seq, rank);
}

static int put_counts(struct crunrt_group *g, const struct group_call *call) {
    char key[64];
    size_t n = (size_t) g->size;
    CR_AUTO_FREE uint64_t *row = calloc(2 * n, sizeof(*row));
    if (row == NULL) return cr_fail(rt_last_error(), -ENOMEM, "compare the counts: out of memory");
    for (size_t i = 0; i < n; i++) {
        row[i] = call->op.send_counts[i];
        row[n + i] = call->op.recv_counts[i];
    }
    counts_key(call->backend.seq, g->rank, key);
    return crunrt_store_set(g->store, key, row, 2 * n * sizeof(*row));
}

/* Reads the counts of all ranks into rows[], one row per rank, and deletes their keys. */
static int take_counts(struct crunrt_group *g, uint32_t seq, uint64_t *rows) {
    size_t row = 2 * (size_t) g->size, len = 0;
    for (int r = 0; r < g->size; r++) {
        char key[64];
        void *value = NULL;
        counts_key(seq, r, key);
        int rc = crunrt_store_get(g->store, key, 0, &value, &len);
        CR_AUTO_FREE void *held = value;
        if (rc < 0) return rc;
        if (len != row * sizeof(*rows))
            return cr_fail(rt_last_error(), -EPROTO, "compare the counts: '%s' is not a row", key);
        memcpy(rows + (size_t) r * row, held, len);
        (void) crunrt_store_delete(g->store, key, NULL);
    }
    return 0;
}

/* Compares the counts of an all-to-all, for each pair of a sender and a receiver. If the sender
 * sends another number of elements than the receiver expects from it, writes to `sentence` which
 * ranks these two are; otherwise leaves `sentence` unchanged. Returns 0 or the store's error. */
static int compare_counts(struct crunrt_group *g, uint32_t seq, const char *call,
                          char sentence[3 * OP_TEXT_MAX]) {
    size_t n = (size_t) g->size;
    CR_AUTO_FREE uint64_t *rows = calloc(2 * n * n, sizeof(*rows));
    if (rows == NULL) return cr_fail(rt_last_error(), -ENOMEM, "compare the counts: out of memory");
    int rc = take_counts(g, seq, rows);
    for (size_t from = 0; rc == 0 && from < n; from++) {
        for (size_t to = 0; to < n; to++) {
            uint64_t sent = rows[from * 2 * n + to], expected = rows[to * 2 * n + n + from];
            if (sent == expected) continue;
            (void) snprintf(sentence, 3 * OP_TEXT_MAX,
                            "mismatched collectives at #%u: in %s rank %zu sends %llu elements to "
                            "rank %zu, which expects %llu",
                            seq, call, from, (unsigned long long) sent, to,
                            (unsigned long long) expected);
            return 0;
        }
    }
    return rc;
}

/* ---- group_check_call() ---- */

static int compare_with_first(struct crunrt_group *g, const struct group_call *call) {
    char key[64], mine[OP_TEXT_MAX], text[OP_TEXT_MAX + 32];
    uint32_t seq = call->backend.seq;
    void *held = NULL;
    op_describe(&call->op, mine);
    (void) snprintf(text, sizeof(text), "rank %d: %s", g->rank, mine);
    key_of(seq, "call", key);
    int rc = crunrt_store_compare_set(g->store, key, "", 0, text, strlen(text), &held, NULL);
    if (rc < 0) return rc;
    CR_AUTO_FREE char *first = held;
    const char *first_call = strstr(first, ": ");
    if (first_call != NULL && strcmp(first_call + 2, mine) != 0) {
        char sentence[3 * OP_TEXT_MAX];
        (void) snprintf(sentence, sizeof(sentence),
                        "mismatched collectives at #%u: %.*s called %s and rank %d called %s", seq,
                        (int) (first_call - first), first, first_call + 2, g->rank, mine);
        return set_verdict(g, seq, sentence);
    }
    int64_t agree = 0;
    bool has_counts = call->op.kind == CRUNRT_OP_ALL_TO_ALL_COUNTS;
    if (has_counts) rc = put_counts(g, call);
    key_of(seq, "count", key);
    if (rc == 0) rc = crunrt_store_add(g->store, key, 1, &agree);
    if (rc < 0 || agree < g->size) return rc;
    char sentence[3 * OP_TEXT_MAX] = "ok";
    if (has_counts) rc = compare_counts(g, seq, mine, sentence);
    return rc < 0 ? rc : set_verdict(g, seq, sentence);
}

static void delete_check_keys(struct crunrt_group *g, uint32_t seq) {
    static const char *const parts[] = {"call", "count", "verdict"};
    for (size_t i = 0; i < CR_ARRAY_LEN(parts); i++) {
        char key[64];
        key_of(seq, parts[i], key);
        (void) crunrt_store_delete(g->store, key, NULL);
    }
}

int group_check_call(struct crunrt_group *g, const struct group_call *call, struct cr_error *err) {
    if (!g->compares_calls || op_is_p2p(call->op.kind)) return 0;
    uint32_t seq = call->backend.seq;
    char key[64];
    void *value = NULL;
    group_limit_store(g, call->op.timeout_ms);
    int rc = group_store_failure(compare_with_first(g, call), err);
    key_of(seq, "verdict", key);
    if (rc == 0) rc = group_wait_for_key(g, key, call->op.timeout_ms, err);
    if (rc == 0) {
        rc = group_store_failure(crunrt_store_get(g->store, key, 0, &value, NULL), err);
    }
    if (rc < 0) return cr_wrap(err, "compare the call with the other ranks");
    CR_AUTO_FREE char *verdict = value;
    /* Delete the keys of call seq - 2. Call seq - 1 succeeded, so every rank had begun it and so
     * had left call seq - 2: no rank reads its keys any more. */
    if (g->rank == 0 && seq >= 2) delete_check_keys(g, seq - 2);
    return strcmp(verdict, "ok") == 0 ? 0 : cr_fail(err, -EPROTO, "%s", verdict);
}
