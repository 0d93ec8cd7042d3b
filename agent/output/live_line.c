/* Draws the last line of a terminal (agent/output/live_line.h). */
#include "agent/output/live_line.h"

#include <string.h>
#include <sys/ioctl.h>

#define ESCAPE        '\033'
#define DEFAULT_WIDTH 80 /* columns of a terminal that does not say how many it has */

static const char erase[] = "\r\033[K";

/* ---- texts ---- */

/* Returns the length of the escape sequence with which `text` begins: "ESC [ parameters final" or
 * "ESC final". Stores its last byte, `final`, in *final. If the text ends within the sequence,
 * returns `len` and stores '\0'. */
static size_t escape_len(const char *text, size_t len, char *final) {
    *final = '\0';
    if (len < 2) return len;
    size_t n = 1;
    if (text[1] == '[') {
        n = 2;
        while (n < len && (text[n] < '@' || text[n] > '~')) n++;
    }
    if (n == len) return len;
    *final = text[n];
    return n + 1;
}

size_t live_line_fit(const char *text, size_t len, size_t columns) {
    size_t at = 0, used = 0;
    while (at < len) {
        char final;
        bool is_continuation = ((unsigned char) text[at] & 0xc0) == 0x80;
        if (text[at] == ESCAPE) {
            at += escape_len(text + at, len - at, &final);
            continue;
        }
        if (!is_continuation && used++ == columns) return at;
        at++;
    }
    return len;
}

int live_line_clean(struct cr_buffer *out, const char *text, size_t len) {
    int rc = 0;
    for (size_t at = 0, n; rc == 0 && at < len; at += n) {
        char final = '\0';
        n = 1;
        if (text[at] == ESCAPE) {
            n = escape_len(text + at, len - at, &final);
            if (final == 'm') rc = cr_buffer_append(out, text + at, n);
        } else if (text[at] == '\t' || (unsigned char) text[at] >= ' ') {
            rc = cr_buffer_append(out, text[at] == '\t' ? " " : text + at, 1);
        }
    }
    return rc;
}

/* ---- drawing ---- */

static size_t width_of(const struct console *c) {
    struct winsize size;
    if (ioctl(c->fd, TIOCGWINSZ, &size) < 0 || size.ws_col < 2) return DEFAULT_WIDTH;
    return size.ws_col;
}

/* Draws the text, cut to the terminal's width. Draws nothing while the terminal has not taken all
 * earlier output, because outdated texts would pile up in memory. */
static void draw(struct live_line *l) {
    struct cr_buffer out = {0};
    if (!console_is_flushed(l->console)) return;
    size_t n = live_line_fit(l->text.data, l->text.len, width_of(l->console) - 1);
    int rc = cr_buffer_append(&out, erase, sizeof(erase) - 1);
    if (rc == 0) rc = cr_buffer_append(&out, l->text.data, n);
    if (rc == 0 && memchr(l->text.data, ESCAPE, n) != NULL) {
        rc = cr_buffer_append(&out, "\033[0m", 4);
    }
    if (rc == 0) {
        console_write(l->console, out.data, out.len);
        l->is_drawn = true;
    }
    cr_buffer_done(&out);
}

void live_line_hide(struct live_line *l) {
    if (!l->is_drawn) return;
    console_write(l->console, erase, sizeof(erase) - 1);
    l->is_drawn = false;
}

void live_line_show(struct live_line *l) {
    if (l->console == NULL || l->owner == NULL || l->is_drawn || l->text.len == 0) return;
    draw(l);
}

/* ---- the text and its owner ---- */

void live_line_set(struct live_line *l, const void *owner, const char *text, size_t len,
                   int64_t now_ms) {
    if (l->console == NULL) return;
    bool is_free = l->owner == NULL || now_ms - l->changed_ms >= LIVE_LINE_OWNED_MS;
    if (l->owner != owner && !is_free) return;
    l->owner = owner;
    l->changed_ms = now_ms;
    cr_buffer_clear(&l->text);
    if (cr_buffer_append(&l->text, text, len) < 0) return;
    if (len > 0) draw(l);
    else live_line_hide(l);
}

void live_line_clear(struct live_line *l, const void *owner) {
    if (l->console == NULL || l->owner != owner) return;
    live_line_hide(l);
    l->owner = NULL;
    cr_buffer_clear(&l->text);
}

void live_line_done(struct live_line *l) {
    if (l->console != NULL) live_line_hide(l);
    cr_buffer_done(&l->text);
    l->console = NULL;
    l->owner = NULL;
}
