/* Writes torch's error record; base/files/error_json.h describes the format. */
#include "base/files/error_json.h"

#include "base/cleanup.h"
#include "base/files/private_file.h"
#include "base/files/write_all.h"
#include "base/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cr_error_json_append(struct cr_buffer *out, const char *message, const char *call_stack,
                         int64_t seconds) {
    int rc = cr_buffer_printf(out, CR_ERROR_JSON_HEAD);
    if (rc == 0) rc = cr_json_string_append(out, message);
    if (rc == 0) rc = cr_buffer_printf(out, CR_ERROR_JSON_STACK);
    if (rc == 0) rc = cr_json_string_append(out, call_stack);
    if (rc == 0) {
        rc = cr_buffer_printf(out, CR_ERROR_JSON_TIME "%" PRId64 CR_ERROR_JSON_TAIL, seconds);
    }
    return rc;
}

/* Writes all bytes to the descriptor and closes it. `opened` is a descriptor, or the negative errno
 * of the function that should have opened it. Returns 0 or a negative errno. */
static int write_and_close(int opened, const char *data, size_t len) {
    CR_AUTO_FD int fd = opened;
    return opened < 0 ? opened : cr_write_all(fd, data, len);
}

int cr_error_json_write_file(const char *path, const char *data, size_t len) {
    CR_AUTO_FREE char *beside = cr_asprintf("%s.%d", path, (int) getpid());
    if (beside == NULL) return -ENOMEM;
    int rc = write_and_close(cr_private_create(beside), data, len);
    if (rc == 0 && rename(beside, path) == 0) return 0;
    (void) unlink(beside);
    return write_and_close(cr_private_open(path, O_WRONLY | O_CREAT | O_TRUNC), data, len);
}
