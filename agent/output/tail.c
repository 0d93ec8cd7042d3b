/* Brings the lines of a teed stream to the console, from memory or from its log file (see struct
 * tail in log_relay_internal.h). */
#include "agent/output/log_relay_internal.h"
#include "base/clock.h"
#include "base/text.h"

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
    *t = (struct tail){.relay = r, .which = which, .file = file, .lines.skips_long = true};
    return t;
}

void tail_free(struct tail *t) {
    if (t == NULL) return;
    if (t->is_lagging) TAILQ_REMOVE(&t->relay->lagging, t, entry);
    if (t->holds_console) relay_release_console(t->relay, t->which);
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

/* Adds a line as a JSON object, or nothing if memory is short. */
static void add_json(struct tail *t, const char *line, size_t len) {
    struct cr_buffer *lines = &t->relay->lines;
    size_t before = lines->len;
    if (append_json(lines, t, line, len) == 0) return;
    lines->len = before;
    relay_warn_of_memory(t->relay);
}

static void add_line(struct tail *t, const char *line, size_t len) {
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
    /* these calls cannot fail, because the memory was reserved above */
    (void) cr_buffer_append(lines, t->prefix, prefix_len);
    (void) cr_buffer_append(lines, line, len);
    (void) cr_buffer_append(lines, "\n", 1);
}

/* Writes the lines that add_line() has collected to the console. They are whole lines, so no other
 * worker's output can appear within a line. */
static void write_lines(struct tail *t) {
    struct log_relay *r = t->relay;
    if (r->lines.len > 0) console_write(r->console[t->which], r->lines.data, r->lines.len);
    cr_buffer_clear(&r->lines);
}

/* ---- a line that is too long for the splitter ---- */

static void begin_copy(struct tail *t, const struct line *line) {
    write_lines(t);
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

/* Adds a line to those that write_lines() writes; or, if it is a long line, begins to copy it from
 * the log file to the console. Returns false if only a part of a long line could be copied, so that
 * the tail holds the console. */
static bool take_line(struct tail *t, const struct line *line) {
    if (!line->is_long) {
        add_line(t, line->data, line->len);
        return true;
    }
    begin_copy(t, line);
    copy_more(t);
    return !t->holds_console;
}

/* Takes lines from the bytes, until all bytes are taken or a long line holds the console, and
 * writes the lines. Returns the number of bytes taken. */
static size_t take_bytes(struct tail *t, const char *data, size_t len) {
    const char *at = data;
    struct line line;
    int rc;
    while ((rc = line_splitter_next(&t->lines, &at, &len, &line)) != 0) {
        if (rc < 0) relay_warn_of_memory(t->relay);
        if (rc > 0 && !take_line(t, &line)) break;
    }
    write_lines(t);
    return (size_t) (at - data);
}

/* Call this when the stream has ended. Writes the bytes after the last line end as a line. */
static void take_last_line(struct tail *t) {
    struct line line;
    if (line_splitter_end(&t->lines, &line) > 0) (void) take_line(t, &line);
    write_lines(t);
}

/* Makes the splitter drop the bytes that it keeps, and continue at the offset `at` of the
 * stream. */
static void jump(struct tail *t, uint64_t at) {
    line_splitter_done(&t->lines);
    t->lines = (struct line_splitter){.skips_long = t->json_head == NULL, .at = at, .from = at};
}

void tail_feed(struct tail *t, const char *data, size_t filed, size_t len) {
    size_t taken = 0;
    if (!t->is_lagging && !relay_console_is_busy(t->relay, t->which)) {
        taken = take_bytes(t, data, filed);
    }
    if (filed < len && cr_buffer_append(&t->unfiled, data + filed, len - filed) < 0) {
        relay_warn_of_memory(t->relay);
    }
    if (taken < len || t->holds_console) lag(t);
}

/* ---- catching up ---- */

static void read_file(struct tail *t) {
    struct log_relay *r = t->relay;
    uint64_t at = t->lines.at;
    size_t n = log_file_read(t->file, &at, r->spare_lines, STREAM_READ_MAX);
    /* If `at` has changed, the size limit has removed the next bytes of the stream from the file,
     * and a line says how many bytes are left out. These include the bytes of the current line that
     * were read before, because jump() drops them. */
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

/* Writes t->unfiled to the console: the bytes of the stream that could not be appended to the file.
 * A long line is normally copied from the file. Now the file cannot be used any more: the part of a
 * long line that is in the file is written as a line of its own, and later long lines are written
 * in pieces. */
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

/* If there is nothing more to write, ends the lag, and frees the tail if its stream has ended. */
static void finish(struct tail *t) {
    if (!has_more(t) && t->has_ended) take_last_line(t);
    /* true also while the last line, a long one, is being copied */
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
