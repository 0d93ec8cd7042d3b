/* Brings the lines of a teed stream to the console, from memory or from the stream's log file (see
 * struct tail in log_relay_internal.h). */
#include "agent/output/log_relay_internal.h"
#include "base/text/text.h"
#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tail *tail_new(struct log_relay *r, enum which which, struct log_file *file) {
    struct tail *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        log_file_free(file);
        return NULL;
    }
    *t = (struct tail){.relay = r, .which = which, .file = file, .lines.skips_long = true,
                       .update_ms = UPDATE_NEVER};
    return t;
}

void tail_free(struct tail *t) {
    if (t == NULL) return;
    if (t->is_lagging) TAILQ_REMOVE(&t->relay->lagging, t, entry);
    if (t->holds_console) relay_release_console(t->relay, t->which);
    live_line_clear(&t->relay->live, t);
    cr_buffer_done(&t->update);
    log_file_free(t->file);
    line_splitter_done(&t->lines);
    cr_buffer_done(&t->unfiled);
    free(t->prefix);
    free(t->json_head);
    free(t);
}

static void lag(struct tail *t) {
    if (t->is_lagging) return;
    t->is_lagging = true;
    TAILQ_INSERT_TAIL(&t->relay->lagging, t, entry);
    relay_schedule_turn(t->relay);
}

/* ---- one line ---- */

static int append_json(struct cr_buffer *lines, const struct tail *t, const char *line,
                       size_t len) {
    char time[CR_UTC_TEXT_MAX];
    cr_utc_text(time, cr_wall_ns(), 3);
    int rc = cr_buffer_printf(lines, "{\"time\":\"%s\",%s", time, t->json_head);
    if (rc == 0) rc = cr_json_bytes_append(lines, line, len);
    return rc < 0 ? rc : cr_buffer_append(lines, "}\n", 2);
}

/* Adds a line as a JSON object to the relay's `lines`. If memory is short, the line is lost. */
static void add_json(struct tail *t, const char *line, size_t len) {
    struct cr_buffer *lines = &t->relay->lines;
    size_t before = lines->len;
    if (append_json(lines, t, line, len) == 0) return;
    lines->len = before;
    relay_warn_of_memory(t->relay);
}

/* Adds a line to the relay's `lines` without folding it: as a JSON object, or after the prefix. */
static void add_own_line(struct tail *t, const char *line, size_t len) {
    struct cr_buffer *lines = &t->relay->lines;
    if (t->json_head != NULL) {
        add_json(t, line, len);
        return;
    }
    size_t prefix_len = strlen(t->prefix);
    if (cr_buffer_reserve(lines, prefix_len + len + 1) < 0) {
        relay_warn_of_memory(t->relay);
        return;
    }
    char *to = lines->data + lines->len;
    memcpy(to, t->prefix, prefix_len);
    if (len > 0) memcpy(to + prefix_len, line, len);
    to[prefix_len + len] = '\n';
    lines->len += prefix_len + len + 1;
}

static void add_line(struct tail *t, const char *line, size_t len) {
    if (t->relay->fold != NULL) folded_lines_add(t, line, len);
    else add_own_line(t, line, len);
}

/* Writes the lines that were collected in the relay's `lines` to the console. They are whole lines,
 * so no other worker's output can appear within a line. */
static void write_lines(struct tail *t) {
    struct log_relay *r = t->relay;
    folded_lines_write(r, false);
    if (r->lines.len > 0) relay_write_lines(r, t->which, r->lines.data, r->lines.len);
    cr_buffer_clear(&r->lines);
}

/* ---- updates of a progress bar ---- */

static bool is_on_terminal(const struct tail *t) {
    return t->json_head == NULL && t->relay->console[t->which] == t->relay->live.console;
}

static void take_update(struct tail *t, const struct line *line) {
    int64_t now_ms = cr_monotonic_ms();
    if (!is_on_terminal(t) && now_ms - t->update_ms >= UPDATE_MS) {
        t->has_update = false;
        t->update_ms = now_ms;
        add_own_line(t, line->data, line->len);
        return;
    }
    cr_buffer_clear(&t->update);
    t->has_update = cr_buffer_append(&t->update, line->data, line->len) == 0;
    if (!t->has_update) relay_warn_of_memory(t->relay);
}

/* If the newest update was not written as a line yet, adds it to the lines that write_lines()
 * writes. */
static void add_update(struct tail *t) {
    if (!t->has_update) return;
    t->has_update = false;
    add_own_line(t, t->update.data, t->update.len);
}

/* Corrects a wrong update. A line that ended with "\r" was taken for an update of a progress bar.
 * If a "\n" has come right after that "\r", both were one line end, so the update was an ordinary
 * line: in that case this function adds it to the lines that are written. */
static void settle_update(struct tail *t) {
    if (t->lines.was_pair) add_update(t);
    t->lines.was_pair = false;
}

