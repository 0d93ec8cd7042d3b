/* Writes the report on a failed attempt: one line that names the first failure, the evidence for
 * it, and torchrun's box. */
#include "agent/verdict/verdict_internal.h"

#include "agent/evidence/evidence.h"
#include "base/text/text.h"

#include <signal.h>
#include <string.h>

/* ---- the worker that failed first ---- */

static size_t first_line_len(const char *text) {
    size_t len = strcspn(text, "\n");
    return len > LAST_LINE_LEN ? LAST_LINE_LEN : len;
}

static int append_error(struct cr_buffer *out, const struct verdict_worker *w) {
    const struct error_record *e = &w->error;
    if (!e->present) return 0;
    if (e->flaw != NULL) {
        TRY(cr_buffer_printf(out, "  its error file could not be understood: %s; it contains:\n",
                             e->flaw));
        return last_lines_append(out, e->raw, e->raw_len, "    | ");
    }
    if (e->message == NULL) return 0;
    TRY(cr_buffer_printf(out, "  message: "));
    TRY(cr_text_append(out, e->message, first_line_len(e->message), ""));
    return cr_buffer_append(out, "\n", 1);
}

static int append_last_words(struct cr_buffer *out, const struct verdict_worker *w) {
    if (w->last_words == NULL) return 0;
    if (w->last_words_len == 0 && w->last_words_error != 0) {
        return cr_buffer_printf(out,
                                "  its last words are lost: %s; make room for its log folder, or "
                                "give --log-dir another one\n",
                                strerror(w->last_words_error));
    }
    const char *what = w->last_words_mixed ? "output" : "stderr";
    if (w->last_words_len == 0) {
        return cr_buffer_printf(out, "  it wrote nothing%s\n",
                                w->last_words_mixed ? "" : " to stderr");
    }
    TRY(cr_buffer_printf(out, "  last lines of its %s:\n", what));
    return last_lines_append(out, w->last_words, w->last_words_len, "    | ");
}

/* Returns the last line of the text that is not blank, as a terminal would show it: without the
 * part before its last carriage return. Sets *len to the length of the line. */
static const char *last_line(const char *text, size_t *len) {
    while (*len > 0 && memchr("\r\n \t", text[*len - 1], 4) != NULL) (*len)--;
    const char *lf = memrchr(text, '\n', *len), *cr = memrchr(text, '\r', *len);
    const char *before = cr == NULL || (lf != NULL && lf > cr) ? lf : cr;
    if (before == NULL) return text;
    *len -= (size_t) (before + 1 - text);
    return before + 1;
}

int verdict_last_line(struct cr_buffer *out, const struct verdict_worker *w) {
    const char *text = w->last_words, *what = "last line";
    size_t len = text == NULL ? 0 : w->last_words_len;
    if (w->error.message != NULL) {
        text = w->error.message;
        len = first_line_len(text);
        what = "message";
    } else if (len > 0) {
        text = last_line(text, &len);
    }
    if (len == 0) return 0;
    TRY(cr_buffer_printf(out, "; its %s: '", what));
    TRY(cr_text_append(out, text, len > LAST_LINE_LEN ? LAST_LINE_LEN : len, "\t"));
    return cr_buffer_printf(out, "'");
}

static int append_files(struct cr_buffer *out, const struct verdict_worker *w) {
    if (w->log_folder == NULL || w->log_names[0] == '\0') return 0;
    TRY(cr_buffer_printf(out, "  its files: "));
    TRY(cr_text_append(out, w->log_folder, strlen(w->log_folder), ""));
    return cr_buffer_printf(out, " (%s)\n", w->log_names);
}

/* ---- the workers that failed later or were stopped ---- */

static int append_later_failures(struct cr_buffer *out, const struct verdict *v, size_t first) {
    size_t shown = 0, more = 0;
    for (size_t i = 0; i < v->count; i++) {
        const struct verdict_worker *w = &v->workers[i];
        if (i == first || verdict_is_victim(w)) continue;
        if (shown == 8) {
            more++;
            continue;
        }
        TRY(cr_buffer_printf(out, "%s rank %u: ", shown++ == 0 ? "  failed later:" : ",", w->rank));
        TRY(verdict_cause(out, w));
    }
    if (more > 0) TRY(cr_buffer_printf(out, ", and %zu more", more));
    return shown > 0 ? cr_buffer_append(out, "\n", 1) : 0;
}

/* A selection of workers: those that crun stopped with the signal `signum`, except the worker that
 * failed first. */
struct stopped {
    const struct verdict *v;
    size_t first;
    int signum;
};

static bool is_stopped(const struct stopped *s, size_t i) {
    return i < s->v->count && i != s->first && s->v->workers[i].signal_sent == s->signum;
}

/* Worker i begins a sequence of selected workers with consecutive ranks, such as 2, 3, 4. Returns
 * the index of the last worker of this sequence. */
static size_t end_of_run(const struct stopped *s, size_t i) {
    const struct verdict_worker *w = s->v->workers;
    while (is_stopped(s, i + 1) && w[i + 1].rank == w[i].rank + 1) i++;
    return i;
}

/* If any worker is selected, appends `head`, the ranks and the signal, such as "0, 2-7 (SIGTERM)",
 * and sets *any to true. */
static int append_stopped(struct cr_buffer *out, const struct stopped *s, const char *head,
                          bool *any) {
    size_t shown = 0;
    for (size_t i = 0; i < s->v->count; i++) {
        if (!is_stopped(s, i)) continue;
        size_t last = end_of_run(s, i);
        TRY(cr_buffer_printf(out, "%s%u", shown++ > 0 ? ", " : head, s->v->workers[i].rank));
        if (last > i) TRY(cr_buffer_printf(out, "-%u", s->v->workers[last].rank));
        i = last;
    }
    if (shown == 0) return 0;
    *any = true;
    return cr_buffer_printf(out, " (SIG%s)", verdict_signal_name(s->signum));
}

static int append_victims(struct cr_buffer *out, const struct verdict *v, size_t first) {
    bool any = false;
    for (int signum = NSIG - 1; signum > 0; signum--) {
        const struct stopped s = {v, first, signum};
        TRY(append_stopped(out, &s, any ? "; rank " : "  stopped by crun: rank ", &any));
    }
    return any ? cr_buffer_append(out, "\n", 1) : 0;
}

static int append_evidence(struct cr_buffer *out, const struct verdict *v, size_t first) {
    const struct verdict_worker *w = &v->workers[first];
    TRY(append_error(out, w));
    if (w->kernel_line != NULL) TRY(cr_buffer_printf(out, "  kernel: %s\n", w->kernel_line));
    TRY(append_last_words(out, w));
    TRY(append_files(out, w));
    TRY(append_later_failures(out, v, first));
    TRY(append_victims(out, v, first));
    if (v->behind != NULL && v->behind[0] != '\0') {
        TRY(cr_buffer_printf(out, "  who was waited for: "));
        TRY(cr_text_append(out, v->behind, strlen(v->behind), ""));
        TRY(cr_buffer_append(out, "\n", 1));
    }
    if (v->max_restarts == 0) return 0;
    return cr_buffer_printf(out, "  restarts: %u of %u used\n", v->restarts, v->max_restarts);
}

int verdict_report(struct cr_buffer *out, const struct verdict *v) {
    size_t first = verdict_first(v->workers, v->count);
    TRY(cr_buffer_printf(out, "crun: "));
    TRY(verdict_line(out, v, &v->workers[first]));
    TRY(cr_buffer_append(out, "\n", 1));
    TRY(append_evidence(out, v, first));
    return verdict_box(out, v, first);
}
