/* Parser for the HTTP answers of etcd's JSON gateway: see etcd_answer_internal.h. */
#include "rendezvous/way/etcd_answer_internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#define LINE_MAX_BYTES ((size_t) 8192) /* most bytes of a header or chunk-size line */

void etcd_answer_done(struct etcd_answer *a) {
    cr_buffer_done(&a->raw);
    cr_buffer_done(&a->body);
}

/* ---- the body: one JSON object per line ---- */

static int take_object(struct etcd_answer *a, const char *text, size_t len, struct cr_error *err) {
    json_error_t where;
    json_auto_t *root = json_loadb(text, len, 0, &where);
    if (root == NULL) return cr_fail(err, -EPROTO, "etcd's answer is not JSON");
    const char *error = json_string_value(json_object_get(root, "message"));
    if (a->status != 200 || error != NULL) {
        return cr_fail(err, -EPROTO, "etcd reports an error: %.200s (HTTP status %d)",
                       error != NULL ? error : "no text", a->status);
    }
    const json_t *result = json_object_get(root, "result");
    return a->on_object(a->arg, result != NULL ? result : root);
}

static int take_lines(struct etcd_answer *a, struct cr_error *err) {
    struct cr_buffer *body = &a->body;
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && at < body->len) {
        const char *line = body->data + at, *end = memchr(line, '\n', body->len - at);
        if (end == NULL) break;
        if (end > line) rc = take_object(a, line, (size_t) (end - line), err);
        at += (size_t) (end - line) + 1;
    }
    cr_buffer_consume(body, at);
    return rc;
}

/* Moves up to `limit` bytes from `raw` to `body`, and parses the lines that are complete. Stores
 * the number of bytes in *taken. */
static int take_body(struct etcd_answer *a, size_t limit, size_t *taken, struct cr_error *err) {
    size_t n = a->raw.len < limit ? a->raw.len : limit;
    *taken = n;
    if (a->body.len + n > ETCD_ANSWER_MAX)
        return cr_fail(err, -EPROTO, "etcd's answer is too long");
    if (cr_buffer_append(&a->body, a->raw.data, n) < 0)
        return cr_fail(err, -ENOMEM, "out of memory");
    return take_lines(a, err);
}

static int complete(struct etcd_answer *a, struct cr_error *err) {
    int rc = a->body.len > 0 ? take_object(a, a->body.data, a->body.len, err) : 0;
    cr_buffer_clear(&a->body);
    a->is_complete = rc == 0;
    return rc;
}

/* ---- lines of the head and between chunks ---- */

/* Finds the first line in `raw`. Sets *line and *len to the line without its "\r\n", and *taken to
 * its length with "\r\n", or to 0 if the line is not complete yet. */
static int take_line(struct etcd_answer *a, const char **line, size_t *len, size_t *taken,
                     struct cr_error *err) {
    const char *end = a->raw.len > 0 ? memchr(a->raw.data, '\n', a->raw.len) : NULL;
    *taken = 0;
    if (end == NULL && a->raw.len <= LINE_MAX_BYTES) return 0;
    if (end == NULL) return cr_fail(err, -EPROTO, "etcd sends a line that is too long");
    *line = a->raw.data;
    *len = (size_t) (end - a->raw.data);
    *taken = *len + 1;
    if (*len > 0 && a->raw.data[*len - 1] == '\r') --*len;
    return 0;
}

/* Parses the digits at the start of a text of `len` bytes. Returns the number, or -1 if there is no
 * digit or the number is not below `limit`. */
static int64_t parse_digits(const char *text, size_t len, int base, int64_t limit) {
    int64_t value = -1;
    for (size_t i = 0; i < len; i++) {
        int c = tolower((unsigned char) text[i]);
        int digit = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
        if (digit >= base) break;
        value = (value < 0 ? 0 : value) * base + digit;
        if (value >= limit) return -1;
    }
    return value;
}

/* If the line begins with `name`, returns what follows it, without spaces, and stores its length in
 * *value_len; else returns NULL. */
static const char *header_value(const char *line, size_t len, const char *name, size_t *value_len) {
    size_t n = strlen(name);
    if (len < n || strncasecmp(line, name, n) != 0) return NULL;
    while (n < len && line[n] == ' ') n++;
    *value_len = len - n;
    return line + n;
}

