/* Makes all ranks of a job with stock torch write their flight records: sets the key
 * "exception_dump" in the job's store. A monitor thread of ProcessGroupNCCL in each rank reads this
 * key once a second, and writes the flight record if the key is set. ProcessGroupNCCL sets the key
 * itself when a collective takes too long. */
#include "inspect/inspector.h"

#include "inspect/inspect_internal.h"

#include "base/cleanup.h"
#include "base/text/parse.h"
#include "base/time/clock.h"
#include "store/store.h"

#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define DUMP_KEY   "exception_dump"
#define SET_MAX_MS 1000 /* longest time for connecting to the store and for setting the key */

/* Sets the key in the job's store. The value is an int, as torch expects it: the rank that has
 * found a fault, here that of `row`. */
static void set_key(const struct inspect_row *row) {
    char host[256], text[16];
    int64_t port;
    int rank = (int) row->rank;
    struct store_client *client;
    struct cr_error err = {0};
    if (!inspect_variable(row->pid, "MASTER_ADDR", host, sizeof(host))) return;
    if (!inspect_variable(row->pid, "MASTER_PORT", text, sizeof(text))) return;
    if (cr_parse_i64(text, 1, UINT16_MAX, &port) < 0) return;
    if (store_client_connect(host, (uint16_t) port, STORE_PROTOCOL_MODERN, SET_MAX_MS, &client,
                             &err) < 0) {
        return;
    }
    int64_t count;
    struct store *s = store_client_store(client);
    struct store_bytes value = {(const char *) &rank, sizeof(rank)};
    /* The request SET has no reply. So a second request, which has one, is sent: when its reply
     * comes, the server has carried out SET, too. */
    if (store_set(s, STORE_BYTES(DUMP_KEY), value, SET_MAX_MS, &err) == 0) {
        (void) store_num_keys(s, SET_MAX_MS, &count, &err);
    }
    store_client_close(client);
}

/* If the worker has ProcessGroupNCCL's pipe, watches the folder to which it writes its flight
 * record. Returns true if the folder is watched. */
static bool expect_record(int watch_fd, const struct inspect_row *row) {
    char stem[PATH_MAX], path[PATH_MAX];
    struct stat st;
    if (!inspect_dump_pipe(row->pid, path, sizeof(path))) return false;
    if (lstat(path, &st) < 0 || !S_ISFIFO(st.st_mode)) return false;
    if (!inspect_variable(row->pid, "TORCH_FR_DUMP_TEMP_FILE", stem, sizeof(stem))) return false;
    char *slash = strrchr(stem, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return inotify_add_watch(watch_fd, stem, IN_CLOSE_WRITE) >= 0;
}

/* Waits until `expected` flight records were written in the watched folders, at most
 * INSPECTOR_RING_MS. */
static void wait_for_records(int watch_fd, size_t expected) {
    int64_t deadline_ms = cr_deadline_ms(INSPECTOR_RING_MS);
    struct pollfd p = {.fd = watch_fd, .events = POLLIN};
    char events[4096] __attribute__((aligned(8)));
    while (expected > 0 && poll(&p, 1, cr_poll_timeout(deadline_ms)) > 0) {
        ssize_t n = read(watch_fd, events, sizeof(events));
        if (n <= 0) return;
        for (ssize_t at = 0; at < n && expected > 0;) {
            const struct inotify_event *e = (const void *) (events + at);
            if (strstr(e->len > 0 ? e->name : "", "flight_record") != NULL) expected--;
            at += (ssize_t) (sizeof(*e) + e->len);
        }
    }
}

void inspect_ring(const struct inspect_row *rows, size_t count) {
    CR_AUTO_FD int watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    size_t expected = 0;
    for (size_t i = 0; watch_fd >= 0 && i < count; i++) {
        expected += expect_record(watch_fd, &rows[i]);
    }
    if (count > 0) set_key(&rows[0]);
    wait_for_records(watch_fd, expected);
}
