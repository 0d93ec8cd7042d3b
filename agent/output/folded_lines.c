/* Shows equal lines of several workers once, with the set of their ranks (--fold). */
#include "agent/output/log_relay_internal.h"
#include "base/time/clock.h"

#include <errno.h>
#include <string.h>

/* Returns the kind of this stream's lines for fold_add(), which folds only lines of the same kind.
 * Two streams have lines of the same kind if both are stdout or both are stderr, and if their
 * workers have the same role. */
static uint32_t kind_of(const struct tail *t) {
    const char *const *roles = t->relay->options.roles;
    uint32_t first = 0;
    while (roles != NULL && strcmp(roles[first], roles[t->local_rank]) != 0) first++;
    return first * WHICH_COUNT + t->which;
}

/* Returns how many workers write lines of this kind. */
static uint32_t count_wanted(struct log_relay *r, uint32_t kind) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->options.workers; i++) {
        const struct tail *t = stream_of(r, i, (enum which)(kind % WHICH_COUNT))->tail;
        count += t != NULL && kind_of(t) == kind;
    }
    return count;
}

static int append_line(struct log_relay *r, const struct fold_line *line, struct cr_buffer *out) {
    struct cr_buffer ranks = {0}, locals = {0};
    uint32_t workers = r->options.workers;
    struct stream *s = stream_of(r, line->kind / WHICH_COUNT, OUT);
    int rc = fold_ranks(&locals, line->joined, r->locals, workers);
    if (rc == 0) rc = fold_ranks(&ranks, line->joined, r->ranks, workers);
    if (rc == 0) rc = stream_prefix(s, locals.data, ranks.data, out);
    if (rc == 0) rc = cr_buffer_append(out, line->text, line->len);
    if (rc == 0) rc = cr_buffer_append(out, "\n", 1);
    cr_buffer_done(&ranks);
    cr_buffer_done(&locals);
    return rc;
}

static void on_timer(uv_timer_t *timer) { folded_lines_write(timer->data, false); }

/* Sets the timer to the time at which the oldest line must be taken out of the fold. If is_blocked
 * is true, lines have to wait for the console, and the timer tries again after FOLD_MS. */
static void arm(struct log_relay *r, bool is_blocked) {
    int64_t due_ms = fold_due_ms(r->fold), now_ms = cr_monotonic_ms();
    if (due_ms == CR_FOREVER || r->is_closing) {
        (void) uv_timer_stop(&r->fold_timer);
        return;
    }
    int64_t left_ms = is_blocked ? FOLD_MS : due_ms > now_ms ? due_ms - now_ms : 0;
    uv_update_time(r->loop);
    (void) uv_timer_start(&r->fold_timer, on_timer, (uint64_t) left_ms, 0);
}

void folded_lines_write(struct log_relay *r, bool all) {
    struct fold_line line;
    struct cr_buffer out = {0};
    if (r->fold == NULL) return;
    bool is_blocked = r->is_held[0] || r->is_held[1];
    while (!is_blocked && fold_take(r->fold, cr_monotonic_ms(), all, &line)) {
        cr_buffer_clear(&out);
        if (append_line(r, &line, &out) < 0) relay_warn_of_memory(r);
        else relay_write_lines(r, (int) (line.kind % WHICH_COUNT), out.data, out.len);
    }
    cr_buffer_done(&out);
    arm(r, is_blocked);
}

void folded_lines_add(struct tail *t, const char *line, size_t len) {
    struct log_relay *r = t->relay;
    uint32_t kind = kind_of(t);
    if (fold_add(r->fold, kind, count_wanted(r, kind), t->local_rank, line, len,
                 cr_monotonic_ms()) < 0) {
        relay_warn_of_memory(r);
    }
}

int folded_lines_open(struct log_relay *r) {
    if (!r->options.folds || r->options.is_json || r->options.workers < 2) return 0;
    r->fold = fold_new(r->options.workers);
    return r->fold != NULL ? 0 : -ENOMEM;
}

void folded_lines_close(struct log_relay *r) {
    fold_free(r->fold);
    r->fold = NULL;
}
