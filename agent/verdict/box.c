/* Writes the box with which torchrun ends a failed job. Tools parse it, so its format is
 * torchrun's. */
#include "agent/verdict/verdict_internal.h"

#include "base/text/text.h"
#include "base/time/clock.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define BORDER_MAX 60 /* width of torchrun's widest border, in characters */

/* Appends the text, and indents every line but the first by two blanks, as torchrun does. */
static int append_indented(struct cr_buffer *out, const char *text) {
    for (;;) {
        size_t len = strcspn(text, "\n");
        TRY(cr_text_append(out, text, len, ""));
        text += len;
        if (*text == '\0') return 0;
        TRY(cr_buffer_printf(out, "\n  "));
        text++;
    }
}

static int append_traceback(struct cr_buffer *out, const struct verdict_worker *w) {
    const struct error_record *e = &w->error;
    if (e->traceback != NULL) return append_indented(out, e->traceback);
    if (e->message != NULL) return append_indented(out, e->message);
    if (e->flaw != NULL) return cr_buffer_printf(out, "unreadable error file: %s", e->flaw);
    if (w->exit_code < 0) {
        const char *name = sigabbrev_np(-w->exit_code);
        return cr_buffer_printf(out, "Signal %d (%s%s) received by PID %d", -w->exit_code,
                                name != NULL ? "SIG" : "", name != NULL ? name : "<N/A>",
                                (int) w->pid);
    }
    return cr_buffer_printf(
        out, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html");
}

/* Appends the time of the failure: the time that the worker's error record states, if it lies
 * between the start and the death of the worker; otherwise the time of the death. */
static int append_time(struct cr_buffer *out, const struct verdict_worker *w) {
    time_t when = (time_t) (w->died_ns / CR_NS_PER_S);
    int64_t stated = w->error.timestamp_s;
    if (w->error.present && stated >= w->started_ns / CR_NS_PER_S && stated <= when) {
        when = (time_t) stated;
    }
    struct tm tm;
    char text[64];
    if (localtime_r(&when, &tm) == NULL) return 0;
    (void) strftime(text, sizeof(text), "%Y-%m-%d_%H:%M:%S", &tm);
    return cr_buffer_printf(out, "%s", text);
}

static int append_block(struct cr_buffer *out, const struct verdict *v, size_t index,
                        size_t number) {
    const struct verdict_worker *w = &v->workers[index];
    const char *path = w->error.present ? w->error_path : "<N/A>";
    TRY(cr_buffer_printf(out, "[%zu]:\n  time      : ", number));
    TRY(append_time(out, w));
    TRY(cr_buffer_printf(out, "\n  host      : %s\n  rank      : %u (local_rank: %u)\n", v->host,
                         w->rank, w->local_rank));
    TRY(cr_buffer_printf(out, "  exitcode  : %d (pid: %d)\n  error_file: ", w->exit_code,
                         (int) w->pid));
    TRY(cr_text_append(out, path, strlen(path), ""));
    TRY(cr_buffer_printf(out, "\n  traceback : "));
    TRY(append_traceback(out, w));
    return cr_buffer_append(out, "\n", 1);
}

/* Appends one block for each failed worker; workers that crun stopped are left out. The blocks are
 * numbered 0, 1, 2 … in the order of local ranks. The block of the first failure goes to `root`,
 * the others to `others`. */
static int append_blocks(struct cr_buffer *others, struct cr_buffer *root, const struct verdict *v,
                         size_t first) {
    size_t number = 0;
    for (size_t i = 0; i < v->count; i++) {
        if (i != first && verdict_is_victim(&v->workers[i])) continue;
        TRY(append_block(i == first ? root : others, v, i, number));
        number++;
    }
    if (others->len == 0) return cr_buffer_printf(others, "  <NO_OTHER_FAILURES>\n");
    return 0;
}

static size_t longest_line(const char *text, size_t len) {
    size_t longest = 0;
    for (size_t at = 0; at < len;) {
        const char *lf = memchr(text + at, '\n', len - at);
        size_t line = (lf == NULL ? len : (size_t) (lf - text)) - at;
        if (line > longest) longest = line;
        at += line + 1;
    }
    return longest > BORDER_MAX ? BORDER_MAX : longest;
}

static int append_frame(struct cr_buffer *out, const struct cr_buffer *title,
                        const struct cr_buffer *others, const struct cr_buffer *root) {
    static const char border[] = "============================================================";
    static const char rule[] = "------------------------------------------------------------";
    _Static_assert(sizeof(border) == BORDER_MAX + 1 && sizeof(rule) == BORDER_MAX + 1, "width");
    int wide = (int) longest_line(root->data, root->len);
    int other = (int) longest_line(others->data, others->len);
    int name = (int) longest_line(title->data, title->len);
    if (other > wide) wide = other;
    if (name > wide) wide = name;
    return cr_buffer_printf(out,
                            "%.*s\n%.*s\n%.*s\nFailures:\n%.*s%.*s\n"
                            "Root Cause (first observed failure):\n%.*s%.*s\n",
                            wide, border, (int) title->len, title->data, wide, rule,
                            (int) others->len, others->data, wide, rule, (int) root->len,
                            root->data, wide, border);
}

int verdict_box(struct cr_buffer *out, const struct verdict *v, size_t first) {
    struct cr_buffer title = {0}, others = {0}, root = {0};
    int rc = cr_text_append(&title, v->title, strlen(v->title), "");
    if (rc == 0) rc = cr_buffer_printf(&title, " FAILED");
    if (rc == 0) rc = append_blocks(&others, &root, v, first);
    if (rc == 0) rc = append_frame(out, &title, &others, &root);
    cr_buffer_done(&title);
    cr_buffer_done(&others);
    cr_buffer_done(&root);
    return rc;
}
