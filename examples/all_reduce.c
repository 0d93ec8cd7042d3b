/* The smallest program with a process group: every rank gets the sum of all ranks' numbers.
 *
 *     crun --standalone --nproc-per-node=4 build/examples/all_reduce */
#include <crunrt.h>

#include <stdio.h>

static int fail(void) {
    fprintf(stderr, "all_reduce: %s\n", crunrt_last_error());
    (void) crunrt_report_error(NULL, NULL);
    return 1;
}

int main(void) {
    crunrt *rt;
    crunrt_group *world;
    if (crunrt_init(NULL, &rt) < 0 || crunrt_group_new(rt, NULL, &world) < 0) return fail();

    float sum = (float) crunrt_rank(rt);
    if (crunrt_group_all_reduce(world, &sum, &sum, 1, CRUNRT_FLOAT32, CRUNRT_SUM) < 0)
        return fail();
    printf("rank %d of %d: the sum of all ranks is %g\n", crunrt_rank(rt), crunrt_world_size(rt),
           (double) sum);

    if (crunrt_group_barrier(world) < 0) return fail();
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
