/* The error file: what a launcher shows as the cause of a failed worker.
 *
 *   {"message": {"message": "…", "extraInfo": {"py_callstack": "…", "timestamp": "<epoch
 *   seconds>"}}}
 *
 * is what torch's @record writes; the launcher takes the smallest timestamp as the root cause. The
 * file is written beside its place and renamed, so that a launcher never reads half of one. */
#include "worker_runtime/report/report.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX ((size_t) 64 * 1024)

/* ---- JSON text ---- */

/* Bytes of the UTF-8 character at p[0…n), or 0 if it is none: overlong forms, surrogates and
 * numbers above U+10FFFF included. */
static size_t utf8_len(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return 1;
    size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < len) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
    }
    if (p[0] == 0xE0 && p[1] < 0xA0) return 0;
    if (p[0] == 0xED && p[1] > 0x9F) return 0;
    if (p[0] == 0xF0 && p[1] < 0x90) return 0;
    if (p[0] == 0xF4 && p[1] > 0x8F) return 0;
    return len;
}

static int append_json_string(struct cr_buffer *b, const char *text) {
    const unsigned char *p = (const unsigned char *) text;
    size_t left = strnlen(text, TEXT_MAX);
    int rc = cr_buffer_append(b, "\"", 1);
    while (rc == 0 && left > 0) {
        size_t len = utf8_len(p, left);
        if (len == 0)
            rc = cr_buffer_printf(b, "\\ufffd");
        else if (*p == '"' || *p == '\\')
            rc = cr_buffer_printf(b, "\\%c", *p);
        else if (*p == '\n')
            rc = cr_buffer_printf(b, "\\n");
        else if (*p < 0x20 || *p == 0x7f)
            rc = cr_buffer_printf(b, "\\u%04x", *p);
        else
            rc = cr_buffer_append(b, p, len);
        p += len > 0 ? len : 1;
        left -= len > 0 ? len : 1;
    }
    return rc < 0 ? rc : cr_buffer_append(b, "\"", 1);
}

static int format_error(struct cr_buffer *b, const char *message, const char *detail) {
    int rc = cr_buffer_printf(b, "{\"message\": {\"message\": ");
    if (rc == 0) rc = append_json_string(b, message);
    if (rc == 0) rc = cr_buffer_printf(b, ", \"extraInfo\": {\"py_callstack\": ");
    if (rc == 0) rc = append_json_string(b, detail);
    if (rc == 0)
        rc = cr_buffer_printf(b, ", \"timestamp\": \"%lld\"}}}\n",
                              (long long) (cr_wall_ns() / CR_NS_PER_S));
    return rc;
}

/* ---- the file ---- */

static int write_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        data += n;
        len -= (size_t) n;
    }
    return 0;
}

static int write_file(const char *path, const char *data, size_t len) {
    CR_AUTO_FREE char *temp = cr_asprintf("%s.%d", path, (int) getpid());
    if (temp == NULL)
        return cr_fail(rt_last_error(), -ENOMEM, "write the error file: out of memory");
    CR_AUTO_FD int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return cr_fail_errno(rt_last_error(), "create the error file '%s'", temp);
    int rc = write_all(fd, data, len);
    if (rc == 0 && rename(temp, path) < 0) rc = -errno;
    if (rc < 0) {
        (void) unlink(temp);
        errno = -rc;
        return cr_fail_errno(rt_last_error(), "write the error file '%s'", path);
    }
    return 0;
}

static const char *error_file_path(void) {
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    return path != NULL && path[0] != '\0' ? path : NULL;
}

