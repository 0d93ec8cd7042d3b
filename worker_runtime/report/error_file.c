/* Writes the error file, whose contents the launcher shows as the cause of the worker's failure.
 * base/files/error_json.h describes the format. If several workers fail, the launcher regards the
 * error file with the smallest timestamp as the root cause. */
#include "worker_runtime/report/report_internal.h"

#include "base/buffer.h"
#include "base/files/error_json.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdlib.h>

const char *error_file_path(void) {
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    return path != NULL && path[0] != '\0' ? path : NULL;
}

static int write_record(const char *path, const char *message, const char *detail) {
    struct cr_buffer json = {0};
    int rc = cr_error_json_append(&json, message, detail, cr_wall_ns() / CR_NS_PER_S);
    if (rc < 0) {
        rc = cr_fail(rt_last_error(), rc, "report an error: out of memory");
    } else {
        rc = cr_error_json_write_file(path, json.data, json.len);
        errno = -rc;
        if (rc < 0) rc = cr_fail_errno(rt_last_error(), "write the error file '%s'", path);
    }
    cr_buffer_done(&json);
    return rc;
}

int crunrt_report_error(const char *message, const char *detail) {
    /* a copy, because the functions called below may overwrite *rt_last_error() */
    struct cr_error last = *rt_last_error();
    if (message == NULL) message = last.text;
    const char *path = error_file_path();
    if (path == NULL) {
        return cr_fail(
            rt_last_error(), -ENOENT,
            "report an error: TORCHELASTIC_ERROR_FILE is not set, so no launcher reads it");
    }
    return write_record(path, message, detail != NULL ? detail : message);
}
