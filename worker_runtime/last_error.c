/* The text of the last failure, one a thread, in fixed storage: it works when memory is short. */
#include "worker_runtime/crunrt_internal.h"

#include <stdlib.h>

static _Thread_local struct cr_error thread_error;

struct cr_error *rt_last_error(void) {
    return &thread_error;
}

const char *crunrt_last_error(void) { return thread_error.text; }

const char *crunrt_version(void) { return CRUN_VERSION; }

void crunrt_free(void *memory) { free(memory); }
