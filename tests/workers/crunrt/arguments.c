/* Tests that calls with wrong arguments return an error, and that the group stays usable. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int returns_zero(int r, void *arg) {
    (void) r;
    (void) arg;
    return 0;
}

static void refuse_null_runtime(void) {
    crunrt_op op = CRUNRT_OP_INIT;
    crunrt_work *w = NULL;
    REFUSED(crunrt_init(NULL, NULL), "initialise: out is NULL");
    REFUSED(crunrt_group_new(NULL, NULL, &world), "the runtime is NULL");
    REFUSED(crunrt_group_new(rt, NULL, NULL), "make a group: out is NULL");
    REFUSED(crunrt_step(NULL, NULL), "the runtime is NULL");
    REFUSED(crunrt_answer_changes(NULL, CRUNRT_NOW, 0), "the runtime is NULL");
    REFUSED(crunrt_change_done(NULL), "the runtime is NULL");
    REFUSED(crunrt_watch_steps(NULL, 1), "the runtime is NULL");
    REFUSED(crunrt_can_rejoin(NULL, 1), "the runtime is NULL");
    REFUSED(crunrt_rejoin(NULL, NULL), "the runtime is NULL");
    REFUSED(crunrt_spawn(NULL, 1, NULL), "start workers: the function is NULL");
    REFUSED(crunrt_spawn(returns_zero, 0, NULL), "start 0 workers");
    REFUSED(crunrt_group_monitored_barrier(NULL, 0), "the group is NULL");
    REFUSED(crunrt_group_batch(NULL, NULL, 0), "the group is NULL");
    REFUSED(crunrt_group_start(world, &op, NULL), "start an operation: out is NULL");
    REFUSED(crunrt_group_start(NULL, &op, &w), "the group is NULL");
    REFUSED(crunrt_work_test(NULL, NULL), "the work is NULL");
    REFUSED(crunrt_work_wait(NULL, 0), "the work is NULL");
    REQUIRE(crunrt_rank(NULL) == -1 && crunrt_world_size(NULL) == -1 &&
                crunrt_local_rank(NULL) == -1 && crunrt_local_world_size(NULL) == -1 &&
                crunrt_restart_count(NULL) == -1 && crunrt_group_rank(NULL) == -1 &&
                crunrt_group_size(NULL) == -1,
            "numbers of nothing");
    REQUIRE(crunrt_job_store(NULL) == NULL && crunrt_group_backend(NULL) == NULL &&
                crunrt_nccl_comm(NULL) == NULL,
            "parts of nothing");
}

static void refuse_null_store(void) {
    crunrt_store *s = crunrt_job_store(rt);
    const char *keys[1] = {"absent"};
    const void *nothing[1] = {NULL};
    size_t three = 3;
    void *value = NULL;
    REFUSED(crunrt_store_open("127.0.0.1", 1, 0, NULL), "open a store: out is NULL");
    REFUSED(crunrt_store_prefix(NULL, "p", &s), "the store is NULL");
    REFUSED(crunrt_store_prefix(s, "p", NULL), "prefix a store: out is NULL");
    REFUSED(crunrt_store_prefix(s, NULL, &s), "the prefix is empty");
    REFUSED(crunrt_store_set(NULL, "k", "", 0), "the store is NULL");
    REFUSED(crunrt_store_set(s, NULL, "", 0), "the key is NULL");
    REFUSED(crunrt_store_set(s, "k", NULL, 5), "set 'k': the value is NULL, its length 5");
    REFUSED(crunrt_store_append(s, "k", NULL, 5), "the value is NULL");
    REFUSED(crunrt_store_queue_push(s, "q", NULL, 5), "the value is NULL");
    REFUSED(crunrt_store_compare_set(s, "k", NULL, 5, "", 0, NULL, NULL), "the value is NULL");
    REFUSED(crunrt_store_compare_set(s, "k", "", 0, NULL, 5, NULL, NULL), "the value is NULL");
    REFUSED(crunrt_store_multi_set(s, keys, nothing, &three, 1), "the value is NULL");
    REFUSED(crunrt_store_multi_set(s, keys, NULL, &three, 1), "values is NULL");
    REFUSED(crunrt_store_multi_set(s, keys, nothing, NULL, 1), "lens is NULL");
    REFUSED(crunrt_store_get(s, "k", 0, NULL, NULL), "value is NULL");
    REFUSED(crunrt_store_multi_get(s, keys, 1, 0, NULL, NULL), "values is NULL");
    REFUSED(crunrt_store_multi_get(s, NULL, 1, 0, &value, NULL), "the list of keys is NULL");
    REFUSED(crunrt_store_wait(s, NULL, 1, 0), "the list of keys is NULL");
    REFUSED(crunrt_store_check(s, keys, 1, NULL), "present is NULL");
    REFUSED(crunrt_store_num_keys(s, NULL), "count is NULL");
    REFUSED(crunrt_store_list_keys(s, NULL, NULL), "keys is NULL");
    REFUSED(crunrt_store_queue_pop(s, "q", 0, NULL, NULL), "value is NULL");
    REFUSED(crunrt_store_queue_len(s, "q", NULL), "count is NULL");
    REQUIRE(crunrt_store_get(s, "absent", 0, &value, NULL) == -ETIMEDOUT, "the store goes on");
}

static void refuse_counts(crunrt_group *g) {
    int32_t in[8] = {0}, out[8] = {0};
    size_t two[64] = {0}, three[64] = {0}, huge[64] = {0};
    int self = crunrt_group_rank(g);
    two[self] = 2;
    three[self] = 3;
    huge[self] = SIZE_MAX / 3;
    REFUSED(crunrt_group_all_to_all_counts(g, in, three, out, two, CRUNRT_INT32),
            "sends itself 3 elements and receives 2");
    REQUIRE(strchr(crunrt_last_error(), '\n') == NULL, "one line");
    REFUSED(crunrt_group_all_to_all_counts(g, NULL, two, out, two, CRUNRT_INT32), "buffer is NULL");
    REFUSED(crunrt_group_all_to_all_counts(g, in, two, NULL, two, CRUNRT_INT32), "buffer is NULL");
    REFUSED(crunrt_group_all_to_all_counts(g, in, huge, out, huge, CRUNRT_INT32), "is too large");
    REFUSED(crunrt_group_all_to_all_counts(g, in, NULL, out, two, CRUNRT_INT32), "send_counts");
    REQUIRE(out[0] == 0 && out[2] == 0, "nothing was written");
}

static void refuse_parts(crunrt_group *g) {
    float x[64] = {0}, y[64] = {0};
    size_t counts[64] = {0};
    crunrt_registration *r = NULL;
    void *memory = NULL;
    int self = crunrt_group_rank(g);
    crunrt_op op;
    REFUSED(crunrt_group_gather_counts(NULL, x, 1, y, counts, CRUNRT_FLOAT32, 0), "the group");
    REFUSED(crunrt_group_gather_counts(g, x, 1, y, counts, CRUNRT_FLOAT32, 99), "root 99");
    REFUSED(crunrt_group_gather_counts(g, x, 1, y, NULL, CRUNRT_FLOAT32, self), "the counts");
    REFUSED(crunrt_group_scatter_counts(g, x, NULL, y, 1, CRUNRT_FLOAT32, self), "the counts");
    REFUSED(crunrt_group_all_gather_counts(g, x, NULL, CRUNRT_FLOAT32), "the counts");
    REFUSED(crunrt_group_reduce_scatter_counts(g, x, y, NULL, CRUNRT_FLOAT32, CRUNRT_SUM),
            "the counts");
    REFUSED(crunrt_group_register(g, NULL, 1, CRUNRT_REGISTER_LOCAL, &r), "the buffer");
    REFUSED(crunrt_group_register(g, x, 0, CRUNRT_REGISTER_LOCAL, &r), "the size is 0");
    REFUSED(crunrt_group_register(g, x, 1, CRUNRT_REGISTER_LOCAL, NULL), "out");
    REFUSED(crunrt_group_memory_new(g, 0, &memory), "the size is 0");
    REFUSED(crunrt_group_memory_new(NULL, 1, &memory), "the group");
    crunrt_op_init(&op);
    op.kind = CRUNRT_OP_ALL_REDUCE;
    op.send = x;
    op.recv = y;
    op.count = 1;
    op.dtype = CRUNRT_FLOAT32;
    op.reduce = CRUNRT_PREMUL_SUM;
    REFUSED(crunrt_group_run(g, &op), "the factor is NULL");
    op.factor = x;
    op.dtype = CRUNRT_INT32;
    REFUSED(crunrt_group_run(g, &op), "needs a floating type");
    REQUIRE(crunrt_op_size() == sizeof(op), "size of an operation");
}

static void refuse_counts_alone(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.name = "two\nlines";
    for (int r = 0; r < size; r++) {
        crunrt_group *alone = NULL;
        o.ranks = &r;
        o.rank_count = 1;
        REQUIRE(crunrt_group_new(rt, &o, &alone) == 0, "a group of one");
        if (alone != NULL) refuse_counts(alone);
        crunrt_group_destroy(alone);
    }
}

void mode_arguments(void) {
    open_world(20000);
    int x = 1, y = 0;
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, (crunrt_dtype) 99, CRUNRT_SUM) == -EINVAL,
            "type");
    REQUIRE(strstr(crunrt_last_error(), "data type 99") != NULL, "text");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_INT32, (crunrt_reduce_op) 77) ==
                -EINVAL,
            "op");
    REQUIRE(crunrt_group_all_reduce(world, &x, NULL, 1, CRUNRT_INT32, CRUNRT_SUM) == -EINVAL,
            "recv NULL");
    REQUIRE(crunrt_group_all_reduce(world, NULL, &y, 1, CRUNRT_INT32, CRUNRT_SUM) == -EINVAL,
            "send NULL");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, SIZE_MAX, CRUNRT_INT32, CRUNRT_SUM) == -EINVAL,
            "count");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_FLOAT32, CRUNRT_BOR) == -EINVAL,
            "bitwise");
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_INT32, CRUNRT_AVG) ==
                (on_nccl() ? 0 : -ENOTSUP),
            "average");
    REQUIRE(crunrt_group_broadcast(world, &x, 1, CRUNRT_INT32, size) == -EINVAL, "root");
    REQUIRE(crunrt_group_broadcast(world, &x, 1, CRUNRT_INT32, -1) == -EINVAL, "root");
    REQUIRE(crunrt_group_send(world, &x, 1, CRUNRT_INT32, rank, 0) == -EINVAL, "self");
    REQUIRE(crunrt_group_barrier(NULL) == -EINVAL, "no group");
    crunrt_op bad = CRUNRT_OP_INIT;
    bad.kind = (crunrt_op_kind) 55;
    REQUIRE(crunrt_group_run(world, &bad) == -EINVAL, "kind");
    crunrt_group *g = NULL;
    int twice[2] = {0, 0}, none[1] = {size};
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.ranks = twice;
    o.rank_count = 2;
    REQUIRE(crunrt_group_new(rt, &o, &g) == -EINVAL && strstr(crunrt_last_error(), "twice"),
            "twice");
    o.ranks = none;
    o.rank_count = 1;
    REQUIRE(crunrt_group_new(rt, &o, &g) == -EINVAL, "no rank of the job");
    refuse_null_runtime();
    refuse_null_store();
    refuse_counts(world);
    refuse_parts(world);
    refuse_counts_alone();
    REQUIRE(crunrt_group_all_reduce(world, &x, &y, 1, CRUNRT_INT32, CRUNRT_SUM) == 0 && y == size,
            "the group goes on");
    printf("arguments checked on rank %d\n", rank);
    close_world();
}
