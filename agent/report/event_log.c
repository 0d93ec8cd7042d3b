/* Writes the event log: implements event_log.h. */
#include "agent/report/event_log.h"

#include "base/files/private_file.h"
#include "base/log/log.h"
#include "base/time/clock.h"
#include "status/json_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct event_log {
    int fd;
    const char *path, *run_id, *host;
    int64_t began_ns;
    bool is_broken; /* true if a line could not be written, and the user was warned */
};

int event_log_open(const char *path, const char *run_id, const char *host, int64_t began_ns,
                   struct event_log **out, struct cr_error *err) {
    struct event_log *log = calloc(1, sizeof(*log));
    if (log == NULL) return cr_fail(err, -ENOMEM, "cannot open the event log: no memory left");
    *log = (struct event_log){.path = path, .run_id = run_id, .host = host, .began_ns = began_ns};
    /* O_NONBLOCK: if the file is a named pipe, crun must not wait for its reader. Without a reader,
     * open(2) fails. If the pipe is full, write(2) fails and the line is lost. */
    int rc = log->fd = cr_private_open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK);
    if (rc < 0) {
        free(log);
        return cr_fail(err, rc, "cannot open the event log '%s' (--event-log): %s", path,
                       strerror(-rc));
    }
    *out = log;
    return 0;
}

void event_log_close(struct event_log *log) {
    if (log == NULL) return;
    (void) close(log->fd);
    free(log);
}

/* ---- one line ---- */

static void warn(struct event_log *log, int code) {
    if (log->is_broken) return;
    log->is_broken = true;
    cr_warn("cannot write the event log '%s': %s; the job goes on, but events are missing there",
            log->path, strerror(code));
}

static void write_line(struct event_log *log, const json_t *event) {
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (text == NULL) {
        warn(log, ENOMEM);
        return;
    }
    size_t len = strlen(text);
    text[len] = '\n'; /* the newline replaces the NUL, so that one write(2) is enough */
    ssize_t n = write(log->fd, text, len + 1);
    if (n < 0) warn(log, errno);
    else if ((size_t) n < len + 1) warn(log, ENOSPC);
    free(text);
}

void event_log_write(struct event_log *log, const char *event, json_t *fields) {
    char now[CR_UTC_TEXT_MAX];
    json_auto_t *rest = fields;
    if (log == NULL) return;
    cr_utc_text(now, cr_wall_ns(), 6);
    json_auto_t *line = json_pack("{s:s, s:f, s:s, s:o, s:o}", "time", now, "at_s",
                                  (double) (cr_monotonic_ns() - log->began_ns) / 1e9, "event",
                                  event, "job", status_json_text(log->run_id), "host",
                                  status_json_text(log->host));
    if (line == NULL || rest == NULL || json_object_update(line, rest) < 0) warn(log, ENOMEM);
    else write_line(log, line);
}

/* ---- the ledger ---- */

static double seconds(int64_t ns) { return (double) ns / 1e9; }

static json_t *parts_json(const int64_t part_ns[LEDGER_PART_COUNT]) {
    json_t *parts = json_object();
    for (int i = 0; i < LEDGER_PART_COUNT; i++) {
        (void) json_object_set_new(parts, ledger_part_word((enum ledger_part) i),
                                   json_real(seconds(part_ns[i])));
    }
    return parts;
}

json_t *ledger_row_json(const struct ledger *l, const struct ledger_row *row) {
    return json_pack("{s:o, s:I, s:s, s:s, s:f, s:o}", "round",
                     row->has_round ? json_integer((json_int_t) row->round) : json_null(),
                     "restart", (json_int_t) row->restart_count, "cause",
                     ledger_cause_word(row->cause), "first_step_by", ledger_sign_word(row->sign),
                     "began_s", seconds(row->began_ns - l->began_ns), "parts_s",
                     parts_json(row->part_ns));
}

static json_t *causes_json(const struct ledger *l) {
    json_t *causes = json_object();
    for (int i = 0; i < LEDGER_CAUSE_COUNT; i++) {
        if (l->cause_count[i] == 0) continue;
        (void) json_object_set_new(causes, ledger_cause_word((enum ledger_cause) i),
                                   json_pack("{s:I, s:f}", "count", (json_int_t) l->cause_count[i],
                                             "lost_s", seconds(l->lost_ns[i])));
    }
    return causes;
}

json_t *ledger_json(const struct ledger *l) {
    json_t *rows = json_array();
    for (uint64_t i = ledger_first_row(l); i < l->row_count; i++) {
        (void) json_array_append_new(rows, ledger_row_json(l, ledger_row(l, i)));
    }
    return json_pack("{s:f, s:f, s:I, s:o, s:o, s:o}", "wall_s", seconds(ledger_wall_ns(l)),
                     "effective", ledger_effective(l), "rounds", (json_int_t) l->round_count,
                     "parts_s", parts_json(l->part_ns), "causes", causes_json(l), "rows", rows);
}
