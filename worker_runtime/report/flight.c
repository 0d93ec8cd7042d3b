/* The flight recorder: a ring buffer of the process's last operations. It is in static memory, so
 * that the handler of a fatal signal can write it to a file. The file is
 *
 *   {"version": 1, "rank": 0, "world_size": 4, "reason": "…", "agent": "connected",
 *    "now_ns": …, "entries": [
 *     {"id": 17, "group": "world", "seq": 17, "op": "all_reduce", "dtype": 7, "count": 1000,
 *      "reduce": 0, "root": 0, "state": "started", "started_ns": …, "ended_ns": 0}, …]}
 *
 * Times are in ns of the monotonic clock. The last entry is the newest one. The ring buffer has no
 * lock, because a signal handler must not wait for a lock. So if another thread writes an entry
 * during a dump, this entry in the file can have fields of two operations; but the file is always
 * valid JSON. A dump to the default path goes to a temporary file, which is renamed when it is
 * complete, so that a reader never sees half of it. */
#include "worker_runtime/report/report.h"

#include "base/files/private_file.h"
#include "base/files/write_all.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLIGHT_ENTRIES 2000

struct entry {
    uint64_t number;
    int64_t started_ns, ended_ns;
    uint64_t count;
    uint32_t seq;
    int32_t root;
    uint8_t kind, dtype, reduce, state;
    char group[24]; /* the group's name, with '?' in place of each character that JSON would
                     * escape */
};

static struct entry ring[FLIGHT_ENTRIES];
static _Atomic uint64_t next_number;
static int own_rank = -1, own_world_size;
static char own_path[PATH_MAX];
static char agent_state[256] = "none is named";

/* ---- recording ---- */

static char safe_char(char c) {
    unsigned char u = (unsigned char) c;
    return u < 0x20 || u > 0x7e || u == '"' || u == '\\' ? '?' : c;
}

uint64_t flight_begin(const char *group, uint32_t seq, const crunrt_op *op) {
    uint64_t number = atomic_fetch_add_explicit(&next_number, 1, memory_order_relaxed);
    struct entry *e = &ring[number % FLIGHT_ENTRIES];
    e->number = number;
    e->started_ns = cr_monotonic_ns();
    e->ended_ns = 0;
    e->count = op->count;
    e->seq = seq;
    e->root = op->root;
    e->kind = (uint8_t) op->kind;
    e->dtype = (uint8_t) op->dtype;
    e->reduce = (uint8_t) op->reduce;
    e->state = FLIGHT_STARTED;
    size_t i = 0;
    for (; i < sizeof(e->group) - 1 && group[i] != '\0'; i++) e->group[i] = safe_char(group[i]);
    e->group[i] = '\0';
    return number;
}

void flight_end(uint64_t number, bool has_succeeded) {
    struct entry *e = &ring[number % FLIGHT_ENTRIES];
    if (e->number != number) return; /* a newer operation has overwritten this entry */
    e->ended_ns = cr_monotonic_ns();
    e->state = has_succeeded ? FLIGHT_COMPLETED : FLIGHT_FAILED;
}

int64_t flight_started_ns(uint64_t number) { return ring[number % FLIGHT_ENTRIES].started_ns; }

/* Sets the default path. It is $CRUNRT_FLIGHT_FILE + rank + ".json"; if that variable is not set,
 * it is flight.json in the folder of $TORCHELASTIC_ERROR_FILE; if neither is set, it is "". */
void flight_set_place(int rank, int world_size) {
    const char *prefix = getenv("CRUNRT_FLIGHT_FILE"), *error = getenv("TORCHELASTIC_ERROR_FILE");
    own_rank = rank;
    own_world_size = world_size;
    own_path[0] = '\0';
    int n = 0;
    if (prefix != NULL && prefix[0] != '\0') {
        n = snprintf(own_path, sizeof(own_path), "%s%d.json", prefix, rank);
    } else if (error != NULL && strrchr(error, '/') != NULL) {
        int folder = (int) (strrchr(error, '/') - error);
        n = snprintf(own_path, sizeof(own_path), "%.*s/flight.json", folder, error);
    }
    if (n < 0 || (size_t) n >= sizeof(own_path)) own_path[0] = '\0';
}

const char *flight_path(void) { return own_path; }

void flight_set_agent(const char *state) {
    (void) snprintf(agent_state, sizeof(agent_state), "%s", state);
}

/* ---- writing, safe in a signal handler ---- */

struct out {
    int fd, rc;
    size_t len;
    char data[4096];
};

static void flush(struct out *o) {
    if (o->rc == 0) o->rc = cr_write_all(o->fd, o->data, o->len);
    o->len = 0;
}

static void put_char(struct out *o, char c) {
    if (o->len == sizeof(o->data)) flush(o);
    o->data[o->len++] = c;
}

