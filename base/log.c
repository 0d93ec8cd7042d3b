#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096

static struct {
    const char *program;
    enum cr_log_level minimum;
    cr_log_sink_fn sink;
    void *arg;
} settings = {.program = "crun", .minimum = CR_LOG_WARN};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

void cr_log_setup(const char *program, enum cr_log_level minimum, cr_log_sink_fn sink, void *arg) {
    settings.program = program;
    settings.minimum = minimum;
    settings.sink = sink;
    settings.arg = arg;
}

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

/* Copies `text`, writing control bytes as \xNN; keeps newlines out of the middle of a line. */
static size_t escape(char *out, size_t cap, const char *text) {
    size_t n = 0;
    for (; *text != '\0' && n + 5 < cap; text++) {
        unsigned char c = (unsigned char) *text;
        if (c >= 0x20 && c != 0x7f) {
            out[n++] = (char) c;
        } else {
            n += (size_t) snprintf(out + n, cap - n, "\\x%02x", c);
        }
    }
    out[n] = '\0';
    return n;
}

void cr_log(enum cr_log_level level, const char *fmt, ...) {
    if (!cr_log_enabled(level) || level >= CR_LOG_OFF) return;
    char text[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (settings.sink != NULL) {
        settings.sink(settings.arg, level, text);
        return;
    }
    char line[LINE_MAX_BYTES + 128];
    int head = snprintf(line, 100, "%s[%d] %s: ", settings.program, (int) getpid(),
                        level_names[level]);
    size_t n = (size_t) head + escape(line + head, sizeof(line) - (size_t) head - 1, text);
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, n);
    (void) written; /* nowhere left to complain */
}
