/* libFuzzer target: the rules on what workers write. The input is a kind ('h' for hang rules, 'v'
 * for value rules), a text of rules up to the first NUL, and lines. Each refusal must have an error
 * text. No line may make the program crash. A rule that is broken must also be silent. */
#include "agent/watchdog/log_rules.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 3
/* Longest text of rules that is tried, in bytes: regcomp() of glibc takes much memory and time for
 * long expressions with nested repetitions. */
#define RULES_MAX 64

/* Returns whether the text may have an interval such as {1,255}, which makes regcomp() slow. */
static int is_expensive(const char *text) { return strchr(text, '{') != NULL; }

static void feed(struct log_rules *r, const char *at, const char *end) {
    int64_t now_ms = 0;
    for (uint32_t n = 0; at < end; n++) {
        const char *newline = memchr(at, '\n', (size_t) (end - at));
        size_t len = (size_t) ((newline != NULL ? newline : end) - at);
        struct log_rules_look look;
        bool changes = false;
        (void) log_rules_line(r, n % WORKERS, at, len, now_ms += 100, &changes);
        if (n % 7 == 6) log_rules_worker_ended(r, n % WORKERS);
        log_rules_look(r, now_ms, &look);
        if ((look.broken & ~look.silent) != 0 || look.next_ms <= now_ms) abort();
        at += len + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct log_rules *r = calloc(1, sizeof(*r));
    struct cr_error err = {0};
    if (r == NULL || size < 2) return free(r), 0;
    size_t len = strnlen((const char *) data + 1, size - 1);
    char *text = strndup((const char *) data + 1, len);
    if (text == NULL || len > RULES_MAX || is_expensive(text)) return free(text), free(r), 0;
    int rc = log_rules_add(r, data[0] == 'v', text, &err);
    if ((rc < 0) != (err.text[0] != '\0')) abort();
    if (rc == 0 && log_rules_open(r, WORKERS) == 0) {
        log_rules_begin(r, 0);
        const char *lines = (const char *) data + 1 + len;
        feed(r, lines, (const char *) data + size);
    }
    log_rules_done(r);
    free(text);
    free(r);
    return 0;
}
