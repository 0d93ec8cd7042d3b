/* Encodes and decodes the messages between starter and deputies: see message_internal.h. */
#include "launcher/hosts/message_internal.h"

#include "base/text/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- encoding ---- */

static int put_number(struct cr_buffer *out, uint32_t number) {
    const unsigned char bytes[4] = {(unsigned char) (number >> 24), (unsigned char) (number >> 16),
                                    (unsigned char) (number >> 8), (unsigned char) number};
    return cr_buffer_append(out, bytes, sizeof(bytes));
}

static int put_text(struct cr_buffer *out, const void *text, size_t len) {
    int rc = len > HOSTS_PAYLOAD_MAX ? -E2BIG : put_number(out, (uint32_t) len);
    if (rc == 0) rc = cr_buffer_append(out, text, len);
    return rc == 0 ? cr_buffer_append(out, "", 1) : rc;
}

static int put_texts(struct cr_buffer *out, const char *const *texts, size_t count) {
    int rc = put_number(out, (uint32_t) count);
    for (size_t i = 0; i < count && rc == 0; i++) rc = put_text(out, texts[i], strlen(texts[i]));
    return rc;
}

static size_t length_of(const char *const *texts) {
    size_t n = 0;
    while (texts[n] != NULL) n++;
    return n;
}

/* Appends the header of a frame. The caller then appends the payload and calls end_frame(). Stores
 * in *begin the position in `out` at which the frame begins. */
static int begin_frame(struct cr_buffer *out, enum hosts_message type, uint32_t host,
                       size_t *begin) {
    const char byte = (char) type;
    *begin = out->len;
    int rc = put_number(out, 0);
    if (rc == 0) rc = cr_buffer_append(out, &byte, 1);
    return rc == 0 ? put_number(out, host) : rc;
}

/* Completes the frame that begins at out->data + begin: writes its length into its header. `rc` is
 * the result of the functions that have appended the payload. If `rc` is negative, removes the
 * frame from `out`. */
static int end_frame(struct cr_buffer *out, size_t begin, int rc) {
    size_t len = out->len - begin;
    if (rc == 0 && len - HOSTS_HEADER > HOSTS_PAYLOAD_MAX) rc = -E2BIG;
    if (rc < 0) {
        out->len = begin;
        return rc;
    }
    for (int i = 0; i < 4; i++) out->data[begin + (size_t) i] = (char) ((len - 4) >> (24 - 8 * i));
    return 0;
}

int hosts_put_bytes(struct cr_buffer *out, enum hosts_message type, uint32_t host,
                    const void *data, size_t len) {
    size_t begin;
    int rc = begin_frame(out, type, host, &begin);
    if (rc == 0) rc = cr_buffer_append(out, data, len);
    return end_frame(out, begin, rc);
}

int hosts_put_number(struct cr_buffer *out, enum hosts_message type, uint32_t host,
                     uint32_t number) {
    size_t begin;
    int rc = begin_frame(out, type, host, &begin);
    if (rc == 0) rc = put_number(out, number);
    return end_frame(out, begin, rc);
}

int hosts_put_ready(struct cr_buffer *out, uint32_t host, const char *address, uint32_t port) {
    size_t begin;
    int rc = begin_frame(out, HOSTS_READY, host, &begin);
    if (rc == 0) rc = put_text(out, address, strlen(address));
    if (rc == 0) rc = put_number(out, port);
    return end_frame(out, begin, rc);
}

int hosts_put_go(struct cr_buffer *out, const struct hosts_go *go) {
    size_t begin;
    int rc = begin_frame(out, HOSTS_GO, go->hosting, &begin);
    if (rc == 0) rc = put_text(out, go->endpoint, strlen(go->endpoint));
    return end_frame(out, begin, rc);
}