int crunrt_report_error(const char *message, const char *detail) {
    struct cr_error cause = *rt_last_error(); /* what we report must survive our own failures */
    if (message == NULL) message = cause.text;
    const char *path = error_file_path();
    if (path == NULL) {
        return cr_fail(
            rt_last_error(), -ENOENT,
            "report an error: TORCHELASTIC_ERROR_FILE is not set; no launcher asked for one");
    }
    struct cr_buffer json = {0};
    int rc = format_error(&json, message, detail != NULL ? detail : message);
    if (rc < 0)
        rc = cr_fail(rt_last_error(), rc, "report an error: out of memory");
    else
        rc = write_file(path, json.data, json.len);
    cr_buffer_done(&json);
    return rc;
}

/* ---- fatal signals ----
 *
 * The handler runs when the heap may be broken, so all that it needs is prepared beforehand and it
 * calls only what POSIX declares safe there. */

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static struct {
    char path[4096], temp[4096 + 16];
    char stack[32 * 1024];
} fatal;

static const char *fatal_name(int signum) {
    switch (signum) {
    case SIGSEGV: return "Signal 11 (SIGSEGV): invalid memory reference at address 0x";
    case SIGBUS: return "Signal 7 (SIGBUS): bus error at address 0x";
    case SIGFPE: return "Signal 8 (SIGFPE): arithmetic fault at address 0x";
    case SIGILL: return "Signal 4 (SIGILL): illegal instruction at address 0x";
    default: return "Signal 6 (SIGABRT): aborted, address 0x";
    }
}

static char *put_text(char *to, const char *text) {
    while (*text != '\0') *to++ = *text++;
    return to;
}

static char *put_number(char *to, uint64_t n, unsigned base) {
    char digits[24];
    size_t i = sizeof(digits);
    do {
        digits[--i] = "0123456789abcdef"[n % base];
        n /= base;
    } while (n > 0);
    while (i < sizeof(digits)) *to++ = digits[i++];
    return to;
}

static void on_fatal_signal(int signum, siginfo_t *info, void *context) {
    (void) context;
    char json[512];
    uint64_t address = signum == SIGABRT ? 0 : (uint64_t) (uintptr_t) info->si_addr;
    char *p = put_text(json, "{\"message\": {\"message\": \"");
    p = put_number(put_text(p, fatal_name(signum)), address, 16);
    p = put_text(p, "\", \"extraInfo\": {\"py_callstack\": \"");
    p = put_number(put_text(p, fatal_name(signum)), address, 16);
    p = put_number(put_text(p, "\", \"timestamp\": \""), (uint64_t) (cr_wall_ns() / CR_NS_PER_S),
                   10);
    p = put_text(p, "\"}}}\n");
    int fd = open(fatal.temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0) {
        int rc = write_all(fd, json, (size_t) (p - json));
        (void) close(fd);
        if (rc == 0) (void) rename(fatal.temp, fatal.path);
    }
    (void) flight_dump(NULL, "fatal signal");
    /* SA_RESETHAND put the default action back: the signal ends us as it would have. */
    (void) raise(signum);
}

int crunrt_report_fatal_signals(void) {
    const char *path = error_file_path();
    if (path == NULL || strlen(path) >= sizeof(fatal.path)) {
        return cr_fail(rt_last_error(), -ENOENT,
                       "report fatal signals: TORCHELASTIC_ERROR_FILE is not set or too long");
    }
    (void) snprintf(fatal.path, sizeof(fatal.path), "%s", path);
    (void) snprintf(fatal.temp, sizeof(fatal.temp), "%s.%d", path, (int) getpid());
    stack_t alternate = {.ss_sp = fatal.stack, .ss_size = sizeof(fatal.stack)};
    if (sigaltstack(&alternate, NULL) < 0)
        return cr_fail_errno(rt_last_error(), "report fatal signals");
    struct sigaction action = {.sa_sigaction = on_fatal_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | (int) SA_RESETHAND};
    (void) sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CR_ARRAY_LEN(fatal_signals); i++) {
        if (sigaction(fatal_signals[i], &action, NULL) < 0) {
            return cr_fail_errno(rt_last_error(), "report fatal signal %d", fatal_signals[i]);
        }
    }
    return 0;
}