static int take_header(struct etcd_answer *a, const char *line, size_t len, struct cr_error *err) {
    size_t n;
    const char *value;
    if ((value = header_value(line, len, "HTTP/1.1 ", &n)) != NULL ||
        (value = header_value(line, len, "HTTP/1.0 ", &n)) != NULL) {
        a->status = (int) parse_digits(value, n, 10, 1000);
    } else if ((value = header_value(line, len, "Content-Length:", &n)) != NULL) {
        int64_t length = parse_digits(value, n, 10, INT64_C(1) << 32);
        if (length < 0) return cr_fail(err, -EPROTO, "etcd sends a bad length");
        a->framing = ETCD_BODY_BY_LENGTH;
        a->left = (size_t) length;
    } else if ((value = header_value(line, len, "Transfer-Encoding:", &n)) != NULL) {
        if (n >= 7 && strncasecmp(value, "chunked", 7) == 0) a->framing = ETCD_BODY_BY_CHUNKS;
        a->left = 0;
    }
    return 0;
}

static int take_head_line(struct etcd_answer *a, size_t *taken, struct cr_error *err) {
    const char *line = NULL;
    size_t len = 0;
    int rc = take_line(a, &line, &len, taken, err);
    if (rc < 0 || *taken == 0) return rc;
    a->head_len += *taken;
    if (a->head_len > ETCD_HEAD_MAX) return cr_fail(err, -EPROTO, "etcd sends too many headers");
    if (len > 0) return take_header(a, line, len, err);
    a->has_head = true;
    return a->framing == ETCD_BODY_BY_LENGTH && a->left == 0 ? complete(a, err) : 0;
}

/* ---- chunks: "<size in hex>\r\n<data>\r\n" …, and "0\r\n" at the end ---- */

static int take_chunk_line(struct etcd_answer *a, size_t *taken, struct cr_error *err) {
    const char *line = NULL;
    size_t len = 0;
    int rc = take_line(a, &line, &len, taken, err);
    if (rc < 0 || *taken == 0) return rc;
    if (a->in_chunk) { /* this is the empty line after the data of a chunk */
        a->in_chunk = false;
        return len == 0 ? 0 : cr_fail(err, -EPROTO, "etcd sends a bad chunk");
    }
    int64_t size = parse_digits(line, len, 16, (int64_t) ETCD_ANSWER_MAX + 1);
    if (size < 0) return cr_fail(err, -EPROTO, "etcd sends a bad chunk");
    if (size == 0) return complete(a, err);
    a->in_chunk = true;
    a->left = (size_t) size;
    return 0;
}

/* ---- received bytes ---- */

static int take_some(struct etcd_answer *a, size_t *taken, struct cr_error *err) {
    if (!a->has_head) return take_head_line(a, taken, err);
    if (a->framing == ETCD_BODY_BY_CHUNKS && a->left == 0) return take_chunk_line(a, taken, err);
    if (a->framing == ETCD_BODY_TO_THE_END) return take_body(a, a->raw.len, taken, err);
    int rc = take_body(a, a->left, taken, err);
    a->left -= *taken;
    bool ends = rc == 0 && a->left == 0 && a->framing == ETCD_BODY_BY_LENGTH;
    return ends ? complete(a, err) : rc;
}

int etcd_answer_receive(struct etcd_answer *a, const char *data, size_t len, struct cr_error *err) {
    size_t taken = 1;
    int rc = 0;
    if (cr_buffer_append(&a->raw, data, len) < 0) return cr_fail(err, -ENOMEM, "out of memory");
    while (rc == 0 && !a->is_complete && taken > 0 && a->raw.len > 0) {
        rc = take_some(a, &taken, err);
        cr_buffer_consume(&a->raw, taken);
    }
    return rc < 0 ? rc : a->is_complete ? 1 : 0;
}

int etcd_answer_end(struct etcd_answer *a, struct cr_error *err) {
    if (a->is_complete) return 1;
    if (!a->has_head || a->framing != ETCD_BODY_TO_THE_END) {
        return cr_fail(err, -ECONNRESET, "the connection was closed");
    }
    int rc = complete(a, err);
    return rc < 0 ? rc : 1;
}