static void put(struct out *o, const char *text) {
    for (; *text != '\0'; text++) put_char(o, *text);
}

static void put_number(struct out *o, const char *name, int64_t n) {
    char digits[24];
    size_t i = sizeof(digits);
    uint64_t rest = n < 0 ? 0 - (uint64_t) n : (uint64_t) n;
    put(o, name);
    if (n < 0) put_char(o, '-');
    do {
        digits[--i] = (char) ('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    while (i < sizeof(digits)) put_char(o, digits[i++]);
}

static void put_text(struct out *o, const char *text) {
    for (; *text != '\0'; text++) put_char(o, safe_char(*text));
}

static void put_entry(struct out *o, const struct entry *e) {
    static const char *const states[] = {"started", "completed", "failed"};
    put_number(o, "\n  {\"id\": ", (int64_t) e->number);
    put(o, ", \"group\": \"");
    put(o, e->group);
    put_number(o, "\", \"seq\": ", e->seq);
    put(o, ", \"op\": \"");
    put(o, op_kind_name((crunrt_op_kind) e->kind));
    put_number(o, "\", \"dtype\": ", e->dtype);
    put_number(o, ", \"count\": ", (int64_t) e->count);
    put_number(o, ", \"reduce\": ", e->reduce);
    put_number(o, ", \"root\": ", e->root);
    put(o, ", \"state\": \"");
    put(o, states[e->state % 3]);
    put_number(o, "\", \"started_ns\": ", e->started_ns);
    put_number(o, ", \"ended_ns\": ", e->ended_ns);
    put(o, "}");
}

static int write_record(int fd, const char *reason) {
    struct out o = {.fd = fd};
    uint64_t end = atomic_load_explicit(&next_number, memory_order_relaxed);
    put_number(&o, "{\"version\": 1, \"rank\": ", own_rank);
    put_number(&o, ", \"world_size\": ", own_world_size);
    put(&o, ", \"reason\": \"");
    put_text(&o, reason);
    put(&o, "\", \"agent\": \"");
    put_text(&o, agent_state);
    put_number(&o, "\", \"now_ns\": ", cr_monotonic_ns());
    put(&o, ", \"entries\": [");
    for (uint64_t n = end > FLIGHT_ENTRIES ? end - FLIGHT_ENTRIES : 0; n < end; n++) {
        if (n != (end > FLIGHT_ENTRIES ? end - FLIGHT_ENTRIES : 0)) put(&o, ",");
        put_entry(&o, &ring[n % FLIGHT_ENTRIES]);
    }
    put(&o, "]}\n");
    flush(&o);
    if (close(o.fd) < 0 && o.rc == 0) o.rc = -errno;
    return o.rc;
}

/* Sets `out` to the name of a temporary file, "<path>.<n>". Each dump has another n, because a
 * signal can interrupt a dump and begin a second one. snprintf() is not used, because POSIX does
 * not allow it in a signal handler. */
static void temporary_name(char out[PATH_MAX + 16], const char *path) {
    static atomic_uint dumps;
    unsigned n = atomic_fetch_add(&dumps, 1);
    size_t len = strlen(path);
    memcpy(out, path, len);
    out[len++] = '.';
    do {
        out[len++] = (char) ('0' + n % 10);
        n /= 10;
    } while (n > 0);
    out[len] = '\0';
}

int flight_dump(const char *path, const char *reason) {
    char temporary[PATH_MAX + 16];
    if (path == NULL && own_path[0] == '\0') return -ENOENT;
    /* A path that the caller gives can be a terminal or a pipe. So the record is written to it
     * directly, and not to a temporary file. */
    if (path != NULL) {
        int fd = cr_private_open(path, O_WRONLY | O_CREAT | O_TRUNC);
        return fd < 0 ? fd : write_record(fd, reason);
    }
    temporary_name(temporary, own_path);
    int fd = cr_private_create(temporary);
    if (fd < 0) return fd;
    int rc = write_record(fd, reason);
    if (rc == 0 && rename(temporary, own_path) < 0) rc = -errno;
    if (rc < 0) (void) unlink(temporary);
    return rc;
}

int crunrt_flight_dump(const char *path) {
    int rc = flight_dump(path, "requested by the program");
    if (path == NULL && own_path[0] == '\0') {
        return cr_fail(rt_last_error(), -ENOENT,
                       "write the flight record: no path was given, and crunrt_init() has found "
                       "neither CRUNRT_FLIGHT_FILE nor TORCHELASTIC_ERROR_FILE");
    }
    if (rc < 0) {
        errno = -rc;
        return cr_fail_errno(rt_last_error(), "write the flight record to '%s'",
                             path != NULL ? path : own_path);
    }
    return 0;
}
