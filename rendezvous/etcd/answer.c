/* Splits answers of etcd's JSON gateway into objects: see answer_internal.h. */
#include "rendezvous/etcd/answer_internal.h"

#include <errno.h>
#include <string.h>

void etcd_answer_done(struct etcd_answer *a) { cr_buffer_done(&a->body); }

/* Returns the text of the error that an answer reports, or NULL if it reports none. In a stream,
 * "error" is an object, whose "message" has the text. Any other answer has the text in "message" or
 * "error". */
static const char *find_error(const json_t *root, int status) {
    const json_t *error = json_object_get(root, "error");
    const char *text = json_string_value(json_object_get(root, "message"));
    if (text == NULL) text = json_string_value(json_object_get(error, "message"));
    if (text == NULL) text = json_string_value(error);
    if (text == NULL && (status != 200 || error != NULL)) text = "no text";
    return text;
}

static int take_object(struct etcd_answer *a, int status, const char *text, size_t len,
                       struct cr_error *err) {
    json_error_t where;
    json_auto_t *root = json_loadb(text, len, 0, &where);
    if (root == NULL && status != 200) {
        return cr_fail(err, -EPROTO, "it answers with HTTP status %d", status);
    }
    if (root == NULL) return cr_fail(err, -EPROTO, "its answer is not JSON");
    const char *error = find_error(root, status);
    if (error != NULL) {
        return cr_fail(err, -EPROTO, "it reports '%.200s' (HTTP status %d)", error, status);
    }
    const json_t *result = json_object_get(root, "result");
    return a->on_object(a->arg, result != NULL ? result : root);
}

int etcd_answer_receive(struct etcd_answer *a, int status, const char *data, size_t len,
                        struct cr_error *err) {
    struct cr_buffer *body = &a->body;
    size_t at = 0;
    int rc = 0;
    if (len > ETCD_ANSWER_MAX || body->len + len > ETCD_ANSWER_MAX) {
        return cr_fail(err, -EPROTO, "its answer is too long");
    }
    if (cr_buffer_append(body, data, len) < 0) return cr_fail(err, -ENOMEM, "out of memory");
    while (rc == 0 && at < body->len) {
        const char *line = body->data + at, *end = memchr(line, '\n', body->len - at);
        if (end == NULL) break;
        if (end > line) rc = take_object(a, status, line, (size_t) (end - line), err);
        at += (size_t) (end - line) + 1;
    }
    cr_buffer_consume(body, at);
    return rc;
}

int etcd_answer_end(struct etcd_answer *a, int status, struct cr_error *err) {
    int rc = 0;
    if (a->body.len > 0) rc = take_object(a, status, a->body.data, a->body.len, err);
    else if (status != 200) rc = cr_fail(err, -EPROTO, "it answers with HTTP status %d", status);
    cr_buffer_clear(&a->body);
    return rc;
}
