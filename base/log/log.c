/* Implements the log of base/log/log.h in three parts: the settings, the diversion (lines are kept
 * in memory, so that logging does not wait for stderr), and the formatting of a line. */
#include "base/log/log.h"

#include "base/text/text.h"
#include "base/time/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX_BYTES 192  /* longest beginning of a line, before its text */
#define HOST_MAX_BYTES 64   /* the host's name in a line, with its NUL */
#define LINE_MAX_BYTES 4096 /* longest text of a line before it is escaped; the rest is cut off */

static struct {
    const char *program;
    enum cr_log_level minimum;
    char host[HOST_MAX_BYTES]; /* this host's name up to the first dot */
    bool is_json;              /* true if lines are JSON objects */
    bool is_journal;           /* true if stderr is connected to systemd's journal */
} settings = {.program = "crun", .minimum = CR_LOG_WARN};

/* 1 while the log is diverted. Threads read this flag without the lock, so that they take the lock
 * only if the log is diverted. */
static atomic_int is_diverted;

static struct {
    pthread_mutex_t lock;
    cr_log_drain_fn drain; /* writes kept lines; NULL if the log is not diverted */
    void *arg;             /* parameter of drain() */
    struct cr_buffer kept; /* lines that drain() has not removed yet */
    uint64_t lost;         /* number of lines that were dropped after the last line in `kept` */
} diversion = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

/* Returns whether stderr is the stream that systemd has connected to its journal. systemd sets
 * JOURNAL_STREAM to the device and inode of that stream. The variable alone proves nothing, because
 * a process whose stderr was redirected inherits it, too. */
static bool writes_to_journal(void) {
    const char *text = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat st;
    if (text == NULL || fstat(STDERR_FILENO, &st) < 0) return false;
    (void) snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t) st.st_dev, (uintmax_t) st.st_ino);
    return strcmp(text, own) == 0;
}

void cr_log_setup(const char *program, enum cr_log_level minimum) {
    settings.program = program;
    settings.minimum = minimum;
    settings.is_journal = writes_to_journal();
    if (gethostname(settings.host, sizeof(settings.host) - 1) < 0) settings.host[0] = '\0';
    settings.host[strcspn(settings.host, ".")] = '\0';
}

void cr_log_use_json(void) { settings.is_json = true; }

enum cr_log_level cr_log_parse_level(const char *text, enum cr_log_level fallback) {
    if (text == NULL) return fallback;
    if (strcasecmp(text, "debug") == 0) return CR_LOG_DEBUG;
    if (strcasecmp(text, "info") == 0) return CR_LOG_INFO;
    if (strcasecmp(text, "warn") == 0 || strcasecmp(text, "warning") == 0) return CR_LOG_WARN;
    if (strcasecmp(text, "error") == 0 || strcasecmp(text, "critical") == 0) return CR_LOG_ERROR;
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0') return fallback;
    if (number <= 10) return CR_LOG_DEBUG;
    if (number <= 20) return CR_LOG_INFO;
    return number <= 30 ? CR_LOG_WARN : CR_LOG_ERROR;
}

int cr_log_enabled(enum cr_log_level level) { return level >= settings.minimum; }

static void log_trace(void *arg, const char *text) {
    (void) arg;
    cr_debug("%s", text);
}

struct cr_trace cr_log_trace(void) {
    return (struct cr_trace){.log = cr_log_enabled(CR_LOG_DEBUG) ? log_trace : NULL};
}

static int poll_stderr(int timeout_ms) {
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&p, 1, timeout_ms);
}

/* Writes all bytes to stderr. Waits while stderr is full, even if stderr is in non-blocking mode.
 * Another process may have set that mode, because processes that share an open file share its
 * mode. */
static void write_all(const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n < 0 && errno == EAGAIN) (void) poll_stderr(-1);
        /* if stderr fails, the rest of the line is dropped: the failure cannot be reported
         * anywhere */
        else if (n < 0 && errno != EINTR) return;
        if (n <= 0) continue;
        data += n;
        len -= (size_t) n;
    }
}

