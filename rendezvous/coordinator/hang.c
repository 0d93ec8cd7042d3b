/* Decides whether the job hangs.
 *
 * One node alone cannot decide it: its workers may wait for a rank of another node that works.
 * So each node that watches for a hang (--hang-timeout, --hang-rule) reports with QUIET for which
 * reasons its workers are silent, and whether the time of a reason is over there. The job hangs
 * when all nodes that watch for a reason are silent, and the time is over on at least one of them.
 *
 *   QUIET from the last silent node ─► ASK_INSPECT to all nodes ─► ROW…, INSPECTED from each node
 *       ─► HUNG to all nodes ─► FAILED from the node of the odd rank
 *
 * The rows of all nodes are compared (inspect/inspect.h), so the odd rank is found across nodes.
 * The node of this rank reports the failure as it reports any other, so it is charged once, and the
 * failure counts for its host. If no rank differs, the failure counts for no host.
 *
 * Nodes older than protocol version 8 decide for themselves, and do not count here. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include "base/text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSPECT_MS INT64_C(8000)         /* how long nodes may take to answer ASK_INSPECT */
#define LINES_MAX  ((size_t) 32 * 1024)  /* largest number of bytes of the lines in HUNG */
#define PIECE_MAX  ((size_t) 1000)       /* largest number of these bytes in one HUNG */

/* ---- what nodes have reported ---- */

static bool is_in_round(const struct coordinator_seat *s) {
    return s->group_rank >= 0 && (s->state == SEAT_RUNNING || s->state == SEAT_SUCCEEDED);
}

/* Sets what is assumed of a node before its first report in a round. */
static void begin_seat(struct coordinator_seat *s) {
    s->owed_rows = 0;
    if (s->hang == NULL) return;
    s->hang->silent = s->hang->watches & ~RENDEZVOUS_HANG_IDLE;
    s->hang->broken = 0;
    free(s->hang->what);
    s->hang->what = NULL;
}

void hang_seat_made(struct coordinator_seat *s, uint64_t watches) {
    if (watches == 0) return;
    s->hang = calloc(1, sizeof(*s->hang));
    if (s->hang != NULL) s->hang->watches = watches;
    begin_seat(s);
}

void hang_seat_done(struct coordinator_seat *s) {
    if (s->hang != NULL) free(s->hang->what);
    free(s->hang);
}

/* Returns the reasons for which the job hangs. */
static uint64_t find_reasons(const struct coordinator *c) {
    uint64_t all = UINT64_MAX, any = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        if (!is_in_round(s)) continue;
        if (s->peer == NULL) return 0; /* it is not known what a suspended node does */
        if (s->hang == NULL) continue;
        bool runs = s->state == SEAT_RUNNING;
        /* a node whose workers have ended well has none that could be active */
        all &= s->hang->silent | ~s->hang->watches | (runs ? 0 : RENDEZVOUS_HANG_IDLE);
        if (runs) any |= s->hang->broken;
    }
    /* A node that has ended well and is gone may have written the lines that the rules want. */
    return c->gone_after_success > 0 ? all & any & RENDEZVOUS_HANG_IDLE : all & any;
}

static void note_report(struct seat_hang *h, const struct rdzv_quiet *q) {
    h->silent = q->silent & h->watches;
    h->broken = q->broken & h->silent;
    h->quiet_ms = q->quiet_ms;
    free(h->what);
    h->what = h->broken != 0 ? strdup(q->what) : NULL;
}

/* ---- the inspection ---- */

static void drop_rows(struct coordinator_hang *h) {
    free(h->rows);
    h->rows = NULL;
    h->count = h->room = 0;
}

static void close_inspection(struct coordinator *c) {
    c->hang.is_open = false;
    drop_rows(&c->hang);
}

/* Copies the time and the text of the reason from the report of a node on which it is broken. */
static void note_reason(struct coordinator *c, uint64_t reasons) {
    struct coordinator_hang *h = &c->hang;
    h->reasons = reasons;
    h->quiet_ms = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        const struct seat_hang *q = s->hang;
        bool has_reason = is_in_round(s) && q != NULL && (q->broken & reasons) != 0;
        /* Of several such nodes, takes the one whose workers have been silent for the shortest
         * time: since then the whole job has been silent. */
        if (!has_reason || (h->quiet_ms > 0 && q->quiet_ms >= h->quiet_ms)) continue;
        h->quiet_ms = q->quiet_ms > 0 ? q->quiet_ms : 1;
        (void) snprintf(h->what, sizeof(h->what), "%s",
                        q->what != NULL ? q->what : "no memory left for the reason");
    }
}

