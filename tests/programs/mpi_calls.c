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

/* Every rank has rank + 1 ints, of which number i is 10 * rank + i. In a buffer with the parts of
 * all ranks, the parts lie one after the other, in the order of the ranks. */
static void check_parts(int rank, int size) {
    int counts[64], displs[64], all = 0, own[64], whole[64 * 65 / 2], part[64], sums[64];
    int back[64 * 65 / 2];
    for (int r = 0; r < size; r++) {
        counts[r] = r + 1;
        displs[r] = all;
        all += counts[r];
    }
    for (int i = 0; i <= rank; i++) own[i] = 10 * rank + i;
    memset(whole, 0, sizeof(whole));
    MPI_Allgatherv(own, rank + 1, MPI_INT, whole, counts, displs, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0, k = 0; r < size; r++)
        for (int i = 0; i <= r; i++) check(whole[k++] == 10 * r + i, "Allgatherv", rank);
    memset(back, 0, sizeof(back));
    MPI_Gatherv(own, rank + 1, MPI_INT, back, counts, displs, MPI_INT, size - 1, MPI_COMM_WORLD);
    if (rank == size - 1)
        check(memcmp(back, whole, (size_t) all * sizeof(int)) == 0, "Gatherv", rank);
    MPI_Scatterv(whole, counts, displs, MPI_INT, part, rank + 1, MPI_INT, 0, MPI_COMM_WORLD);
    check(memcmp(part, own, (size_t) (rank + 1) * sizeof(int)) == 0, "Scatterv", rank);
    MPI_Reduce_scatter(whole, sums, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i <= rank; i++) check(sums[i] == size * own[i], "Reduce_scatter", rank);
    for (int r = 0; r < size; r++) {
        counts[r] = 1;
        displs[r] = r;
        part[r] = 100 * rank + r;
    }
    MPI_Alltoall(part, 1, MPI_INT, back, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) check(back[r] == 100 * r + rank, "Alltoall", rank);
    memset(back, 0, sizeof(back));
    MPI_Alltoallv(part, counts, displs, MPI_INT, back, counts, displs, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) check(back[r] == 100 * r + rank, "Alltoallv", rank);
    MPI_Scatter(part, 1, MPI_INT, &own[0], 1, MPI_INT, 0, MPI_COMM_WORLD);
    check(own[0] == rank, "Scatter", rank);
}

/* Checks the non-blocking collectives. The parts have the lengths of check_parts(), but lie in the
 * reverse order of the ranks, with gaps of one int. */
static void check_nonblocking(int rank, int size) {
    int counts[64], displs[64], own[64], part[64], whole[64 * 66 / 2], back[64 * 66 / 2], at = 0;
    int all[64], word = rank == size - 1 ? 77 : 0, sum = rank + 1, product = 0, mine = -1, flag = 0;
    MPI_Request r[8], one;
    for (int i = size - 1; i >= 0; i--) {
        counts[i] = i + 1;
        displs[i] = at;
        at += counts[i] + 1;
    }
    for (int i = 0; i <= rank; i++) own[i] = 10 * rank + i;
    for (int i = 0; i < size; i++) part[i] = 100 * rank + i;
    /* starts several operations before it waits for any */
    MPI_Ibarrier(MPI_COMM_WORLD, &r[0]);
    MPI_Ibcast(&word, 1, MPI_INT, size - 1, MPI_COMM_WORLD, &r[1]);
    MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[2]);
    MPI_Iallgatherv(own, rank + 1, MPI_INT, whole, counts, displs, MPI_INT, MPI_COMM_WORLD, &r[3]);
    MPI_Ialltoall(part, 1, MPI_INT, back, 1, MPI_INT, MPI_COMM_WORLD, &r[4]);
    MPI_Waitall(5, r, MPI_STATUSES_IGNORE);
    check(word == 77 && sum == size * (size + 1) / 2, "Ibcast, Iallreduce", rank);
    for (int i = 0; i < size; i++) check(back[i] == 100 * i + rank, "Ialltoall", rank);
    for (int i = 0; i < size; i++)
        for (int k = 0; k <= i; k++)
            check(whole[displs[i] + k] == 10 * i + k, "Iallgatherv", rank);
    memset(back, 0, sizeof(back));
    MPI_Igatherv(own, rank + 1, MPI_INT, back, counts, displs, MPI_INT, 0, MPI_COMM_WORLD, &one);
    while (!flag) MPI_Test(&one, &flag, MPI_STATUS_IGNORE);
    for (int i = 0; rank == 0 && i < size; i++)
        check(memcmp(&back[displs[i]], &whole[displs[i]], (size_t) counts[i] * sizeof(int)) == 0,
              "Igatherv", rank);
    memset(own, 0, sizeof(own));
    MPI_Iscatterv(whole, counts, displs, MPI_INT, own, rank + 1, MPI_INT, size - 1, MPI_COMM_WORLD,
                  &one);
    MPI_Wait(&one, MPI_STATUS_IGNORE);
    for (int i = 0; i <= rank; i++) check(own[i] == 10 * rank + i, "Iscatterv", rank);
    MPI_Iallgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, &r[0]);
    MPI_Ireduce(&sum, &product, 1, MPI_INT, MPI_MAX, size - 1, MPI_COMM_WORLD, &r[1]);
    MPI_Iscatter(part, 1, MPI_INT, &mine, 1, MPI_INT, 0, MPI_COMM_WORLD, &r[2]);
    MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
    for (int i = 0; i < size; i++) check(all[i] == i, "Iallgather", rank);
    check(mine == rank && (rank != size - 1 || product == sum), "Iscatter, Ireduce", rank);
    MPI_Igather(&rank, 1, MPI_INT, all, 1, MPI_INT, size - 1, MPI_COMM_WORLD, &one);
    MPI_Wait(&one, MPI_STATUS_IGNORE);
    for (int i = 0; rank == size - 1 && i < size; i++) check(all[i] == i, "Igather", rank);
}

