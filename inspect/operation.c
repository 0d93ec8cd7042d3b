/* Finds out in which collective operation a worker with libcrunrt is. For this, it sends the dump
 * signal to the worker, whose signal handler writes the worker's flight record to a file
 * (worker_runtime/report/flight.c), and reads the file. */
#include "inspect/inspect_internal.h"

#include "base/cleanup.h"
#include "base/text/parse.h"
#include "base/text/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define DUMP_SIGNAL_VARIABLE "CRUNRT_DUMP_SIGNAL"
#define DUMP_SIGNAL          (SIGRTMIN + 5) /* libcrunrt's dump signal by default */
#define DUMP_MAX_MS          500            /* longest time in ms until the file is written */

/* Returns true if the process has loaded libcrunrt and has a handler for the signal. The signal
 * must not be sent to a process without a handler, because it would end the process. */
static bool has_handler(int64_t pid, int signum) {
    char path[64], line[1024];
    bool has_library = false;
    if (!inspect_catches(pid, signum)) return false;
    (void) snprintf(path, sizeof(path), "/proc/%" PRId64 "/maps", pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && !has_library && fgets(line, sizeof(line), f) != NULL) {
        has_library = strstr(line, "/libcrunrt.so") != NULL;
    }
    if (f != NULL) (void) fclose(f);
    return has_library;
}

/* Stores in `out` the path to which the worker writes its flight record. Returns the length of the
 * path, or 0 if the worker's environment names no such path. */
static size_t find_path(const struct inspect_row *row, char out[PATH_MAX]) {
    char prefix[PATH_MAX - 32], rank[16];
    int n = 0;
    if (inspect_variable(row->pid, "CRUNRT_FLIGHT_FILE", prefix, sizeof(prefix)) &&
        inspect_variable(row->pid, "RANK", rank, sizeof(rank))) {
        n = snprintf(out, PATH_MAX, "%s%s.json", prefix, rank);
    } else if (inspect_variable(row->pid, "TORCHELASTIC_ERROR_FILE", prefix, sizeof(prefix)) &&
               strrchr(prefix, '/') != NULL) {
        *strrchr(prefix, '/') = '\0';
        n = snprintf(out, PATH_MAX, "%s/flight.json", prefix);
    }
    return n > 0 && n < PATH_MAX ? (size_t) n : 0;
}

/* Sends the dump signal, and waits until the worker has written its flight record and renamed it to
 * `path`. Returns true if that happened within DUMP_MAX_MS. */
static bool request_record(int64_t pid, int signum, const char *path) {
    char folder[PATH_MAX], event[4096] __attribute__((aligned(8)));
    const char *slash = strrchr(path, '/');
    CR_AUTO_FD int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (slash == NULL || fd < 0) return false;
    (void) snprintf(folder, sizeof(folder), "%.*s", (int) (slash - path), path);
    if (inotify_add_watch(fd, folder, IN_MOVED_TO) < 0) return false;
    if (kill((pid_t) pid, signum) < 0) return false;
    for (struct pollfd p = {.fd = fd, .events = POLLIN}; poll(&p, 1, DUMP_MAX_MS) > 0;) {
        ssize_t n = read(fd, event, sizeof(event));
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *) (event + at);
            if (e->len > 0 && strcmp(e->name, slash + 1) == 0) return true;
            at += (ssize_t) (sizeof(*e) + e->len);
        }
    }
    return false;
}

/* Returns the text of a field of a flight record's entry; "?" if there is no such text. */
static const char *text_of(const json_t *entry, const char *name) {
    return json_string_value(json_object_get(entry, name));
}

void inspect_set_operation(struct inspect_row *row, bool is_running, const char *operation,
                           int64_t number, const char *group) {
    char text[INSPECT_TEXT_MAX];
    (void) snprintf(text, sizeof(text), "%s%s %" PRIi64 " of group '%s'",
                    is_running ? "" : "none; the last one was ",
                    operation != NULL ? operation : "?", number, group != NULL ? group : "?");
    (void) cr_text_copy(row->operation, sizeof(row->operation), text, strlen(text));
}

/* Sets row->operation to the oldest operation in the record that has not ended, because the later
 * ones perhaps only wait for its end. If all operations have ended, the text names the last one. */
static void describe(struct inspect_row *row, const json_t *record) {
    const json_t *entries = json_object_get(record, "entries"), *entry, *found = NULL;
    size_t i;
    bool is_running = false;
    json_array_foreach(entries, i, entry) {
        if (is_running) break;
        found = entry;
        const char *state = text_of(entry, "state");
        is_running = state != NULL && strcmp(state, "started") == 0;
    }
    if (found == NULL) return;
    inspect_set_operation(row, is_running, text_of(found, "op"),
                          json_integer_value(json_object_get(found, "seq")),
                          text_of(found, "group"));
}

void inspect_operation(struct inspect_row *row) {
    char path[PATH_MAX], number[16];
    int64_t signum = DUMP_SIGNAL;
    if (inspect_variable(row->pid, DUMP_SIGNAL_VARIABLE, number, sizeof(number)) &&
        cr_parse_i64(number, 1, SIGRTMAX, &signum) < 0) {
        return;
    }
    if (!has_handler(row->pid, (int) signum) || find_path(row, path) == 0) return;
    if (!request_record(row->pid, (int) signum, path)) {
        inspect_note(row, "operation: no flight record came within %d ms", DUMP_MAX_MS);
        return;
    }
    json_auto_t *record = json_load_file(path, 0, NULL);
    describe(row, record);
}