static void begin_inspection(struct coordinator *c, uint64_t reasons, int64_t now_ms) {
    struct coordinator_hang *h = &c->hang;
    struct rdzv_message m = {.type = RDZV_ASK_INSPECT};
    note_reason(c, reasons);
    h->id = (h->id + 1) | RDZV_INSPECTION_OF_HANG;
    h->is_open = true;
    h->until_ms = now_ms + INSPECT_MS;
    m.ask_inspect = (struct rdzv_ask_inspect){.id = h->id, .why = "the job hangs"};
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        bool is_asked = is_in_round(s) && s->state == SEAT_RUNNING;
        s->owed_rows = is_asked ? 1 + s->local_world_size : 0;
        if (is_asked) seat_send(c, s, &m);
    }
    coordinator_wake_by(c, h->until_ms);
}

static bool make_room(struct coordinator *c) {
    struct coordinator_hang *h = &c->hang;
    if (h->count < h->room) return true;
    if (h->count >= c->world_size) return false;
    size_t room = h->room == 0 ? 16 : 2 * h->room;
    void *bigger = realloc(h->rows, room * sizeof(*h->rows));
    if (bigger == NULL) return false;
    h->rows = bigger;
    h->room = room;
    return true;
}

static void copy(char *out, size_t cap, const char *text) {
    (void) cr_text_copy(out, cap, text, strlen(text));
}

static void read_row(struct inspect_row *row, const struct rdzv_row *m) {
    inspect_row_init(row, (int64_t) m->pid);
    if (cr_text_printable_len(m->state, strlen(m->state)) == 1) row->state = m->state[0];
    copy(row->host, sizeof(row->host), m->host);
    copy(row->program, sizeof(row->program), m->program);
    copy(row->kernel, sizeof(row->kernel), m->kernel);
    copy(row->operation, sizeof(row->operation), m->operation);
    copy(row->python, sizeof(row->python), m->python);
    copy(row->native, sizeof(row->native), m->native);
    copy(row->note, sizeof(row->note), m->note);
}

/* Adds one row for each rank in the message. A rank that is not the node's is left out. */
void hang_got_row(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_row *m) {
    if (!c->hang.is_open || m->id != c->hang.id || s->owed_rows == 0) return;
    int64_t *ranks = calloc(s->local_world_size, sizeof(*ranks));
    struct inspect_row row;
    int64_t n = ranks != NULL ? inspect_read_ranks(m->ranks, ranks, s->local_world_size) : 0;
    read_row(&row, m);
    for (int64_t i = 0; i < n; i++) {
        if (!seat_has_rank(s, ranks[i]) || s->owed_rows == 1 || !make_room(c)) continue;
        s->owed_rows--;
        row.rank = ranks[i];
        row.local_rank = ranks[i] - (int64_t) s->first_rank;
        if (i > 0) row.pid = 0; /* the message has the pid of the first rank only */
        c->hang.rows[c->hang.count++] = row;
    }
    free(ranks);
}

/* ---- the result ---- */

static uint32_t count_debtors(const struct coordinator *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        n += s->owed_rows > 0 && s->peer != NULL ? 1 : 0;
    }
    return n;
}

/* Returns the node that has to report the failure: the node of this rank; or, if that node does not
 * watch for the reasons of the hang, any node that does. A node that does not watch for them cannot
 * tell whether its workers have gone on. NULL = there is none. */
static struct coordinator_seat *find_reporter(const struct coordinator *c, int64_t rank) {
    struct coordinator_seat *any = NULL;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        if (!is_in_round(s) || s->state != SEAT_RUNNING || s->hang == NULL) continue;
        if ((s->hang->watches & c->hang.reasons) == 0) continue;
        if (seat_has_rank(s, rank)) return s;
        any = s;
    }
    return any;
}

/* Sends one HUNG for each piece of the lines, to all nodes whose protocol version has HUNG. All
 * fields of m->hung are set except `decides`, `lines` and `is_last`. */
static void send_hung(struct coordinator *c, struct rdzv_message *m, const char *lines,
                      const struct coordinator_seat *reporter) {
    char piece[PIECE_MAX + 1];
    size_t left = strlen(lines);
    if (left > LINES_MAX) left = LINES_MAX;
    do {
        size_t n = left < PIECE_MAX ? left : PIECE_MAX;
        memcpy(piece, lines, n);
        piece[n] = '\0';
        lines += n;
        left -= n;
        m->hung.lines = piece;
        m->hung.is_last = left == 0;
        for (uint32_t i = 0; i < c->seat_count; i++) {
            const struct coordinator_seat *s = c->seats[i];
            m->hung.decides = s == reporter;
            if (is_in_round(s) && s->hang != NULL) seat_send(c, s, m);
        }
    } while (left > 0);
}

