/* The text of each thread's last failure, and the functions crunrt_version() and crunrt_free(). The
 * text is in thread-local memory, so that no memory need be allocated to set it. */
#include "worker_runtime/report/report.h"

#include <errno.h>
#include <stdlib.h>

static _Thread_local struct cr_error thread_error;

struct cr_error *rt_last_error(void) {
    return &thread_error;
}

int rt_fail_null(const char *what, const char *argument) {
    return cr_fail(rt_last_error(), -EINVAL, "%s: %s is NULL", what, argument);
}

int rt_pipe_to_reset(int rc, struct cr_error *err) {
    if (rc != -EPIPE) return rc;
    err->code = -ECONNRESET;
    return -ECONNRESET;
}

const char *crunrt_last_error(void) { return thread_error.text; }

const char *crunrt_version(void) { return CRUN_VERSION; }

void crunrt_free(void *memory) { free(memory); }
