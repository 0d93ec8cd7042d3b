/* Brings the output of several workers to the terminal that they share. Without this, the progress
 * bar of one worker would overwrite that of another, and would cut its lines.
 *
 * Whole lines are written as they come. The unfinished last line of a stream, such as a progress
 * bar or a question to the user, is shown in the terminal's live line. The live line shows the
 * unfinished line of one stream at a time. */
#include "agent/output/log_relay_internal.h"
#include "base/time/clock.h"

bool plain_lines_has(const struct stream *s) {
    const struct log_relay *r = s->relay;
    return r->options.workers > 1 && r->live.console != NULL &&
           r->console[s->which] == r->live.console;
}

static void add_line(struct stream *s, const char *line, size_t len) {
    struct cr_buffer *lines = &s->relay->lines;
    size_t before = lines->len;
    if (live_line_clean(lines, line, len) == 0 && cr_buffer_append(lines, "\n", 1) == 0) return;
    lines->len = before;
    relay_warn_of_memory(s->relay);
}

static void take_line(struct stream *s, const struct line *line) {
    cr_buffer_clear(&s->plain_update);
    if (!line->is_update) add_line(s, line->data, line->len);
    else if (cr_buffer_append(&s->plain_update, line->data, line->len) < 0) {
        relay_warn_of_memory(s->relay);
    }
}

/* Corrects a wrong update. A line that ended with "\r" was taken for an update of a progress bar.
 * If a "\n" has come right after that "\r", both were one line end, so the update was an ordinary
 * line: in that case this function adds it to the lines that are written. */
static void settle_update(struct stream *s) {
    if (s->plain.was_pair) {
        add_line(s, s->plain_update.data, s->plain_update.len);
        cr_buffer_clear(&s->plain_update);
    }
    s->plain.was_pair = false;
}

static void write_lines(struct stream *s) {
    struct log_relay *r = s->relay;
    if (r->lines.len > 0) relay_write_lines(r, s->which, r->lines.data, r->lines.len);
    cr_buffer_clear(&r->lines);
}

static void show_unfinished(struct stream *s) {
    struct cr_buffer text = {0};
    const struct cr_buffer *from = s->plain.partial.len > 0 ? &s->plain.partial : &s->plain_update;
    if (from->len > 0 && live_line_clean(&text, from->data, from->len) == 0) {
        live_line_set(&s->relay->live, s, text.data, text.len, cr_monotonic_ms());
    } else {
        live_line_clear(&s->relay->live, s);
    }
    cr_buffer_done(&text);
}

void plain_lines_feed(struct stream *s, const char *data, size_t len) {
    struct line line;
    int rc;
    while ((rc = line_splitter_next(&s->plain, &data, &len, &line)) != 0) {
        settle_update(s);
        if (rc < 0) relay_warn_of_memory(s->relay);
        else take_line(s, &line);
    }
    settle_update(s);
    if (s->relay->lines.len > 0) live_line_clear(&s->relay->live, s);
    write_lines(s);
    show_unfinished(s);
}

void plain_lines_end(struct stream *s) {
    struct line line;
    if (!plain_lines_has(s)) return;
    live_line_clear(&s->relay->live, s);
    if (line_splitter_end(&s->plain, &line) > 0) take_line(s, &line);
    if (s->plain_update.len > 0) add_line(s, s->plain_update.data, s->plain_update.len);
    write_lines(s);
    line_splitter_done(&s->plain);
    s->plain = (struct line_splitter){0};
    cr_buffer_done(&s->plain_update);
}
