/* Reads a worker's error file, and writes the error file that crun's own parent process reads. */
#include "agent/evidence/error_file.h"

#include "base/cleanup.h"
#include "base/files/error_json.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading an error file ---- */

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

void error_file_read(struct error_record *r, const char *path) {
    struct stat st;
    *r = (struct error_record){.timestamp_s = -1};
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return;
    size_t cap = (size_t) st.st_size < ERROR_FILE_MAX ? (size_t) st.st_size : ERROR_FILE_MAX;
    CR_AUTO_FREE char *data = malloc(cap + 1);
    error_record_parse(r, data, data != NULL ? read_up_to(fd, data, cap) : 0);
    r->mtime_ns = (int64_t) st.st_mtim.tv_sec * CR_NS_PER_S + st.st_mtim.tv_nsec;
    if ((size_t) st.st_size > ERROR_FILE_MAX) r->flaw = "it is larger than 1 MiB";
    if (data == NULL) r->flaw = "no memory left to read it";
}

/* ---- writing crun's own error file ---- */

/* Returns an error record with this message, or NULL if memory is short. */
static json_t *make_record(const char *message) {
    struct cr_buffer text = {0};
    json_t *record = NULL;
    if (cr_error_json_append(&text, message, "", cr_wall_ns() / CR_NS_PER_S) == 0) {
        record = json_loadb(text.data, text.len, 0, NULL);
    }
    cr_buffer_done(&text);
    return record;
}

int error_file_pass_on(const struct error_record *r, const char *fallback, int exit_code,
                       const char *path) {
    json_auto_t *root = NULL;
    if (r->flaw == NULL) root = json_loadb(r->raw, r->raw_len, JSON_DECODE_ANY, NULL);
    if (root == NULL) root = make_record(fallback);
    if (root == NULL) return -ENOMEM;
    json_t *message = json_object_get(root, "message");
    if (json_is_object(message) && exit_code != 0 &&
        json_object_set_new(message, "errorCode", json_integer(exit_code)) < 0) {
        return -ENOMEM;
    }
    CR_AUTO_FREE char *text = json_dumps(root, JSON_ENCODE_ANY);
    return text == NULL ? -ENOMEM : cr_error_json_write_file(path, text, strlen(text));
}