/* ---- the diversion ---- */

static void drain_nothing(void *arg, struct cr_buffer *kept) { (void) arg, (void) kept; }

/* The drain function of cr_log_never_wait(): writes as much as stderr takes without waiting. Each
 * write(2) has at most PIPE_BUF bytes, because poll(2) reports a pipe as writable when it has room
 * for PIPE_BUF bytes. */
static void drain_what_fits(void *arg, struct cr_buffer *kept) {
    (void) arg;
    while (kept->len > 0 && poll_stderr(0) > 0) {
        ssize_t n = write(STDERR_FILENO, kept->data, kept->len < PIPE_BUF ? kept->len : PIPE_BUF);
        if (n > 0) cr_buffer_consume(kept, (size_t) n);
        else if (errno == EAGAIN) return;
        else if (errno != EINTR) cr_buffer_clear(kept);
    }
}

static int append(const char *line, size_t len) {
    if (diversion.kept.len + len > CR_LOG_KEPT_MAX) return -ENOBUFS;
    return cr_buffer_append(&diversion.kept, line, len);
}

/* Writes the beginning of a log line to `out`, and returns its length in bytes. If stderr is a
 * stream of the systemd journal, which adds time and host to each line, the beginning is "<N>",
 * where N is the priority as in syslog(3). Otherwise the beginning is the time and the host. */
static size_t write_head(enum cr_log_level level, char out[HEAD_MAX_BYTES]) {
    static const int priorities[] = {7, 6, 4, 3};
    int n;
    if (settings.is_journal) {
        n = snprintf(out, HEAD_MAX_BYTES, "<%d>%.32s[%d] %s: ", priorities[level],
                     settings.program, (int) getpid(), level_names[level]);
        return (size_t) n;
    }
    struct timespec now;
    struct tm local;
    char time[32];
    (void) clock_gettime(CLOCK_REALTIME, &now);
    (void) localtime_r(&now.tv_sec, &local);
    (void) strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &local);
    n = snprintf(out, HEAD_MAX_BYTES, "%s.%03ld %s%s%.32s[%d] %s: ", time, now.tv_nsec / 1000000,
                 settings.host, settings.host[0] != '\0' ? " " : "", settings.program,
                 (int) getpid(), level_names[level]);
    return (size_t) n;
}

/* Appends a line as a JSON object, with its newline. Returns 0 or -ENOMEM. */
static int append_json(struct cr_buffer *out, enum cr_log_level level, const char *text,
                       size_t len) {
    char time[CR_UTC_TEXT_MAX];
    cr_utc_text(time, cr_wall_ns(), 3);
    int rc = cr_buffer_printf(out, "{\"time\":\"%s\",\"host\":", time);
    if (rc == 0) rc = cr_json_string_append(out, settings.host);
    if (rc == 0) {
        rc = cr_buffer_printf(out, ",\"program\":\"%.32s\",\"pid\":%d,\"level\":\"%s\",\"text\":",
                              settings.program, (int) getpid(), level_names[level]);
    }
    if (rc == 0) rc = cr_json_bytes_append(out, text, len);
    return rc < 0 ? rc : cr_buffer_append(out, "}\n", 2);
}

static int append_count_of_lost(void) {
    char line[HEAD_MAX_BYTES + 96];
    if (diversion.lost == 0) return 0;
    size_t n = settings.is_json ? 0 : write_head(CR_LOG_WARN, line);
    n += (size_t) snprintf(line + n, sizeof(line) - n,
                           "%" PRIu64 " lines are missing here: stderr was full%s",
                           diversion.lost, settings.is_json ? "" : "\n");
    int rc = settings.is_json ? append_json(&diversion.kept, CR_LOG_WARN, line, n)
                              : append(line, n);
    if (rc == 0) diversion.lost = 0;
    return rc;
}

