/* A test program that initialises MPI itself and then uses the worker runtime's mpi backend.
 *
 *   mpi_own            all processes make and destroy a group; then the program makes MPI calls
 *                      itself and calls MPI_Finalize(), which the backend must not have called
 *   mpi_own part RANK  process RANK of MPI_COMM_WORLD becomes rank RANK of a job of two ranks, the
 *                      other processes do nothing. The test starts this in two MPI jobs with one
 *                      store: then the backend must report an error and not hang in MPI */
#include <crunrt.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static crunrt *rt;

static void require(int holds, const char *what) {
    if (holds) return;
    printf("FAILED: %s [%s]\n", what, crunrt_last_error());
    (void) fflush(stdout);
    exit(1);
}

static int open_group(crunrt_group **group, int64_t timeout_ms) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "mpi";
    o.timeout_ms = timeout_ms;
    require(crunrt_init(NULL, &rt) == 0, "init");
    return crunrt_group_new(rt, &o, group);
}

static void use_both(void) {
    crunrt_group *group = NULL;
    int sum = 1, size = 0, finalised = 1;
    require(open_group(&group, 30000) == 0, "group");
    (void) MPI_Comm_size(MPI_COMM_WORLD, &size);
    require(crunrt_group_all_reduce(group, &sum, &sum, 1, CRUNRT_INT32, CRUNRT_SUM) == 0, "sum");
    require(sum == size, "the sum over the group");
    require(crunrt_group_barrier(group) == 0, "barrier");
    crunrt_group_destroy(group);
    crunrt_destroy(rt);
    (void) MPI_Finalized(&finalised);
    require(!finalised, "MPI is the program's to finalise");
    sum = 1;
    (void) MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    require(sum == size, "the sum over MPI_COMM_WORLD");
    (void) MPI_Finalize();
    printf("both right\n");
}

static void take_part(int part) {
    crunrt_group *group = NULL;
    int rank = -1;
    (void) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == part) {
        int rc = open_group(&group, 1500);
        printf("error %d: %s\n", rc, crunrt_last_error());
        require(rc < 0, "the group was made across two jobs");
    }
    (void) fflush(stdout);
    (void) MPI_Barrier(MPI_COMM_WORLD);
    exit(3);
}

int main(int argc, char **argv) {
    int level = 0;
    (void) MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    if (argc > 2 && strcmp(argv[1], "part") == 0) take_part(atoi(argv[2]));
    use_both();
    return 0;
}
