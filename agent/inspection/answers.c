/* Answers operators who have ordered an inspection: sends one row for each group of equal rows, and
 * then the message INSPECTED. */
#include "agent/inspection/answers.h"

#include "base/log/log.h"

#include <stdlib.h>

/* Sends one row for a group of equal rows: the most telling one, with the ranks of all. */
static int send_group(struct answers *a, uint64_t id, const struct inspect_row *rows,
                      size_t count) {
    struct cr_buffer ranks = {0};
    const struct inspect_row *r = inspect_most_telling(rows, count);
    int rc = inspect_write_ranks(&ranks, rows, count, SIZE_MAX, ",");
    if (rc == 0) {
        const struct rendezvous_row row = {
            .ranks = ranks.data, .pid = rows[0].pid, .state = r->state, .host = r->host,
            .program = r->program, .kernel = r->kernel, .operation = r->operation,
            .python = r->python, .native = r->native, .note = r->note};
        rendezvous_row(a->rendezvous, id, &row);
    }
    cr_buffer_done(&ranks);
    return rc;
}

static void answer(struct answers *a, uint64_t id, const struct inspect_row *rows,
                   const struct inspect_group *groups, size_t group_count) {
    uint32_t sent = 0;
    for (size_t i = 0; i < group_count; i++) {
        if (send_group(a, id, &rows[groups[i].first], groups[i].count) == 0) sent++;
    }
    rendezvous_inspected(a->rendezvous, id, sent);
}

static void on_rows(void *arg, struct inspect_row *rows, size_t count) {
    struct answers *a = arg;
    struct inspect_group *groups = NULL;
    size_t group_count = 0;
    if (inspect_fold(rows, count, &groups, &group_count) < 0) group_count = 0;
    a->is_running = false;
    for (size_t i = 0; i < a->count; i++) answer(a, a->ids[i], rows, groups, group_count);
    a->count = 0;
    free(groups);
}

void answers_add(struct answers *a, uv_loop_t *loop, uint64_t id, const struct inspect_row *rows,
                 size_t count) {
    struct cr_error err = {0};
    if (a->count == ANSWERS_MAX || count == 0) {
        rendezvous_inspected(a->rendezvous, id, 0);
        return;
    }
    a->ids[a->count++] = id;
    if (a->is_running) return;
    if (a->inspection != NULL) inspection_close(a->inspection, NULL, NULL);
    a->inspection = NULL;
    int rc = inspection_start(loop, rows, count, on_rows, a, &a->inspection, &err);
    a->is_running = rc == 0;
    if (rc == 0) return;
    cr_warn("%s", err.text);
    a->count = 0;
    rendezvous_inspected(a->rendezvous, id, 0);
}

bool answers_close(struct answers *a, void (*on_close)(void *arg), void *arg) {
    if (a->inspection == NULL) return false;
    inspection_close(a->inspection, on_close, arg);
    a->inspection = NULL;
    return true;
}