/* Checks MPI_Alltoallw(), in which even ranks send ints and odd ranks doubles, at displacements in
 * bytes; and MPI_Ialltoallv() with counts with which some ranks send nothing. */
static void check_types_of_parts(int rank, int size) {
    int counts[64], displs[64], in[64], places[64];
    MPI_Datatype types[64], theirs[64];
    double sent[64], got[64];
    int32_t back[64];
    MPI_Request one;
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        displs[i] = places[i] = i * (int) sizeof(double);
        types[i] = rank % 2 == 0 ? MPI_INT32_T : MPI_DOUBLE;
        theirs[i] = i % 2 == 0 ? MPI_INT32_T : MPI_DOUBLE;
        int32_t whole = rank;
        double broken = rank + 0.5;
        memcpy(&sent[i], rank % 2 == 0 ? (void *) &whole : (void *) &broken,
               rank % 2 == 0 ? sizeof(whole) : sizeof(broken));
    }
    MPI_Alltoallw(sent, counts, displs, types, got, counts, places, theirs, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
        int32_t whole;
        memcpy(&whole, &got[i], sizeof(whole));
        check(i % 2 == 0 ? whole == i : got[i] == i + 0.5, "Alltoallw", rank);
    }
    /* rank r sends one int to each rank above it */
    for (int i = 0; i < size; i++) {
        counts[i] = i > rank;
        in[i] = i < rank;
        displs[i] = i;
        back[i] = -1;
        ((int32_t *) sent)[i] = rank;
    }
    MPI_Ialltoallv(sent, counts, displs, MPI_INT32_T, back, in, displs, MPI_INT32_T, MPI_COMM_WORLD,
                   &one);
    MPI_Wait(&one, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++) check(back[i] == (i < rank ? i : -1), "Ialltoallv", rank);
}

static void check_reductions(int rank, int size) {
    struct {
        double value;
        int index;
    } here = {rank == size / 2 ? -1.0 : rank, rank}, least = {0, -1};
    int n = rank + 1, product = 0, factorial = 1;
    for (int i = 2; i <= size; i++) factorial *= i;
    MPI_Reduce(&n, &product, 1, MPI_INT, MPI_PROD, 0, MPI_COMM_WORLD);
    if (rank == 0) check(product == factorial, "Reduce PROD", rank);
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : (void *) &n, &n, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) check(n == size, "Reduce in place", rank);
    MPI_Allreduce(&here, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    check(least.value == -1.0 && least.index == size / 2, "Allreduce MINLOC", rank);
    MPI_Reduce(&here, &least, 1, MPI_DOUBLE_INT, MPI_MAXLOC, 0, MPI_COMM_WORLD);
    int most = size == 1 ? 0 : size - 1 == size / 2 ? size - 2 : size - 1;
    if (rank == 0) check(least.index == most, "Reduce MAXLOC", rank);
    unsigned long bits = 1ul << rank;
    MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_UNSIGNED_LONG, MPI_BOR, MPI_COMM_WORLD);
    check(bits == (1ul << size) - 1, "Allreduce BOR", rank);
}

