/* The ledger of a node: implements ledger.h. */
#include "agent/report/ledger.h"

#include <stddef.h>

#define P(NAME, word) word,
static const char *const part_words[] = {LEDGER_PARTS(P)};
#undef P
#define C(NAME, word) word,
static const char *const cause_words[] = {LEDGER_CAUSES(C)};
#undef C
#define S(NAME, word) word,
static const char *const sign_words[] = {LEDGER_SIGNS(S)};
#undef S

const char *ledger_part_word(enum ledger_part part) { return part_words[part]; }
const char *ledger_cause_word(enum ledger_cause cause) { return cause_words[cause]; }
const char *ledger_sign_word(enum ledger_sign sign) { return sign_words[sign]; }

/* ---- rows ---- */

static struct ledger_row *current(struct ledger *l) {
    return &l->rows[(l->row_count - 1) % LEDGER_ROWS_MAX];
}

static void open_row(struct ledger *l, enum ledger_cause cause) {
    l->row_count++;
    *current(l) = (struct ledger_row){.cause = cause, .began_ns = l->since_ns};
    l->cause_count[cause]++;
    l->first_step_ns = 0;
}

static bool is_lost(enum ledger_part part) { return part != LEDGER_WORK && part != LEDGER_WAIT; }

/* Adds the time from l->since_ns until until_ns to a part of the current row. */
static void charge(struct ledger *l, enum ledger_part part, int64_t until_ns) {
    struct ledger_row *row = current(l);
    int64_t ns = until_ns - l->since_ns;
    if (ns <= 0) return;
    row->part_ns[part] += ns;
    l->part_ns[part] += ns;
    if (is_lost(part)) l->lost_ns[row->cause] += ns;
    l->since_ns = until_ns;
}

static int64_t within(int64_t ns, int64_t from_ns, int64_t to_ns) {
    return ns < from_ns ? from_ns : ns > to_ns ? to_ns : ns;
}

/* Adds the time until until_ns to the part of the current phase. In the phase RUN, the time before
 * the first step belongs to one part, and the time after it to another. */
static void charge_phase(struct ledger *l, int64_t until_ns) {
    static const enum ledger_part parts[] = {
        [LEDGER_IN_RENDEZVOUS] = LEDGER_RENDEZVOUS, [LEDGER_IN_SPAWN] = LEDGER_SPAWN,
        [LEDGER_IN_WAIT] = LEDGER_WAIT, [LEDGER_IN_STOP] = LEDGER_STOP};
    if (l->phase != LEDGER_IN_RUN) {
        charge(l, parts[l->phase], until_ns);
        return;
    }
    switch (current(l)->sign) {
    case LEDGER_SIGN_UNKNOWN:
    case LEDGER_SIGN_COUNT: break;
    case LEDGER_SIGN_AWAITED: charge(l, LEDGER_FIRST_STEP, until_ns); break;
    case LEDGER_SIGN_OUTPUT:
    case LEDGER_SIGN_STEP:
        charge(l, LEDGER_FIRST_STEP, within(l->first_step_ns, l->since_ns, until_ns));
        break;
    }
    charge(l, LEDGER_WORK, until_ns);
}

/* ---- events ---- */

static void take_round(struct ledger *l, const struct ledger_event *e, int64_t now_ns) {
    struct ledger_row *row = current(l);
    charge_phase(l, now_ns);
    l->round_count++;
    row->has_round = true;
    row->round = e->round;
    row->restart_count = e->restart_count;
    /* If a round ends because of a failure on another node, the rendezvous only says that the round
     * is over, so the cause of this row is NODES at first. A failure costs a restart: if the new
     * round has a greater restart_count, the cause is changed to FAILURE_ELSEWHERE. */
    const struct ledger_row *before = l->row_count > 1 ? ledger_row(l, l->row_count - 2) : NULL;
    if (before != NULL && row->cause == LEDGER_BY_NODES &&
        e->restart_count > before->restart_count) {
        int64_t lost_ns = ledger_row_lost_ns(row);
        l->lost_ns[LEDGER_BY_NODES] -= lost_ns;
        l->lost_ns[LEDGER_BY_FAILURE_ELSEWHERE] += lost_ns;
        l->cause_count[LEDGER_BY_NODES]--;
        l->cause_count[LEDGER_BY_FAILURE_ELSEWHERE]++;
        row->cause = LEDGER_BY_FAILURE_ELSEWHERE;
    }
    l->phase = LEDGER_IN_SPAWN;
}

