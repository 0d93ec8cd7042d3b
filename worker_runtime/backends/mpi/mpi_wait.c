/* Waits for MPI's requests, and error texts of MPI.
 *
 * MPI has no events and no timeouts. So a wait tests the request again and again, and yields the
 * processor between two tests. It ends when the request is done, when the deadline has passed, or
 * when another rank has reported in the store that it failed. */
#include "worker_runtime/backends/mpi/mpi_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define STORE_LOOK_EVERY_MS INT64_C(100)

static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;
/* true if an operation of this process has been given up unfinished; accessed only atomically,
 * because several threads may use groups */
static bool has_unfinished;

void mpi_enter(void) { (void) pthread_mutex_lock(&mpi_lock); }
void mpi_leave(void) { (void) pthread_mutex_unlock(&mpi_lock); }

void mpi_note_unfinished(void) { __atomic_store_n(&has_unfinished, true, __ATOMIC_RELAXED); }
bool mpi_has_unfinished(void) { return __atomic_load_n(&has_unfinished, __ATOMIC_RELAXED); }

bool is_initialised(void) {
    int flag = 0;
    (void) MPI_Initialized(&flag);
    return flag != 0;
}

bool is_finalised(void) {
    int flag = 0;
    (void) MPI_Finalized(&flag);
    return flag != 0;
}

/* ---- errors ---- */

int fail_mpi(int code, struct cr_error *err, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0, class = MPI_ERR_UNKNOWN;
    (void) MPI_Error_class(code, &class);
    (void) MPI_Error_string(code, text, &len);
    int rc = class == MPI_ERR_NO_MEM ? -ENOMEM : class == MPI_ERR_TRUNCATE ? -EPROTO : -EIO;
    return cr_fail(err, rc, "%s: MPI error class %d (%.*s)", what, class, (int) strcspn(text, "\n"),
                   text);
}

/* ---- waiting ---- */

/* Pauses between two tests of a request. MPI moves data only inside its calls, so a sleep would
 * delay the transfer. Therefore the pause only yields the processor. After the first 20 ms of a
 * wait, every 64th pause sleeps for 0.2 ms instead. */
static void pause_between_tests(int64_t started_ns, unsigned turn) {
    if (turn % 64 == 0 && cr_monotonic_ns() - started_ns > 20 * CR_NS_PER_MS) {
        struct timespec ts = {0, 200000};
        (void) nanosleep(&ts, NULL);
        return;
    }
    (void) sched_yield();
}

int test_until(const struct backend_store *store, MPI_Request *request, MPI_Status *status,
                      int64_t until_ms, struct cr_error *err) {
    int64_t started_ns = cr_monotonic_ns(), next_look_ms = cr_monotonic_ms() + STORE_LOOK_EVERY_MS;
    for (unsigned turn = 1;; turn++) {
        int done = 0;
        mpi_enter();
        int code = MPI_Test(request, &done, status);
        int rc = code == MPI_SUCCESS ? 0 : fail_mpi(code, err, "the operation failed");
        mpi_leave();
        if (rc < 0 || done) return rc;
        int64_t now = cr_monotonic_ms();
        if (now >= until_ms) return -EINPROGRESS;
        if (now >= next_look_ms) {
            next_look_ms = now + STORE_LOOK_EVERY_MS;
            rc = store->failed(store->arg, err);
            if (rc < 0) return rc;
        }
        pause_between_tests(started_ns, turn);
    }
}

void cancel_receive(MPI_Request *request) {
    mpi_enter();
    if (*request != MPI_REQUEST_NULL && !is_finalised()) {
        (void) MPI_Cancel(request);
        (void) MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    mpi_leave();
}
