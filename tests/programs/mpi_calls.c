/* Makes every call that crun's mpi.h declares and checks each result. If all results are right,
 * rank 0 prints "all calls agree". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int ok, const char *what, int rank) {
    if (ok) return;
    fprintf(stderr, "rank %d: wrong result of %s\n", rank, what);
    exit(3);
}

int main(int argc, char **argv) {
    int rank = -1, size = -1;
    /* --finalize-only: llm.c calls MPI_Finalize() without MPI_Init() if its ranks exchange the NCCL
     * id by TCP or by a file. */
    if (argc > 1 && strcmp(argv[1], "--finalize-only") == 0) return MPI_Finalize();
    if (argc > 1 && strcmp(argv[1], "--before-init") == 0) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(MPI_Init(&argc, &argv) == MPI_SUCCESS, "Init", -1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(rank >= 0 && rank < size && size <= 64, "rank and size", rank);

    /* All-gathers a hash of the host name, as nccl-tests does to find its local rank. */
    uint64_t hashes[64] = {0};
    hashes[rank] = 1000 + (uint64_t) rank;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hashes, sizeof(uint64_t), MPI_BYTE,
                  MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        check(hashes[i] == 1000 + (uint64_t) i, "Allgather in place", rank);
    int squares[64], own = rank * rank;
    MPI_Allgather(&own, 1, MPI_INT, squares, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) check(squares[i] == i * i, "Allgather", rank);

    /* Broadcasts 128 bytes, as nccl-tests does with the NCCL unique id. */
    unsigned char id[128];
    memset(id, rank == 0 ? 0xab : 0, sizeof(id));
    MPI_Bcast(id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    check(id[0] == 0xab && id[127] == 0xab, "Bcast", rank);
    MPI_Barrier(MPI_COMM_WORLD);

    int n = rank + 1, sum = size * (size + 1) / 2;
    MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(n == sum, "Allreduce INT SUM in place", rank);
    long l = rank, lmax = -1;
    MPI_Allreduce(&l, &lmax, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    check(lmax == size - 1, "Allreduce LONG MAX", rank);
    long long ll = rank;
    MPI_Allreduce(MPI_IN_PLACE, &ll, 1, MPI_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
    check(ll == 0, "Allreduce LONG_LONG MIN", rank);
    int64_t i64 = INT64_C(1) << 40;
    MPI_Allreduce(MPI_IN_PLACE, &i64, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    check(i64 == size * (INT64_C(1) << 40), "Allreduce INT64_T SUM", rank);
    double d = 0.5;
    MPI_Allreduce(MPI_IN_PLACE, &d, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check(d == 0.5 * size, "Allreduce DOUBLE SUM", rank);

    static char lines[64][2048];
    char line[2048] = "";
    snprintf(line, sizeof(line), "line of rank %d", rank);
    MPI_Gather(line, sizeof(line), MPI_BYTE, lines, sizeof(line), MPI_BYTE, 0, MPI_COMM_WORLD);
    double times[64], t = rank * 1.5;
    MPI_Gather(&t, 1, MPI_DOUBLE, times, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size; i++) {
        snprintf(line, sizeof(line), "line of rank %d", i);
        check(strcmp(lines[i], line) == 0 && times[i] == i * 1.5, "Gather", rank);
    }

    /* Splits into even and odd ranks; the key -rank reverses the order of the ranks. */
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int half_rank = -1, half_size = -1, members = rank % 2 == 0 ? (size + 1) / 2 : size / 2;
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_size);
    check(half_size == members && half_rank == members - 1 - rank / 2, "Comm_split", rank);
    int half_sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &half_sum, 1, MPI_INT, MPI_SUM, half);
    int expected = 0;
    for (int i = rank % 2; i < size; i += 2) expected += i;
    check(half_sum == expected, "Allreduce on a split communicator", rank);
    MPI_Comm_free(&half);
    check(half == MPI_COMM_NULL, "Comm_free", rank);
    MPI_Comm none;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : MPI_UNDEFINED, 0, &none);
    check((none == MPI_COMM_NULL) == (rank != 0), "Comm_split without colour", rank);
    if (none != MPI_COMM_NULL) MPI_Comm_free(&none);

    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(MPI_SUCCESS, text, &length);
    check(length == (int) strlen(text) && length > 0, "Error_string", rank);
    if (argc > 1 && strcmp(argv[1], "--bad-root") == 0)
        MPI_Bcast(id, 1, MPI_BYTE, size, MPI_COMM_WORLD);
    if (argc > 1 && strcmp(argv[1], "--init-twice") == 0) MPI_Init(&argc, &argv);
    MPI_Finalize();
    if (argc > 1 && strcmp(argv[1], "--after-finalize") == 0) MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("all calls agree on %d ranks\n", size);
    return 0;
}
