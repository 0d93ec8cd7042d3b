/* Writes the error file of a worker that a fatal signal ends: the signal's handler writes the
 * signal's number and the faulting address to the file.
 *
 * When the handler runs, the heap may be damaged and the stack may have overflowed. So the file's
 * paths are formatted when the handler is installed; the handler runs on a stack of its own, and
 * calls only functions that POSIX allows in a handler. */
#include "worker_runtime/report/report_internal.h"

#include "base/files/error_json.h"
#include "base/files/private_file.h"
#include "base/files/write_all.h"
#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static struct {
    char path[4096];
    char temp[4096 + 16]; /* path of the temporary file, which is renamed to `path` when it is
                           * complete */
    char stack[32 * 1024];
} fatal;

/* ---- the handler ---- */

/* Returns the error text for a signal, up to the "0x" of the faulting address, to which put_cause()
 * appends the digits. */
static const char *describe_signal(int signum) {
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

/* Writes the error text as a JSON string to `to`, for example "Signal 11 (SIGSEGV): invalid memory
 * reference at address 0x0". Returns a pointer to the end of the string. */
static char *put_cause(char *to, int signum, const siginfo_t *info) {
    uint64_t address = signum == SIGABRT ? 0 : (uint64_t) (uintptr_t) info->si_addr;
    to = put_text(put_text(to, "\""), describe_signal(signum));
    return put_text(put_number(to, address, 16), "\"");
}

static void write_error_file(const char *json, size_t len) {
    int fd = cr_private_create(fatal.temp);
    if (fd < 0) return;
    int rc = cr_write_all(fd, json, len);
    (void) close(fd);
    if (rc == 0) (void) rename(fatal.temp, fatal.path);
}

static void on_fatal_signal(int signum, siginfo_t *info, void *context) {
    (void) context;
    char json[512], *p = put_text(json, CR_ERROR_JSON_HEAD);
    p = put_cause(p, signum, info);
    p = put_text(p, CR_ERROR_JSON_STACK);
    p = put_cause(p, signum, info);
    p = put_text(p, CR_ERROR_JSON_TIME);
    p = put_number(p, (uint64_t) (cr_wall_ns() / CR_NS_PER_S), 10);
    p = put_text(p, CR_ERROR_JSON_TAIL);
    write_error_file(json, (size_t) (p - json));
    (void) flight_dump(NULL, "fatal signal");
    /* SA_RESETHAND has restored the signal's default action, so this ends the process. */
    (void) raise(signum);
}

/* ---- crunrt_report_fatal_signals(): installs the handler ---- */

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
