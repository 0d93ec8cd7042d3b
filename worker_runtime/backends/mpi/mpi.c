/* The mpi backend: collectives on host memory, in a program that mpirun, mpiexec or srun has
 * started. This file opens and closes groups, and contains the backend's table of functions.
 *
 *   mpi_connect.c   finds which process of MPI is which rank; makes the communicator
 *   mpi_ops.c       operations
 *   mpi_types.c     data types and reductions
 *   mpi_wait.c      waits, errors, the lock
 *
 * Three functions of MPI wait for other processes and have no timeout: MPI_Init_thread,
 * MPI_Comm_create_group and MPI_Finalize. This backend calls each of them only when it knows that
 * all ranks are there. */
#include "worker_runtime/backends/mpi/mpi_internal.h"

#include "base/memory.h"
#include "base/text/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- initialising and finalising MPI ---- */

/* Returns how many processes the MPI launcher has started, according to the launcher's environment
 * variables. Returns 0 if none of these variables is set. */
static int launched_size(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) {
        int64_t n = 0;
        if (cr_parse_i64(getenv(names[i]), 1, INT_MAX, &n) == 0) return (int) n;
    }
    return 0;
}

/* Checks that the loaded MPI library is of the implementation for which this module was built,
 * because MPI's constants differ between implementations. If the program itself links an MPI
 * library, the dynamic loader uses that library for this module, too. */
static int check_flavour(struct cr_error *err) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int len = 0;
    (void) MPI_Get_library_version(version, &len);
    version[strcspn(version, "\n")] = '\0';
    bool is_open_mpi = strncmp(version, "Open MPI", 8) == 0;
    if (is_open_mpi == (strcmp(MPI_FLAVOUR, "Open MPI") == 0)) return 0;
    return cr_fail(err, -ENOTSUP,
                   "use MPI: the program runs on '%.80s' and this module was built for " MPI_FLAVOUR
                   "; build it with that MPI (make MPICC=its-mpicc)",
                   version);
}

static int mpi_probe(const struct backend_group *group, struct cr_error *err) {
    int rc = check_flavour(err);
    if (rc < 0) return rc;
    if (is_finalised()) {
        return cr_fail(err, -EINVAL, "use MPI: the program has called MPI_Finalize already");
    }
    if (is_initialised()) return 0;
    int size = launched_size();
    if (size == 0 && group->size > 1) {
        return cr_fail(err, -ENODEV,
                       "use MPI: no MPI started this process; start the program with mpirun, "
                       "mpiexec or srun, or use the backend gloo");
    }
    if (size > group->size) {
        return cr_fail(err, -EINVAL,
                       "use MPI: MPI_Init waits for all %d processes and this group has %d; make a "
                       "group of all ranks first, or call MPI_Init_thread in the program",
                       size, group->size);
    }
    return 0;
}

/* Calls MPI_Finalize() when the process exits. A process that ends with an error, or with
 * unfinished operations, does not call MPI_Finalize(), because that would wait for all other
 * processes. In this case the MPI launcher ends the other processes. */
static void finalise_at_exit(int status, void *arg) {
    (void) arg;
    if (status == 0 && !mpi_has_unfinished() && !is_finalised()) (void) MPI_Finalize();
}

static int initialise(struct cr_error *err) {
    int level = MPI_THREAD_SINGLE, is_main = 0;
    if (!is_initialised()) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS) return fail_mpi(code, err, "initialise MPI");
        (void) on_exit(finalise_at_exit, NULL);
    }
    (void) MPI_Query_thread(&level);
    (void) MPI_Is_thread_main(&is_main);
    if (level >= MPI_THREAD_SERIALIZED || is_main) return 0;
    return cr_fail(err, -EINVAL,
                   "use MPI: it was initialised for one thread, which is not this one; call "
                   "MPI_Init_thread with MPI_THREAD_SERIALIZED");
}

/* ---- opening and closing a group ---- */

static int mpi_open(const struct backend_group *group, void **out, struct cr_error *err) {
    struct mpi_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return cr_fail(err, -ENOMEM, "open a communicator: out of memory");
    *s = (struct mpi_state){.comm = MPI_COMM_NULL,
                            .rank = group->rank,
                            .size = group->size,
                            .tag_max = 32767,
                            .store = group->store};
    mpi_enter();
    int rc = initialise(err);
    if (rc == 0) rc = make_ops(err);
    mpi_leave();
    if (rc == 0) rc = mpi_connect(s, group, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* Marks the group as aborted. It cannot end operations that are under way, because MPI has no
 * function for that. The other ranks learn of the failure from the store, which they check while
 * they wait. */
static void mpi_abort(void *arg) {
    struct mpi_state *s = arg;
    s->is_aborted = true;
    mpi_note_unfinished();
}

static void mpi_close(void *arg) {
    struct mpi_state *s = arg;
    mpi_enter();
    if (!s->is_aborted && !is_finalised()) (void) MPI_Comm_free(&s->comm);
    mpi_leave();
    free(s);
}

__attribute__((visibility("default"))) const struct crunrt_backend crunrt_backend;
const struct crunrt_backend crunrt_backend = {
    .abi = CRUNRT_BACKEND_ABI,
    .name = "mpi",
    .probe = mpi_probe,
    .open = mpi_open,
    .run = mpi_run,
    .batch = mpi_batch,
    .start = mpi_start,
    .wait = mpi_wait,
    .release = mpi_release,
    .abort = mpi_abort,
    .close = mpi_close,
};
