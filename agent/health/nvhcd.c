/* Writes and parses the messages of NVRx's node health service: implements nvhcd_internal.h.
 *
 * A field of a protocol buffer begins with a varint: the field's number times 8, plus its type. A
 * varint has 7 bits a byte, the lowest ones first; the highest bit says that a byte follows. */
#include "agent/health/nvhcd_internal.h"

#include "base/text/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_LEN ((size_t) 5)

/* types of fields */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* keys: number times 8, plus type */
enum {
    REQUEST_ARG = 1 << 3 | BYTES,
    ANSWER_SUCCESS = 1 << 3 | VARINT,
    ANSWER_EXIT_CODE = 2 << 3 | VARINT,
    ANSWER_OUTPUT = 3 << 3 | BYTES,
    ANSWER_ERROR = 4 << 3 | BYTES,
};

/* ---- writing ---- */

static int append_varint(struct cr_buffer *out, uint64_t value) {
    char bytes[10];
    size_t len = 0;
    for (; value >= 128; value >>= 7) bytes[len++] = (char) (value | 128);
    bytes[len++] = (char) value;
    return cr_buffer_append(out, bytes, len);
}

static int append_arg(struct cr_buffer *out, const char *arg, size_t len) {
    int rc = append_varint(out, REQUEST_ARG);
    if (rc == 0) rc = append_varint(out, len);
    return rc == 0 ? cr_buffer_append(out, arg, len) : rc;
}

int nvhcd_write_request(struct cr_buffer *out, const char *args) {
    size_t begin = out->len;
    int rc = cr_buffer_append(out, "\0\0\0\0\0", PREFIX_LEN);
    while (rc == 0 && *args != '\0') {
        size_t len = strcspn(args, " ");
        if (len > 0) rc = append_arg(out, args, len);
        args += len + strspn(args + len, " ");
    }
    if (rc < 0) return rc;
    size_t len = out->len - begin - PREFIX_LEN;
    for (size_t i = 1; i < PREFIX_LEN; i++) {
        out->data[begin + i] = (char) (len >> 8 * (PREFIX_LEN - 1 - i));
    }
    return 0;
}

/* ---- reading ---- */

struct reader {
    const char *at, *end;
};

static bool read_varint(struct reader *r, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; r->at < r->end && shift < 64; shift += 7) {
        uint64_t byte = (unsigned char) *r->at++;
        *out |= (byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

static bool read_bytes(struct reader *r, const char **data, size_t *len) {
    uint64_t size;
    if (!read_varint(r, &size) || size > (uint64_t) (r->end - r->at)) return false;
    *data = r->at;
    *len = (size_t) size;
    r->at += size;
    return true;
}

static bool skip(struct reader *r, unsigned type) {
    const char *data;
    uint64_t number;
    size_t len = type == FIXED64 ? 8 : 4;
    if (type == VARINT) return read_varint(r, &number);
    if (type == BYTES) return read_bytes(r, &data, &len);
    if ((type != FIXED64 && type != FIXED32) || len > (size_t) (r->end - r->at)) return false;
    r->at += len;
    return true;
}

static bool read_field(struct reader *r, struct nvhcd_answer *out) {
    uint64_t key, number;
    if (!read_varint(r, &key)) return false;
    switch (key) {
    case ANSWER_OUTPUT: return read_bytes(r, &out->output, &out->output_len);
    case ANSWER_ERROR: return read_bytes(r, &out->error, &out->error_len);
    case ANSWER_SUCCESS:
    case ANSWER_EXIT_CODE:
        if (!read_varint(r, &number)) return false;
        if (key == ANSWER_SUCCESS) out->success = number != 0;
        else out->exit_code = (int32_t) (uint32_t) number;
        return true;
    default: return key >> 3 != 0 && skip(r, key & 7);
    }
}

int nvhcd_read_answer(const char *data, size_t len, struct nvhcd_answer *out) {
    *out = (struct nvhcd_answer){.output = "", .error = ""};
    if (len < PREFIX_LEN || data[0] != 0) return -EPROTO;
    uint64_t size = 0;
    for (size_t i = 1; i < PREFIX_LEN; i++) size = size << 8 | (unsigned char) data[i];
    if (size != len - PREFIX_LEN) return -EPROTO;
    struct reader r = {.at = data + PREFIX_LEN, .end = data + len};
    while (r.at < r.end) {
        if (!read_field(&r, out)) return -EPROTO;
    }
    return 0;
}

/* ---- what the answer means ---- */

/* Appends the names in the array `checks` to `why`, with commas between them. */
static void name_checks(const json_t *checks, char *why, size_t room) {
    const json_t *check;
    size_t i, len = 0;
    json_array_foreach(checks, i, check) {
        const char *name = json_string_value(check);
        if (name == NULL) name = json_string_value(json_object_get(check, "name"));
        if (name == NULL || len + 3 >= room) continue;
        if (len > 0) len += (size_t) snprintf(why + len, room - len, ", ");
        len += cr_text_copy(why + len, room - len, name, strlen(name));
    }
}

bool nvhcd_is_well(const struct nvhcd_answer *a, char *why, size_t room) {
    json_auto_t *output = json_loadb(a->output, a->output_len, 0, NULL);
    json_int_t failed = json_integer_value(json_object_get(output, "fail_count"));
    if (a->success && failed <= 0) return true;
    why[0] = '\0';
    (void) cr_text_copy(why, room, a->error, a->error_len);
    if (why[0] == '\0') name_checks(json_object_get(output, "failed_checks"), why, room);
    if (why[0] == '\0') (void) cr_text_copy(why, room, a->output, a->output_len);
    if (why[0] == '\0') {
        (void) snprintf(why, room, "it has failed with exit code %d", (int) a->exit_code);
    }
    return false;
}