static void take_sign(struct ledger *l, const struct ledger_event *e, int64_t now_ns) {
    struct ledger_row *row = current(l);
    if (e->sign < row->sign) return; /* a more exact sign is known already */
    row->sign = e->sign;
    l->first_step_ns = within(e->since_ns, l->since_ns, now_ns);
}

static void take_broken(struct ledger *l, const struct ledger_event *e, int64_t now_ns) {
    charge_phase(l, within(e->since_ns, l->since_ns, now_ns));
    open_row(l, e->cause);
    charge(l, LEDGER_DETECT, now_ns);
    l->phase = LEDGER_IN_STOP;
}

static void enter(struct ledger *l, enum ledger_phase next, int64_t now_ns) {
    charge_phase(l, now_ns);
    l->phase = next;
}

static bool has_workers(const struct ledger *l) {
    return l->phase == LEDGER_IN_SPAWN || l->phase == LEDGER_IN_RUN || l->phase == LEDGER_IN_WAIT;
}

void ledger_step(struct ledger *l, const struct ledger_event *e, int64_t now_ns) {
    enum ledger_phase phase = l->phase;
    if (phase == LEDGER_ENDED) return;
    if (now_ns < l->since_ns) now_ns = l->since_ns;
    switch (e->type) {
    case LEDGER_EVENT_ROUND:
        if (phase == LEDGER_IN_RENDEZVOUS) take_round(l, e, now_ns);
        return;
    case LEDGER_EVENT_STARTED:
        if (phase == LEDGER_IN_SPAWN) enter(l, LEDGER_IN_RUN, now_ns);
        return;
    case LEDGER_EVENT_SIGN:
        if (phase == LEDGER_IN_RUN) take_sign(l, e, now_ns);
        return;
    case LEDGER_EVENT_BROKEN:
        if (has_workers(l)) take_broken(l, e, now_ns);
        return;
    case LEDGER_EVENT_DONE:
        if (phase == LEDGER_IN_RUN) enter(l, LEDGER_IN_WAIT, now_ns);
        return;
    case LEDGER_EVENT_GONE:
        if (phase == LEDGER_IN_STOP) enter(l, LEDGER_IN_RENDEZVOUS, now_ns);
        return;
    case LEDGER_EVENT_END:
    case LEDGER_EVENT_COUNT: break;
    }
    enter(l, LEDGER_ENDED, now_ns);
}

/* ---- reading ---- */

void ledger_init(struct ledger *l, int64_t now_ns) {
    *l = (struct ledger){.began_ns = now_ns, .since_ns = now_ns};
    open_row(l, LEDGER_BY_START);
}

void ledger_read(const struct ledger *l, int64_t now_ns, struct ledger *out) {
    *out = *l;
    ledger_step(out, &(struct ledger_event){.type = LEDGER_EVENT_END}, now_ns);
    out->phase = l->phase;
}

uint64_t ledger_first_row(const struct ledger *l) {
    return l->row_count > LEDGER_ROWS_MAX ? l->row_count - LEDGER_ROWS_MAX : 0;
}

const struct ledger_row *ledger_row(const struct ledger *l, uint64_t i) {
    if (i >= l->row_count || i < ledger_first_row(l)) return NULL;
    return &l->rows[i % LEDGER_ROWS_MAX];
}

int64_t ledger_wall_ns(const struct ledger *l) { return l->since_ns - l->began_ns; }

int64_t ledger_row_lost_ns(const struct ledger_row *row) {
    int64_t ns = 0;
    for (int i = 0; i < LEDGER_PART_COUNT; i++) {
        if (is_lost((enum ledger_part) i)) ns += row->part_ns[i];
    }
    return ns;
}

double ledger_effective(const struct ledger *l) {
    int64_t wall_ns = ledger_wall_ns(l);
    return wall_ns > 0 ? (double) l->part_ns[LEDGER_WORK] / (double) wall_ns : 0;
}