static int put_plan_texts(struct cr_buffer *out, const struct hosts_plan *p,
                          struct hosts_range range) {
    uint32_t skip = range.first - p->range.first;
    int rc = put_texts(out, p->names + skip, range.count);
    if (rc == 0) rc = put_texts(out, p->workers + skip, range.count);
    if (rc == 0) rc = put_text(out, p->folder, strlen(p->folder));
    if (rc == 0) rc = put_text(out, p->crun, strlen(p->crun));
    if (rc == 0) rc = put_text(out, p->conf, strlen(p->conf));
    if (rc == 0) rc = put_texts(out, p->rsh, length_of(p->rsh));
    if (rc == 0) rc = put_texts(out, p->options, length_of(p->options));
    if (rc == 0) rc = put_texts(out, p->program, length_of(p->program));
    if (rc == 0) rc = put_texts(out, p->variables, length_of(p->variables));
    return rc == 0 ? put_text(out, p->secret, p->secret_len) : rc;
}

int hosts_put_plan(struct cr_buffer *out, const struct hosts_plan *plan,
                   struct hosts_range range) {
    const uint32_t numbers[] = {range.first, range.count, plan->max_nodes, plan->input_host,
                                plan->fan_out, plan->copies_crun, plan->has_pty,
                                plan->pty_size};
    size_t begin;
    int rc = begin_frame(out, HOSTS_PLAN, range.first, &begin);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && rc == 0; i++) {
        rc = put_number(out, numbers[i]);
    }
    if (rc == 0) rc = put_plan_texts(out, plan, range);
    return end_frame(out, begin, rc);
}

/* ---- decoding ---- */

/* The part of a payload that is not decoded yet. `failed` is 0, or a negative errno if a value
 * could not be decoded. If it is negative, the functions below return 0, "" or NULL for each
 * further value. */
struct reader {
    const char *at;
    size_t left;
    int failed;
};

static uint32_t read_number(const char *at) {
    uint32_t number = 0;
    for (int i = 0; i < 4; i++) number = number << 8 | (unsigned char) at[i];
    return number;
}

static uint32_t take_number(struct reader *r) {
    if (r->left < 4) r->failed = -EPROTO;
    if (r->failed < 0) return 0;
    uint32_t number = read_number(r->at);
    r->at += 4;
    r->left -= 4;
    return number;
}

/* Returns the next text, and stores its length in *len. Returns "" if r->failed is negative. */
static const char *take_bytes(struct reader *r, size_t *len) {
    *len = take_number(r);
    if (r->failed == 0 && (*len >= r->left || r->at[*len] != '\0')) r->failed = -EPROTO;
    if (r->failed < 0) return *len = 0, "";
    const char *text = r->at;
    r->at += *len + 1;
    r->left -= *len + 1;
    return text;
}

static const char *take_text(struct reader *r) {
    size_t len;
    const char *text = take_bytes(r, &len);
    if (strlen(text) != len) r->failed = -EPROTO;
    return text;
}

/* Returns the next list of texts, which ends with NULL and which the caller frees. Returns NULL if
 * r->failed is negative. If `count` is not UINT32_MAX, a list with another number of texts is an
 * error. */
static const char *const *take_texts(struct reader *r, uint32_t count) {
    uint32_t n = take_number(r);
    /* a text has at least 5 bytes: its length (4 bytes) and its NUL */
    if (n > r->left / 5 || (count != UINT32_MAX && n != count)) r->failed = -EPROTO;
    if (r->failed < 0) return NULL;
    const char **texts = calloc((size_t) n + 1, sizeof(*texts));
    if (texts == NULL) r->failed = -ENOMEM;
    for (uint32_t i = 0; i < n && r->failed == 0; i++) texts[i] = take_text(r);
    return texts;
}

static int end_of(const struct reader *r) {
    return r->failed < 0 ? r->failed : r->left > 0 ? -EPROTO : 0;
}

int64_t hosts_get_frame(const char *data, size_t len, struct hosts_frame *out) {
    if (len < 4) return 0;
    size_t size = read_number(data);
    if (size < HOSTS_HEADER - 4 || size - (HOSTS_HEADER - 4) > HOSTS_PAYLOAD_MAX) return -EPROTO;
    if (len - 4 < size) return 0;
    *out = (struct hosts_frame){.type = (enum hosts_message) data[4],
                                .host = read_number(data + 5),
                                .data = data + HOSTS_HEADER,
                                .len = size - (HOSTS_HEADER - 4)};
    bool is_known = out->type >= HOSTS_PLAN && out->type <= HOSTS_LOST;
    return is_known && out->host < HOSTS_MAX ? (int64_t) size + 4 : -EPROTO;
}