static void show_on_terminal(struct tail *t) {
    struct cr_buffer text = {0};
    int rc = cr_buffer_append(&text, t->prefix, strlen(t->prefix));
    if (rc == 0) rc = live_line_clean(&text, t->update.data, t->update.len);
    if (rc == 0) live_line_set(&t->relay->live, t, text.data, text.len, cr_monotonic_ms());
    cr_buffer_done(&text);
}

/* Shows the newest update: on a terminal in the live line; elsewhere as a line, at once or when
 * UPDATE_MS have passed since the last such line. */
static void show_update(struct tail *t) {
    if (!t->has_update) return;
    if (is_on_terminal(t)) show_on_terminal(t);
    else relay_arm_updates(t->relay, tail_write_update(t, cr_monotonic_ms()));
}

int64_t tail_write_update(struct tail *t, int64_t now_ms) {
    if (!t->has_update || is_on_terminal(t)) return CR_FOREVER;
    if (now_ms - t->update_ms < UPDATE_MS) return t->update_ms + UPDATE_MS;
    if (!tail_can_write(t)) return now_ms + UPDATE_MS;
    t->update_ms = now_ms;
    add_update(t);
    write_lines(t);
    return CR_FOREVER;
}

/* ---- a line that is too long for the splitter ---- */

static void begin_copy(struct tail *t, const struct line *line) {
    write_lines(t);
    folded_lines_write(t->relay, true); /* the folded lines came before this line */
    if (is_on_terminal(t)) live_line_hide(&t->relay->live);
    console_write(t->relay->console[t->which], t->prefix, strlen(t->prefix));
    t->copy_at = line->from;
    t->copy_to = line->to;
    t->holds_console = true;
    relay_hold_console(t->relay, t->which);
}

static void end_copy(struct tail *t) {
    console_write(t->relay->console[t->which], "\n", 1);
    t->holds_console = false;
    relay_release_console(t->relay, t->which);
}

/* Reads the next bytes of the long line from the log file into r->spare. Returns the number of
 * bytes; 0 at the line's end, or at the file's end if another program has made the file shorter. */
static size_t read_copy(struct tail *t) {
    if (t->copy_at >= t->copy_to) return 0;
    size_t n = log_file_read(t->file, &t->copy_at, t->relay->spare, STREAM_READ_MAX);
    uint64_t left = t->copy_at < t->copy_to ? t->copy_to - t->copy_at : 0;
    return n < left ? n : (size_t) left;
}

/* Copies the long line from the log file to the console, until the line is complete or the console
 * is full. */
static void copy_more(struct tail *t) {
    struct log_relay *r = t->relay;
    while (!console_is_full(r->console[t->which])) {
        size_t n = read_copy(t);
        if (n == 0) {
            end_copy(t);
            return;
        }
        console_write(r->console[t->which], r->spare, n);
        t->copy_at += n;
    }
}

/* ---- lines from bytes ---- */

/* Adds a line to the lines that write_lines() writes. A long line is not added: it is copied from
 * the log file to the console at once. Returns false if the console took only a part of the long
 * line; the tail holds the console in that case. */
static bool take_line(struct tail *t, const struct line *line) {
    if (line->is_update && !line->is_long) {
        take_update(t, line);
        return true;
    }
    t->has_update = false;
    live_line_clear(&t->relay->live, t);
    if (!line->is_long) {
        add_line(t, line->data, line->len);
        return true;
    }
    begin_copy(t, line);
    copy_more(t);
    return !t->holds_console;
}

/* Adds whole lines, each after the prefix and with its newline. This is the fast path for much
 * output: the lines do not pass through the splitter one by one. */
static void add_whole_lines(struct tail *t, const char *data, size_t len) {
    struct cr_buffer *lines = &t->relay->lines;
    size_t prefix_len = strlen(t->prefix);
    for (const char *at = data, *end = data + len; at < end;) {
        const char *newline = memchr(at, '\n', (size_t) (end - at));
        size_t n = (size_t) (newline + 1 - at);
        if (lines->cap - lines->len < prefix_len + n &&
            cr_buffer_reserve(lines, prefix_len + 2 * (size_t) (end - at)) < 0) {
            relay_warn_of_memory(t->relay);
            return;
        }
        memcpy(lines->data + lines->len, t->prefix, prefix_len);
        memcpy(lines->data + lines->len + prefix_len, at, n);
        lines->len += prefix_len + n;
        at += n;
    }
}

/* The fast path for lines that only get a prefix: takes the whole lines at the beginning of the
 * bytes in one pass, and moves *data and *len past them. If lines are folded or written as JSON, or
 * if a "\r\n" came in two inputs, takes nothing, and the caller takes each line by itself. */
static void take_whole_lines(struct tail *t, const char **data, size_t *len) {
    size_t whole;
    if (t->json_head != NULL || t->relay->fold != NULL || t->lines.was_pair) return;
    while ((whole = line_splitter_take_whole(&t->lines, *data, *len)) > 0) {
        t->has_update = false;
        live_line_clear(&t->relay->live, t);
        add_whole_lines(t, *data, whole);
        *data += whole;
        *len -= whole;
    }
}

/* Takes lines from the bytes, until all bytes are taken or a long line holds the console, and
 * writes the lines. Returns the number of bytes taken. */