static void check_messages(int rank, int size) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size, got[3] = {-1, -1, -1};
    int n = 0, flag = 0;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[3];
    MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
    check(flag == 1, "Test of no request", rank);
    if (size == 1) return;
    MPI_Sendrecv(&rank, 1, MPI_INT, right, 4, &got[0], 1, MPI_INT, left, 4, MPI_COMM_WORLD,
                 &status);
    check(got[0] == left && status.MPI_SOURCE == left && status.MPI_TAG == 4, "Sendrecv", rank);
    MPI_Irecv(&got[1], 2, MPI_INT, left, 5, MPI_COMM_WORLD, &requests[0]);
    int pair[2] = {rank, 7};
    MPI_Isend(pair, 2, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(3, requests, statuses);
    MPI_Get_count(&statuses[0], MPI_INT, &n);
    check(got[1] == left && got[2] == 7 && n == 2, "Irecv, Isend and Waitall", rank);
    check(requests[0] == MPI_REQUEST_NULL, "Waitall frees", rank);
    if (rank == 0) {
        MPI_Send(pair, 2, MPI_INT, 1, 6, MPI_COMM_WORLD);
        MPI_Irecv(got, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[0]);
        for (flag = 0; !flag;) MPI_Test(&requests[0], &flag, &status);
        check(got[0] == 8, "Test", rank);
    } else if (rank == 1) {
        int eight = 8;
        MPI_Recv(got, 2, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(got[0] == 0 && got[1] == 7, "Send and Recv", rank);
        MPI_Send(&eight, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    }
}

static void check_host(int rank, int size) {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0, local = -1, flag = 0;
    double before = MPI_Wtime();
    MPI_Comm host;
    MPI_Get_processor_name(name, &length);
    check(length > 0 && length == (int) strlen(name), "Get_processor_name", rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &local);
    check(local == size, "Comm_split_type", rank); /* the test has one host */
    MPI_Comm_free(&host);
    MPI_Initialized(&flag);
    check(flag == 1 && MPI_Wtime() >= before, "Initialized and Wtime", rank);
}

int main(int argc, char **argv) {
    int rank = -1, size = -1;
    /* --finalize-only: llm.c calls MPI_Finalize() without MPI_Init() if its ranks exchange the NCCL
     * id by TCP or by a file. */
    if (argc > 1 && strcmp(argv[1], "--finalize-only") == 0) return MPI_Finalize();
    if (argc > 1 && strcmp(argv[1], "--before-init") == 0) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int provided = -1;
    check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS, "Init", -1);
    check(provided == MPI_THREAD_FUNNELED, "Init_thread", -1);
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

    check_parts(rank, size);
    check_nonblocking(rank, size);
    check_types_of_parts(rank, size);
    check_reductions(rank, size);
    check_messages(rank, size);
    check_host(rank, size);

    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(MPI_SUCCESS, text, &length);
    check(length == (int) strlen(text) && length > 0, "Error_string", rank);
    if (argc > 1 && strcmp(argv[1], "--bad-root") == 0)
        MPI_Bcast(id, 1, MPI_BYTE, size, MPI_COMM_WORLD);
    if (argc > 1 && strcmp(argv[1], "--abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1 && strcmp(argv[1], "--to-itself") == 0)
        MPI_Send(id, 1, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
    if (argc > 1 && strcmp(argv[1], "--gaps") == 0) {
        int counts[64], displs[64];
        for (int r = 0; r < size; r++) displs[r] = 2 * (r + (counts[r] = 1));
        MPI_Allgatherv(&rank, 1, MPI_INT, squares, counts, displs, MPI_INT, MPI_COMM_WORLD);
    }
    if (argc > 1 && strcmp(argv[1], "--init-twice") == 0) MPI_Init(&argc, &argv);
    MPI_Finalize();
    if (argc > 1 && strcmp(argv[1], "--after-finalize") == 0) MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("all calls agree on %d ranks\n", size);
    return 0;
}