int hosts_get_number(const struct hosts_frame *frame, uint32_t *out) {
    struct reader r = {.at = frame->data, .left = frame->len};
    *out = take_number(&r);
    return end_of(&r);
}

int hosts_get_ready(const struct hosts_frame *frame, char address[CR_HOST_MAX], uint32_t *port) {
    struct reader r = {.at = frame->data, .left = frame->len};
    const char *text = take_text(&r);
    *port = take_number(&r);
    if (strlen(text) >= CR_HOST_MAX || *port > UINT16_MAX) return -EPROTO;
    (void) snprintf(address, CR_HOST_MAX, "%s", text);
    return end_of(&r);
}

int hosts_get_go(const struct hosts_frame *frame, struct hosts_go *out) {
    struct reader r = {.at = frame->data, .left = frame->len};
    const char *text = take_text(&r);
    if (strlen(text) >= sizeof(out->endpoint)) return -EPROTO;
    out->hosting = frame->host;
    (void) snprintf(out->endpoint, sizeof(out->endpoint), "%s", text);
    return end_of(&r);
}

int hosts_get_plan(const struct hosts_frame *frame, struct hosts_plan *out) {
    struct reader r = {.at = frame->data, .left = frame->len};
    *out = (struct hosts_plan){0};
    out->range.first = take_number(&r);
    out->range.count = take_number(&r);
    out->max_nodes = take_number(&r);
    out->input_host = take_number(&r);
    out->fan_out = take_number(&r);
    out->copies_crun = take_number(&r);
    out->has_pty = take_number(&r);
    out->pty_size = take_number(&r);
    bool is_range = out->range.count >= 1 && out->range.count <= HOSTS_MAX &&
                    out->range.first <= HOSTS_MAX - out->range.count;
    if (!is_range || out->fan_out == 0) r.failed = -EPROTO;
    out->names = take_texts(&r, out->range.count);
    out->workers = take_texts(&r, out->range.count);
    out->folder = take_text(&r);
    out->crun = take_text(&r);
    out->conf = take_text(&r);
    out->rsh = take_texts(&r, UINT32_MAX);
    out->options = take_texts(&r, UINT32_MAX);
    out->program = take_texts(&r, UINT32_MAX);
    out->variables = take_texts(&r, UINT32_MAX);
    out->secret = take_bytes(&r, &out->secret_len);
    if (r.failed == 0 && (out->rsh[0] == NULL || out->program[0] == NULL)) r.failed = -EPROTO;
    if (out->secret_len > HOSTS_SECRET_MAX) r.failed = -EPROTO;
    int rc = end_of(&r);
    if (rc < 0) hosts_plan_done(out);
    return rc;
}

void hosts_plan_done(struct hosts_plan *plan) {
    const char *const *lists[] = {plan->names, plan->workers, plan->rsh,
                                  plan->options, plan->program, plan->variables};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        free((void *) (uintptr_t) lists[i]);
    }
    *plan = (struct hosts_plan){0};
}

enum hosts_greeting hosts_read_greeting(const char *line, uint32_t *protocol,
                                        const char **version) {
    char number[16];
    int64_t value = 0;
    size_t n = strlen(HOSTS_GREETING);
    if (strcmp(line, HOSTS_GREETING "-missing") == 0) return HOSTS_NEEDS_CRUN;
    if (strcmp(line, HOSTS_GREETING "-found") == 0) return HOSTS_HAS_CRUN;
    if (strncmp(line, HOSTS_GREETING " ", n + 1) != 0) return HOSTS_NO_GREETING;
    size_t digits = strcspn(line + n + 1, " ");
    if (digits >= sizeof(number) || line[n + 1 + digits] != ' ') return HOSTS_NO_GREETING;
    (void) snprintf(number, sizeof(number), "%.*s", (int) digits, line + n + 1);
    if (cr_parse_i64(number, 0, INT_MAX, &value) < 0) return HOSTS_NO_GREETING;
    *protocol = (uint32_t) value;
    *version = line + n + 2 + digits;
    return HOSTS_GREETS;
}
