/* A C program that is one rank in a group of torch.distributed ranks. It uses torch's keys in the
 * store, takes part in the barrier at the end of torch's initialisation, and after this barrier
 * all-reduces, broadcasts and exchanges messages with the other ranks.
 *
 *     join_torch PREFIX BARRIER_KEY */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(int rc, const char *what) {
    if (rc == 0) return;
    printf("FAILED: %s: %s\n", what, crunrt_last_error());
    exit(1);
}

static void finish_torch_init(crunrt_store *store, const char *key, int size) {
    int64_t here = 0;
    must(crunrt_store_add(store, key, 1, &here), "torch's barrier");
    /* poll the barrier's counter, as torch does: torch sets no key when all ranks have arrived */
    while (here < size) {
        (void) usleep(10000);
        must(crunrt_store_add(store, key, 0, &here), "torch's barrier");
    }
}

int main(int argc, char **argv) {
    crunrt *rt;
    crunrt_group *world;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    if (argc != 3) return 2;
    o.foreign_prefix = argv[1];
    o.timeout_ms = 60000;
    must(crunrt_init(NULL, &rt), "init");
    must(crunrt_group_new(rt, &o, &world), "join");
    if (argv[2][0] != '\0') finish_torch_init(crunrt_job_store(rt), argv[2], crunrt_world_size(rt));
    int rank = crunrt_rank(rt), size = crunrt_world_size(rt);
    float x[1000];
    for (int i = 0; i < 1000; i++) x[i] = (float) (rank + i);
    must(crunrt_group_all_reduce(world, x, x, 1000, CRUNRT_FLOAT32, CRUNRT_SUM), "all-reduce");
    for (int i = 0; i < 1000; i++) {
        int want = size * (size - 1) / 2 + size * i;
        if (x[i] != (float) want) return puts("FAILED: wrong sum"), 1;
    }
    int64_t word = 0, ball = 0;
    must(crunrt_group_broadcast(world, &word, 1, CRUNRT_INT64, 0), "broadcast");
    must(crunrt_group_recv(world, &ball, 1, CRUNRT_INT64, 0, 5), "receive");
    ball++;
    must(crunrt_group_send(world, &ball, 1, CRUNRT_INT64, 0, 6), "send");
    must(crunrt_group_barrier(world), "barrier");
    printf("C rank %d of %d: sum right, word %lld, ball %lld\n", rank, size, (long long) word,
           (long long) ball);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
