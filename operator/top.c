/* crun-agent top: follows a job in a terminal: which rank holds it up, the ranks, the nodes, and
 * where the time went. */
#include "operator/operator_internal.h"
#include "operator/top_internal.h"

#include "base/text/parse.h"
#include "base/time/clock.h"
#include "status/attach.h"
#include "status/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTICE_MS INT64_C(60000) /* the key n announces that the node leaves in this many ms */
#define KEYS      "q quit  j/k select  s stacks  f flight record  l log  n notice"

enum { ONCE, JSON, INTERVAL, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [ONCE] = {.name = "once", .help = "print one view to stdout, and end"},
    [JSON] = {.name = "json", .help = "print the snapshot as JSON (docs/status.md), and end"},
    [INTERVAL] = {.name = "interval",
                  .value_name = "SECONDS",
                  .default_value = "2",
                  .words = "1 2 5",
                  .help = "time between two views; whole seconds"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

struct top {
    struct top_source source;
    struct status_view view;
    json_t *snapshot, *before; /* the newest snapshot; and the one before it, or NULL */
    char message[256];         /* shown in the last line until the next key; "" if there is none */
    int64_t interval_ms;
};

/* ---- one view ---- */

static int draw(struct top *t) {
    struct cr_buffer text = {0};
    top_terminal_size(&t->view.columns, &t->view.rows);
    t->view.snapshot = t->snapshot;
    t->view.before = t->before;
    t->view.footer = t->message[0] != '\0' ? t->message : KEYS;
    int rc = status_view(&text, &t->view);
    if (rc == 0) top_terminal_draw(text.data, text.len);
    cr_buffer_done(&text);
    return rc;
}

static void read_again(struct top *t) {
    struct cr_error err = {0};
    json_t *now = NULL;
    if (top_source_read(&t->source, &now, &err) < 0) {
        (void) snprintf(t->message, sizeof(t->message), "%.200s (q quits)", err.text);
        return;
    }
    json_decref(t->before);
    t->before = t->snapshot;
    t->snapshot = now;
}

/* ---- keys ---- */

static const char *field(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static void say(struct top *t, const char *text) {
    (void) snprintf(t->message, sizeof(t->message), "%.255s", text);
}

/* Runs `crun-agent why` for the job. */
static void show_stacks(struct top *t) {
    char *argv[8] = {(char *) "crun-agent", (char *) "why"};
    size_t n = 2;
    if (t->source.kind == TOP_COORDINATOR) argv[n++] = (char *) t->source.target;
    argv[n++] = (char *) "--job";
    argv[n++] = (char *) field(status_view_job(&t->view), "id");
    /* the result is not needed, because `why` prints its errors itself */
    (void) top_terminal_run("/proc/self/exe", argv, true);
}

/* Runs the user's pager with the log files of the selected rank. */
static void show_log(struct top *t) {
    static const char *const names[] = {"stdout.log", "stderr.log"};
    char paths[2][4096], *argv[5] = {NULL};
    const char *folder = field(status_view_rank(&t->view), "log_dir"), *pager = getenv("PAGER");
    size_t n = 1;
    if (pager == NULL || pager[0] == '\0') pager = "less";
    for (size_t i = 0; i < 2 && folder[0] != '\0'; i++) {
        (void) snprintf(paths[i], sizeof(paths[i]), "%s/%s", folder, names[i]);
        if (access(paths[i], R_OK) == 0) argv[n++] = paths[i];
    }
    if (n == 1) {
        say(t, "this rank has no log file here: start crun with --redirects or --tee");
        return;
    }
    argv[0] = (char *) pager;
    int rc = top_terminal_run(pager, argv, false);
    if (rc >= 0) return;
    (void) snprintf(t->message, sizeof(t->message), "cannot run '%.100s': %s", pager,
                    strerror(-rc));
}

/* Gives an order, and shows the result in the last line. If the snapshots come from this host, the
 * crun that made the newest one gets the order. If they come from a coordinator and the order is
 * STATUS_ORDER_DUMP, the coordinator gets the order and passes it on to all nodes. In all other
 * cases the order is not possible. */
static void give_order(struct top *t, enum status_order order) {
    const json_t *job = status_view_job(&t->view);
    struct rdzv_operate what = {.run_id = field(job, "id"), .host = "", .why = "crun-agent top"};
    struct cr_error err = {0};
    uint32_t nodes = 0;
    char behind[RENDEZVOUS_BEHIND_MAX] = "";
    int rc = -ENOTSUP;
    if (t->source.kind == TOP_HERE) {
        rc = status_give_order(field(t->snapshot, "socket"), order, NOTICE_MS, OPERATOR_TIMEOUT_MS);
    } else if (t->source.kind == TOP_COORDINATOR && order == STATUS_ORDER_DUMP) {
        rc = rendezvous_operate(&t->source.endpoint, OPERATOR_TIMEOUT_MS, &what, &nodes,
                                behind, &err);
    }
    if (rc == 0 && behind[0] != '\0') {
        say(t, behind);
    } else if (rc == 0 && order == STATUS_ORDER_DUMP) {
        say(t, "flight records are requested; crun's log says where they are");
    } else if (rc == 0) {
        say(t, "this node leaves the job in 60 s");
    }
    if (rc == -ENOTSUP) say(t, "not from here: use crun-agent notify or dump at HOST:PORT");
    else if (rc < 0) say(t, err.text[0] != '\0' ? err.text : "the job's crun does not answer");
}

static void confirm_notice(struct top *t) {
    say(t, "this node shall leave the job in 60 s: y/n?");
    (void) draw(t);
    int key = TOP_KEY_NONE;
    while (key == TOP_KEY_NONE) key = top_terminal_key(-1);
    t->message[0] = '\0';
    if (key == 'y') give_order(t, STATUS_ORDER_NOTICE);
}

/* Handles a key. Returns false if the key ends the program. */
static bool handle_key(struct top *t, int key) {
    t->message[0] = '\0';
    switch (key) {
    case 'q':
    case 3: /* Ctrl-C */
    case -1: return false;
    case 'j':
    case TOP_KEY_DOWN: t->view.selected++; break;
    case 'k':
    case TOP_KEY_UP: t->view.selected -= t->view.selected > 0 ? 1 : 0; break;
    case 's': show_stacks(t); break;
    case 'f': give_order(t, STATUS_ORDER_DUMP); break;
    case 'l': show_log(t); break;
    case 'n': confirm_notice(t); break;
    default: break;
    }
    return true;
}

static int follow(struct top *t) {
    int64_t next_ms = cr_monotonic_ms() + t->interval_ms;
    int rc = top_terminal_open();
    t->view.has_escapes = true;
    while (rc == 0) {
        rc = draw(t);
        int key = top_terminal_key((int) cr_time_left_ms(next_ms));
        if (key != TOP_KEY_NONE && !handle_key(t, key)) break;
        if (cr_time_left_ms(next_ms) > 0) continue;
        read_again(t);
        next_ms = cr_monotonic_ms() + t->interval_ms;
    }
    top_terminal_end();
    return rc;
}

/* ---- without a terminal ---- */

static int print_view(struct top *t) {
    struct cr_buffer text = {0};
    const char *columns = getenv("COLUMNS");
    int64_t width = 0;
    if (columns == NULL || cr_parse_i64(columns, 20, 1000, &width) < 0) width = 80;
    t->view.snapshot = t->snapshot;
    t->view.columns = (size_t) width;
    int rc = status_view(&text, &t->view);
    if (rc == 0 && fwrite(text.data, 1, text.len, stdout) != text.len) rc = -EIO;
    cr_buffer_done(&text);
    return rc;
}

static int print_json(const struct top *t) {
    int rc = json_dumpf(t->snapshot, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(14));
    (void) printf("\n");
    return rc < 0 ? -EIO : 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct top t = {0};
    struct cr_error err = {0};
    int64_t seconds;
    if (cr_parse_i64(line->value[INTERVAL], 1, 3600, &seconds) < 0) {
        return cr_complain_usage(command->name, "--interval: '%s' is not 1 to 3600",
                                 line->value[INTERVAL]);
    }
    t.interval_ms = seconds * 1000;
    int status = operator_authenticate(command, line);
    if (status != 0) return status;
    int rc = top_source_open(&t.source, line->arguments[0], &t.snapshot, &err);
    if (rc < 0) {
        cr_complain(command->name, "%s", err.text);
        return CR_EXIT_FAILED;
    }
    if (t.source.kind == TOP_HERE) t.view.run_id = line->arguments[0];
    rc = line->value[JSON] != NULL   ? print_json(&t)
         : line->value[ONCE] != NULL ? print_view(&t)
                                     : follow(&t);
    if (rc < 0) {
        cr_complain(command->name, "cannot show the job: %s%s", strerror(-rc),
                    rc == -ENOTTY ? "; give --once or --json" : "");
    }
    json_decref(t.snapshot);
    json_decref(t.before);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

const struct cr_command operator_top = {
    .name = "crun-agent top",
    .summary = "follow a job in a terminal: ranks, steps, who is behind",
    .arguments = "[JOB|HOST:PORT|unix:PATH]",
    .description =
        "Follows a job in a terminal. The first line says which rank holds the job up; that rank "
        "is also the first one of the table. JOB is the id of a job on this host, and may be left "
        "out if there is only one; HOST:PORT is its coordinator, which knows the nodes, or a "
        "status address (crun --status-addr), as is unix:PATH. `crun top` is the same, unless "
        "there is a file `top` in the current folder.",
    .help_tail =
        "Keys: j and k select a rank; s shows the stacks of all workers (crun-agent why), f "
        "requests flight records, l shows the rank's log files with $PAGER, n makes this node "
        "leave the job with notice, q quits.",
    .options = options,
    .option_count = OPTION_COUNT,
    .max_arguments = 1,
    .run = run,
};
