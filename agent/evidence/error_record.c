/* Parses a worker's error record: see error_record.h for its forms. */
#include "agent/evidence/error_record.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "no memory left to read it";

/* Returns the seconds since 1970 that a JSON number or string states. Returns -1 if it states no
 * number, or a time that is not between the years 1970 and 2255. */
static int64_t seconds_of(const json_t *value) {
    double seconds = -1;
    if (json_is_number(value)) seconds = json_number_value(value);
    if (json_is_string(value)) {
        char *end;
        const char *text = json_string_value(value);
        seconds = strtod(text, &end);
        if (end == text || *end != '\0') seconds = -1;
    }
    return seconds >= 0 && seconds < 9e9 ? (int64_t) seconds : -1;
}

/* Sets *out to a malloc'ed copy of the value's text; if `value` is NULL, *out is left as NULL.
 * Returns false if memory is short. */
static bool copy_text(const json_t *value, char **out) {
    if (value == NULL) return true;
    *out = json_is_string(value) ? strdup(json_string_value(value))
                                 : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    return *out != NULL;
}

/* Copies the fields of the record to *r. Returns NULL; or a text that says why that failed: the
 * record cannot be understood, or memory is short. */
static const char *take_fields(struct error_record *r, const json_t *root) {
    const json_t *message = json_object_get(root, "message");
    const json_t *stamp = json_object_get(root, "timestamp");
    const json_t *call_stack = NULL;
    if (message == NULL) return "it has no \"message\"";
    if (json_is_object(message)) {
        const json_t *extra = json_object_get(message, "extraInfo");
        call_stack = json_object_get(extra, "py_callstack");
        stamp = json_object_get(extra, "timestamp");
        message = json_object_get(message, "message");
    }
    r->timestamp_s = seconds_of(stamp);
    return copy_text(message, &r->message) && copy_text(call_stack, &r->traceback) ? NULL
                                                                                   : no_memory;
}

static const char *parse(struct error_record *r) {
    json_error_t error;
    if (r->raw_len == 0) return "it is empty";
    json_auto_t *root = json_loadb(r->raw, r->raw_len, JSON_DECODE_ANY, &error);
    if (root == NULL) {
        return json_error_code(&error) == json_error_out_of_memory ? no_memory : "it is not JSON";
    }
    return json_is_object(root) ? take_fields(r, root) : "it is not a JSON object";
}

void error_record_parse(struct error_record *r, const char *data, size_t len) {
    *r = (struct error_record){.present = true, .timestamp_s = -1, .raw = malloc(len + 1)};
    if (r->raw == NULL) {
        r->flaw = no_memory;
        return;
    }
    if (len > 0) memcpy(r->raw, data, len);
    r->raw[len] = '\0';
    r->raw_len = len;
    r->flaw = parse(r);
}

void error_record_done(struct error_record *r) {
    free(r->message);
    free(r->traceback);
    free(r->raw);
    *r = (struct error_record){.timestamp_s = -1};
}
