/* Tests of groups on the nccl backend, with the fake NCCL of tests/fake, or with a real NCCL that
 * can use host memory. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes two groups one after the other, and runs an operation on each. Prints the error text of the
 * first failure. */
void mode_nccl(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    o.timeout_ms = timeout != NULL ? atoi(timeout) : 60000;
    open_runtime();
    for (int i = 0; i < 2; i++) {
        float x = 1;
        int64_t since = now_ms();
        int rc = crunrt_group_new(rt, &o, &world);
        if (rc == 0 && i == 0) {
            int bits = 1;
            REQUIRE(crunrt_group_all_reduce(world, &bits, &bits, 1, CRUNRT_INT32, CRUNRT_BOR) ==
                        -ENOTSUP,
                    "nccl has no bitwise reduction");
        }
        if (rc == 0) rc = crunrt_group_all_reduce(world, &x, &x, 1, CRUNRT_FLOAT32, CRUNRT_SUM);
        if (rc == 0) rc = crunrt_group_barrier(world);
        if (rc < 0) print_error(rc, since);
        crunrt_group_destroy(world);
        world = NULL;
        if (rc < 0) exit(3);
        printf("group %d done\n", i);
    }
    crunrt_destroy(rt);
}

static float nccl_sum(crunrt_group *g) {
    float x = 1;
    REQUIRE(crunrt_group_all_reduce(g, &x, &x, 1, CRUNRT_FLOAT32, CRUNRT_SUM) == 0, "sum");
    return x;
}

/* Makes a group of all ranks, and splits three groups from it: the even ranks, the odd ranks, all
 * ranks in reverse order. With the argument "absent" the odd ranks do not take part in the splits,
 * and only the group of the even ranks is made. If the environment variable TEST_DESTROYED is set,
 * rank 1 destroys its group of all ranks before the splits. */
void mode_nccl_split(void) {
    int absent = strcmp(argument[0], "absent") == 0;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    int lists[3][16], counts[3] = {0, 0, 0};
    o.backend = "nccl";
    const char *timeout = getenv("TEST_TIMEOUT_MS");
    o.timeout_ms = timeout != NULL ? atoi(timeout) : 60000;
    open_runtime();
    REQUIRE(crunrt_group_new(rt, &o, &world) == 0, "world");
    (void) nccl_sum(world);
    for (int r = 0; r < size; r++) {
        lists[r % 2][counts[r % 2]++] = r;
        lists[2][counts[2]++] = size - 1 - r;
    }
    if (getenv("TEST_DESTROYED") != NULL && rank == 1) {
        crunrt_group_destroy(world);
        world = NULL;
    }
    for (int i = 0; i < (absent ? 1 : 3); i++) {
        if (absent && rank % 2 != 0) break;
        crunrt_group *g = NULL;
        o.ranks = lists[i];
        o.rank_count = (size_t) counts[i];
        int64_t since = now_ms();
        int rc = crunrt_group_new(rt, &o, &g);
        if (rc < 0) {
            print_error(rc, since);
            if (world != NULL) printf("world %d\n", crunrt_group_barrier(world));
            crunrt_group_destroy(world);
            exit(3);
        }
        if (g != NULL) {
            (void) nccl_sum(g);
            REQUIRE(crunrt_nccl_comm(g) != crunrt_nccl_comm(world), "a communicator of its own");
            printf("group %d: rank %d of %d\n", i, crunrt_group_rank(g), crunrt_group_size(g));
        }
        crunrt_group_destroy(g);
    }
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    printf("split done\n");
}

/* The first operation fails in the way that the environment variable FAKE_NCCL selects. After that
 * the same processes rejoin, and make a group of all ranks and a group of some ranks. */
void mode_nccl_rejoin(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    float x = 1;
    crunrt_op op = CRUNRT_OP_INIT;
    o.backend = "nccl";
    o.timeout_ms = 60000;
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.dtype = CRUNRT_FLOAT32;
    op.send = op.recv = &x;
    op.count = 1;
    op.timeout_ms = 1000;
    open_runtime();
    crunrt_group *other = NULL;
    REQUIRE(crunrt_group_new(rt, &o, &world) == 0, "world");
    REQUIRE(crunrt_group_new(rt, &o, &other) == 0, "a second group of all ranks");
    int64_t since = now_ms();
    int rc = crunrt_group_run(world, &op);
    REQUIRE(rc < 0, "the operation passed");
    print_error(rc, since);
    REQUIRE(crunrt_group_barrier(world) == -EPIPE, "broken");
    crunrt_group_destroy(world);
    crunrt_group_destroy(other);
    (void) setenv("FAKE_NCCL", "", 1);
    crunrt_rejoin_options r = CRUNRT_REJOIN_OPTIONS_INIT;
    rc = crunrt_rejoin(rt, &r);
    if (rc == -ENOTRECOVERABLE) {
        print_error(rc, since);
        since = now_ms();
        rc = crunrt_group_new(rt, &o, &world);
        REQUIRE(rc == -ENOTRECOVERABLE, "make a group without the GPU");
        print_error(rc, since);
        exit(4);
    }
    REQUIRE(rc == 0, "rejoin");
    since = now_ms();
    rc = crunrt_group_new(rt, &o, &world);
    if (rc < 0) {
        print_error(rc, since);
        exit(4);
    }
    (void) nccl_sum(world);
    const int part[1] = {0};
    crunrt_group *g = NULL;
    o.ranks = part;
    o.rank_count = 1;
    REQUIRE(crunrt_group_new(rt, &o, &g) == 0 && (g != NULL) == (rank == 0), "a part");
    crunrt_group_destroy(g);
    crunrt_group_destroy(world);
    printf("rank %d went on as %d of %d\n", rank, crunrt_rank(rt), crunrt_world_size(rt));
    crunrt_destroy(rt);
}