/* Writes the line that names the reason and the odd rank. */
static void describe(const struct coordinator *c, const struct coordinator_seat *reporter,
                     const char *odd, char out[RDZV_TEXT_MAX]) {
    char who[CR_HOST_MAX + 40], missing[60] = "";
    uint32_t debtors = count_debtors(c);
    if (c->group_size > 1) (void) snprintf(who, sizeof(who), "of %u nodes", c->group_size);
    else (void) snprintf(who, sizeof(who), "on %s", reporter->host);
    if (debtors > 0) {
        (void) snprintf(missing, sizeof(missing), " (%u node%s did not answer)", debtors,
                        debtors > 1 ? "s" : "");
    }
    (void) snprintf(out, RDZV_TEXT_MAX, "the workers %s hang (%s): %s%s", who, c->hang.what, odd,
                    missing);
}

/* Sorts the rows. Returns whether they have an odd rank; its row is then the first one. */
static bool sort_rows(struct coordinator_hang *h) {
    struct inspect_group *groups = NULL;
    size_t count = 0;
    if (inspect_fold(h->rows, h->count, &groups, &count) < 0) return false;
    bool has_odd = count > 0 && inspect_has_odd(groups, count);
    free(groups);
    return has_odd;
}

static void finish(struct coordinator *c) {
    struct coordinator_hang *h = &c->hang;
    char what[RDZV_TEXT_MAX];
    struct cr_buffer line = {0}, lines = {0};
    bool has_odd = sort_rows(h);
    int64_t rank = h->count > 0 ? h->rows[0].rank : 0;
    const struct coordinator_seat *reporter = find_reporter(c, rank);
    if (reporter != NULL && inspect_write_line(&line, h->rows, h->count) == 0 &&
        inspect_write_groups(&lines, h->rows, h->count, "  ") == 0) {
        struct rdzv_message m = {.type = RDZV_HUNG};
        describe(c, reporter, line.data != NULL ? line.data : "no worker was inspected", what);
        m.hung = (struct rdzv_hung){
            .round = c->round, .rank = (uint32_t) rank, .reasons = h->reasons,
            .quiet_ms = h->quiet_ms, .what = what,
            .pid = h->count > 0 && h->rows[0].pid > 0 ? (uint64_t) h->rows[0].pid : 0};
        send_hung(c, &m, lines.data != NULL ? lines.data : "", reporter);
        h->is_told = true;
        h->reporter = reporter->instance;
        h->is_unblamed = !has_odd;
    }
    cr_buffer_done(&line);
    cr_buffer_done(&lines);
    close_inspection(c);
}

void hang_got_inspected(struct coordinator *c, struct coordinator_seat *s, uint64_t id) {
    if (!c->hang.is_open || id != c->hang.id || c->phase != COORDINATOR_RUNNING) return;
    s->owed_rows = 0;
    if (count_debtors(c) == 0) finish(c);
}

/* ---- events ---- */

void hang_judge(struct coordinator *c, int64_t now_ms) {
    struct coordinator_hang *h = &c->hang;
    if (h->reports == 0 || c->phase != COORDINATOR_RUNNING) return;
    uint64_t reasons = find_reasons(c);
    bool is_other = h->is_open && (reasons & h->reasons) == 0;
    /* the node that had to report the hang has gone on, but does not watch for all its reasons */
    if (h->is_told && (h->reasons & ~reasons) != 0) h->is_told = false;
    if (reasons == 0) {
        h->is_told = h->is_unblamed = false;
        close_inspection(c);
    } else if (is_other || (!h->is_open && !h->is_told)) {
        drop_rows(h);
        begin_inspection(c, reasons, now_ms);
    }
}

void hang_node_succeeded(struct coordinator *c, const struct coordinator_seat *s) {
    if (c->hang.is_told && c->hang.reporter == s->instance) c->hang.is_told = false;
}

void hang_connection_lost(struct coordinator *c) {
    close_inspection(c);
    c->hang.is_told = false;
}

void hang_got_quiet(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_quiet *q,
                    int64_t now_ms) {
    bool is_old = c->phase == COORDINATOR_RUNNING && q->round != c->round;
    if (is_old || !is_in_round(s) || s->hang == NULL) return;
    note_report(s->hang, q);
    if (s->hang->broken != 0) c->hang.reports++;
    hang_judge(c, now_ms);
}

void hang_round_begins(struct coordinator *c) {
    close_inspection(c);
    c->hang.is_told = c->hang.is_unblamed = false;
    c->hang.reports = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) begin_seat(c->seats[i]);
}

void hang_tick(struct coordinator *c, int64_t now_ms) {
    if (!c->hang.is_open) return;
    if (c->phase != COORDINATOR_RUNNING) close_inspection(c);
    else if (now_ms >= c->hang.until_ms || count_debtors(c) == 0) finish(c);
}

void hang_done(struct coordinator *c) { drop_rows(&c->hang); }
