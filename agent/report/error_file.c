#include "agent/report/error_file.h"

#include "agent/output/last_lines.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- parsing ---- */

static int64_t seconds_of(const json_t *value) {
    double seconds = -1;
    if (json_is_number(value)) seconds = json_number_value(value);
    if (json_is_string(value)) {
        char *end;
        const char *text = json_string_value(value);
        seconds = strtod(text, &end);
        if (end == text || *end != '\0') seconds = -1;
    }
    return seconds >= 0 && seconds < 9e9 ? (int64_t) seconds : -1; /* NaN fails the first */
}

static char *text_of(const json_t *value) {
    if (json_is_string(value)) return strdup(json_string_value(value));
    return value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
}

static const char *take(struct error_file *e, const json_t *root) {
    const json_t *message = json_object_get(root, "message");
    const json_t *stamp = json_object_get(root, "timestamp");
    if (message == NULL) return "it has no \"message\"";
    if (json_is_object(message)) {
        const json_t *extra = json_object_get(message, "extraInfo");
        e->message = text_of(json_object_get(message, "message"));
        e->traceback = text_of(json_object_get(extra, "py_callstack"));
        stamp = json_object_get(extra, "timestamp");
    } else {
        e->message = text_of(message);
    }
    e->timestamp_s = seconds_of(stamp);
    return NULL;
}

int error_file_parse(struct error_file *e, const char *data, size_t len) {
    json_error_t why;
    e->present = 1;
    e->timestamp_s = -1;
    e->raw = malloc(len + 1);
    if (e->raw == NULL) return -ENOMEM;
    if (len > 0) memcpy(e->raw, data, len);
    e->raw[len] = '\0';
    e->raw_len = len;
    json_auto_t *root = json_loadb(data, len, JSON_DECODE_ANY, &why);
    if (len == 0) e->flaw = "it is empty";
    else if (root == NULL) e->flaw = "it is not JSON";
    else if (!json_is_object(root)) e->flaw = "it is not a JSON object";
    else e->flaw = take(e, root);
    return 0;
}

/* ---- the file ---- */

static size_t read_up_to(int fd, char *data, size_t cap) {
    size_t len = 0;
    while (len < cap) {
        ssize_t n = read(fd, data + len, cap - len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        len += (size_t) n;
    }
    return len;
}

void error_file_read(struct error_file *e, const char *path) {
    struct stat st;
    *e = (struct error_file){.timestamp_s = -1};
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return;
    size_t cap = (size_t) st.st_size < ERROR_FILE_MAX ? (size_t) st.st_size : ERROR_FILE_MAX;
    CR_AUTO_FREE char *data = malloc(cap + 1);
    if (data == NULL) return;
    size_t len = read_up_to(fd, data, cap);
    if (error_file_parse(e, data, len) < 0) return;
    e->mtime_ns = (int64_t) st.st_mtim.tv_sec * CR_NS_PER_S + st.st_mtim.tv_nsec;
    if ((size_t) st.st_size > ERROR_FILE_MAX) e->flaw = "it is larger than 1 MiB";
}

void error_file_done(struct error_file *e) {
    free(e->message);
    free(e->traceback);
    free(e->raw);
    *e = (struct error_file){.timestamp_s = -1};
}

/* ---- passing on ---- */

static json_t *make_record(const char *text) {
    char seconds[32];
    struct cr_buffer clean = {0};
    (void) snprintf(seconds, sizeof(seconds), "%" PRId64, cr_wall_ns() / CR_NS_PER_S);
    json_t *record = NULL;
    if (last_lines_escape(&clean, text, strlen(text)) == 0) {
        record = json_pack("{s{ss%s{ssss}}}", "message", "message",
                           clean.data != NULL ? clean.data : "", clean.len, "extraInfo",
                           "py_callstack", "", "timestamp", seconds);
    }
    cr_buffer_done(&clean);
    return record;
}

/* Beside it and renamed, so that nobody reads half of it; in place where that folder is not ours. */
static int write_json(const json_t *root, const char *path) {
    CR_AUTO_FREE char *beside = NULL;
    if (asprintf(&beside, "%s.%d", path, (int) getpid()) < 0) return -ENOMEM;
    if (json_dump_file(root, beside, JSON_ENCODE_ANY) == 0 && rename(beside, path) == 0) return 0;
    (void) unlink(beside);
    return json_dump_file(root, path, JSON_ENCODE_ANY) == 0 ? 0 : -EIO;
}

int error_file_pass_on(const struct error_file *e, const char *fallback, int exit_code,
                       const char *path) {
    json_auto_t *root = NULL;
    if (e->flaw == NULL) root = json_loadb(e->raw, e->raw_len, JSON_DECODE_ANY, NULL);
    if (root == NULL) root = make_record(fallback);
    if (root == NULL) return -ENOMEM;
    json_t *message = json_object_get(root, "message");
    if (json_is_object(message) && exit_code != 0) {
        (void) json_object_set_new(message, "errorCode", json_integer(exit_code));
    }
    return write_json(root, path);
}
