/* The error file, in which a failed worker states its cause for the launcher. base/error_json.h has
 * its format. A launcher takes the record with the smallest timestamp as the root cause. */
#include "worker_runtime/report/report.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error_json.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    int rc = cr_error_json_append(&json, message, detail != NULL ? detail : message,
                                  cr_wall_ns() / CR_NS_PER_S);
    if (rc == 0) rc = cr_error_json_write_file(path, json.data, json.len);
    cr_buffer_done(&json);
    if (rc == 0) return 0;
    return cr_fail(rt_last_error(), rc, "write the error file '%s': %s", path, strerror(-rc));
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

static void on_fatal_signal(int signum, siginfo_t *info, void *context) {
    (void) context;
    char json[512];
    uint64_t address = signum == SIGABRT ? 0 : (uint64_t) (uintptr_t) info->si_addr;
    char *p = put_text(json, CR_ERROR_JSON_HEAD "\"");
    p = put_number(put_text(p, fatal_name(signum)), address, 16);
    p = put_text(p, "\"" CR_ERROR_JSON_STACK "\"");
    p = put_number(put_text(p, fatal_name(signum)), address, 16);
    p = put_text(p, "\"" CR_ERROR_JSON_TIME);
    p = put_number(p, (uint64_t) (cr_wall_ns() / CR_NS_PER_S), 10);
    p = put_text(p, CR_ERROR_JSON_TAIL);
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
