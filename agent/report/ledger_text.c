/* Writes the ledger of a node as a table: implements ledger_text.h. */
#include "agent/report/ledger_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)

/* Returns the width of a part's column. The column has room for the part's word, and for seconds up
 * to 99999.999. */
static int width_of(int part) {
    int len = (int) strlen(ledger_part_word((enum ledger_part) part));
    return len < 9 ? 9 : len;
}

/* Appends one cell per part. The seconds are cut, not rounded, after the third decimal: the sum of
 * rounded cells could exceed the wall time. */
static int add_parts(struct cr_buffer *out, const int64_t part_ns[LEDGER_PART_COUNT]) {
    for (int i = 0; i < LEDGER_PART_COUNT; i++) {
        int64_t ms = part_ns[i] / MS;
        int rc = cr_buffer_printf(out, " %*" PRId64 ".%03" PRId64, width_of(i) - 4, ms / 1000,
                                  ms % 1000);
        if (rc < 0) return rc;
    }
    return cr_buffer_printf(out, "\n"); /* cr_buffer_printf() also adds a NUL */
}

static int add_head(struct cr_buffer *out) {
    int rc = cr_buffer_printf(out, "crun: %5s  %-11s", "round", "cause");
    for (int i = 0; rc == 0 && i < LEDGER_PART_COUNT; i++) {
        rc = cr_buffer_printf(out, " %*s", width_of(i), ledger_part_word((enum ledger_part) i));
    }
    return rc < 0 ? rc : cr_buffer_append(out, "\n", 1);
}

static int add_row(struct cr_buffer *out, const struct ledger_row *row) {
    char round[24] = "-";
    if (row->has_round) (void) snprintf(round, sizeof(round), "%" PRIu64, row->round);
    int rc = cr_buffer_printf(out, "crun: %5s  %-11s", round, ledger_cause_word(row->cause));
    return rc < 0 ? rc : add_parts(out, row->part_ns);
}

static int add_rows(struct cr_buffer *out, const struct ledger *l) {
    uint64_t i = ledger_first_row(l);
    int rc = 0;
    if (l->row_count - i > LEDGER_TEXT_ROWS_MAX) i = l->row_count - LEDGER_TEXT_ROWS_MAX;
    if (i > 0) rc = cr_buffer_printf(out, "crun: (%" PRIu64 " rows are left out)\n", i);
    for (; rc == 0 && i < l->row_count; i++) rc = add_row(out, ledger_row(l, i));
    return rc;
}

int ledger_text(struct cr_buffer *out, const struct ledger *l) {
    uint64_t again = l->round_count > 0 ? l->round_count - 1 : 0;
    int64_t ms = ledger_wall_ns(l) / MS;
    int rc = cr_buffer_printf(out,
                              "crun: where the time went, in seconds: %" PRId64 ".%03" PRId64
                              ", of which %.1f %% is work; %" PRIu64 " round%s after the first\n",
                              ms / 1000, ms % 1000, ledger_effective(l) * 100, again,
                              again == 1 ? "" : "s");
    if (rc == 0) rc = add_head(out);
    if (rc == 0) rc = add_rows(out, l);
    if (rc == 0) rc = cr_buffer_printf(out, "crun: %5s  %-11s", "all", "");
    return rc < 0 ? rc : add_parts(out, l->part_ns);
}