/* 1 while this thread runs the drain function and holds the lock. If the drain function logs a
 * line, cr_log_text() drops the line; otherwise the thread would wait forever for its own lock. */
static _Thread_local int is_draining;

static void call_drain(void) {
    is_draining = 1;
    diversion.drain(diversion.arg, &diversion.kept);
    is_draining = 0;
}

static void drain(void) {
    call_drain();
    if (diversion.lost == 0 || append_count_of_lost() < 0) return;
    call_drain();
}

static void keep(const char *line, size_t len) {
    if (append_count_of_lost() < 0 || append(line, len) < 0) diversion.lost++;
    drain();
}

void cr_log_divert(cr_log_drain_fn drain_fn, void *arg) {
    (void) pthread_mutex_lock(&diversion.lock);
    diversion.drain = drain_fn != NULL ? drain_fn : drain_nothing;
    diversion.arg = arg;
    atomic_store(&is_diverted, 1);
    (void) pthread_mutex_unlock(&diversion.lock);
}

void cr_log_never_wait(void) { cr_log_divert(drain_what_fits, NULL); }

void cr_log_drain(void) {
    (void) pthread_mutex_lock(&diversion.lock);
    if (diversion.drain != NULL) drain();
    (void) pthread_mutex_unlock(&diversion.lock);
}

void cr_log_flush(void) {
    (void) pthread_mutex_lock(&diversion.lock);
    if (diversion.drain != NULL) {
        write_all(diversion.kept.data, diversion.kept.len);
        cr_buffer_clear(&diversion.kept);
        (void) append_count_of_lost();
        write_all(diversion.kept.data, diversion.kept.len);
    }
    cr_buffer_done(&diversion.kept);
    diversion.drain = NULL;
    atomic_store(&is_diverted, 0);
    (void) pthread_mutex_unlock(&diversion.lock);
}

static void log_bytes(const char *text, size_t len) {
    if (is_draining) return;
    if (!atomic_load(&is_diverted)) {
        write_all(text, len);
        return;
    }
    (void) pthread_mutex_lock(&diversion.lock);
    if (diversion.drain != NULL) keep(text, len);
    else write_all(text, len); /* another thread has ended the diversion before this thread got the
                                * lock */
    (void) pthread_mutex_unlock(&diversion.lock);
}

/* ---- the line of a wait ---- */

static struct {
    cr_log_waiting_fn show; /* NULL if waits are logged like other lines */
    void *arg;              /* parameter of show() */
} waiting;

void cr_log_show_waiting(cr_log_waiting_fn show, void *arg) {
    waiting.show = show;
    waiting.arg = arg;
}

bool cr_log_waiting(const char *text, int64_t waited_ms, int64_t left_ms) {
    if (waiting.show == NULL || !cr_log_enabled(CR_LOG_WARN)) return false;
    return waiting.show(waiting.arg, text, waited_ms, left_ms);
}

/* ---- formatting and writing a line ---- */

static void log_json(enum cr_log_level level, const char *text, size_t len) {
    struct cr_buffer line = {0};
    if (append_json(&line, level, text, len) == 0) log_bytes(line.data, line.len);
    cr_buffer_done(&line);
}

void cr_log_text(const char *text, size_t len) {
    bool is_object = len > 0 && text[0] == '{';
    if (!settings.is_json || is_object) {
        log_bytes(text, len);
        return;
    }
    if (len > 0 && text[len - 1] == '\n') len--;
    log_json(CR_LOG_ERROR, text, len);
}

void cr_log(enum cr_log_level level, const char *fmt, ...) {
    if (!cr_log_enabled(level) || level >= CR_LOG_OFF) return;
    char text[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (settings.is_json) {
        log_json(level, text, strlen(text));
        return;
    }
    char line[HEAD_MAX_BYTES + LINE_MAX_BYTES + 128];
    size_t n = write_head(level, line);
    n += cr_text_copy(line + n, sizeof(line) - n - 1, text, strlen(text));
    line[n++] = '\n';
    log_bytes(line, n);
}