static size_t take_bytes(struct tail *t, const char *data, size_t len) {
    const char *at = data;
    struct line line;
    bool is_first = true;
    int rc;
    take_whole_lines(t, &at, &len);
    while ((rc = line_splitter_next(&t->lines, &at, &len, &line)) != 0) {
        settle_update(t);
        if (rc < 0) relay_warn_of_memory(t->relay);
        if (rc > 0 && !take_line(t, &line)) break;
        if (is_first) take_whole_lines(t, &at, &len); /* now no line has begun in earlier bytes */
        is_first = false;
    }
    settle_update(t);
    write_lines(t);
    if (!t->holds_console) show_update(t);
    return (size_t) (at - data);
}

/* Call this when the stream has ended. Writes the bytes after the last line end as a line. */
static void take_last_line(struct tail *t) {
    struct line line;
    if (line_splitter_end(&t->lines, &line) > 0) (void) take_line(t, &line);
    add_update(t);
    write_lines(t);
}

/* Makes the splitter drop the bytes that it keeps, and continue at the offset `at` of the
 * stream. */
static void jump(struct tail *t, uint64_t at) {
    bool skips_long = t->lines.skips_long;
    line_splitter_done(&t->lines);
    t->lines = (struct line_splitter){.skips_long = skips_long, .at = at, .from = at};
}

void tail_feed(struct tail *t, const char *data, size_t filed, size_t len) {
    size_t taken = 0;
    if (!t->is_lagging && !relay_console_is_busy(t->relay, t->which)) {
        /* A splitter that skips long lines has them read again from the log file, so it may only
         * take bytes that are in the file. */
        taken = take_bytes(t, data, t->lines.skips_long ? filed : len);
    }
    bool is_kept = taken == len || cr_buffer_append(&t->unfiled, data + filed, len - filed) == 0;
    if (!is_kept) relay_warn_of_memory(t->relay);
    if (taken < len || t->holds_console) lag(t);
}

/* ---- catching up ---- */

static void read_file(struct tail *t) {
    struct log_relay *r = t->relay;
    uint64_t at = t->lines.at;
    size_t n = log_file_read(t->file, &at, r->spare_lines, STREAM_READ_MAX);
    /* If log_file_read() has changed `at`, the next bytes of the stream are no longer in the file,
     * because of its size limit. A line on the console says how many bytes are left out. Their
     * number includes the bytes of the current line that were read before, because jump() drops
     * them. */
    if (at != t->lines.at) {
        char gap[96];
        int len = snprintf(gap, sizeof(gap), "[crun: %" PRIu64 " bytes are left out here]",
                           at - t->lines.from);
        add_line(t, gap, (size_t) len);
        jump(t, at);
    }
    if (n == 0) jump(t, t->file->end); /* another program has made the file shorter */
    (void) take_bytes(t, r->spare_lines, n);
}

/* Writes t->unfiled to the console: the bytes of the stream that could not be appended to the log
 * file. A long line is normally copied from the log file, which is no longer possible. So if the
 * current line is long, its beginning, which is in the file, is written as a line of its own. Later
 * long lines are written in pieces. */
static void write_unfiled(struct tail *t) {
    if (t->lines.is_long) {
        take_last_line(t);
        if (t->holds_console) return;
    }
    t->lines.skips_long = false;
    (void) take_bytes(t, t->unfiled.data, t->unfiled.len);
    cr_buffer_clear(&t->unfiled);
}

static bool has_more(const struct tail *t) {
    return t->holds_console || t->lines.at < t->file->end || t->unfiled.len > 0;
}

static void write_more(struct tail *t) {
    if (console_is_dead(t->relay->console[t->which])) {
        if (t->holds_console) end_copy(t);
        cr_buffer_clear(&t->unfiled);
        jump(t, t->file->end);
    } else if (t->holds_console) {
        copy_more(t);
    } else if (t->lines.at < t->file->end) {
        read_file(t);
    } else {
        write_unfiled(t);
    }
}

/* If there is nothing more to write, ends the lag, and frees the tail if its stream has ended.
 * Otherwise lets the tail lag. */
static void finish(struct tail *t) {
    if (!has_more(t) && t->has_ended) take_last_line(t);
    /* take_last_line() may have begun to copy a long last line; has_more() is true until it is
     * copied */
    if (has_more(t)) {
        lag(t);
        return;
    }
    if (t->is_lagging) TAILQ_REMOVE(&t->relay->lagging, t, entry);
    t->is_lagging = false;
    if (t->has_ended) tail_free(t);
}

bool tail_can_write(const struct tail *t) {
    if (t->holds_console) return !console_is_full(t->relay->console[t->which]);
    return !relay_console_is_busy(t->relay, t->which);
}

void tail_catch_up(struct tail *t) {
    write_more(t);
    finish(t);
}

void tail_end(struct tail *t) {
    t->has_ended = true;
    if (!t->is_lagging && !relay_console_is_busy(t->relay, t->which)) finish(t);
    else lag(t);
}
