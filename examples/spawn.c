/* Workers without a launcher: this program forks four copies of itself, which form one group.
 *
 *     build/examples/spawn */
#include <crunrt.h>

#include <stdio.h>

static int fail(const char *what) {
    fprintf(stderr, "spawn: %s: %s\n", what, crunrt_last_error());
    return 1;
}

static int worker(int rank, void *arg) {
    crunrt *rt;
    crunrt_group *world;
    if (crunrt_init(NULL, &rt) < 0 || crunrt_group_new(rt, NULL, &world) < 0) return fail("start");
    double mean = *(const double *) arg * rank;
    if (crunrt_group_all_reduce(world, &mean, &mean, 1, CRUNRT_FLOAT64, CRUNRT_AVG) < 0)
        return fail("average");
    if (rank == 0) printf("%d workers, the mean is %g\n", crunrt_world_size(rt), mean);
    if (crunrt_group_barrier(world) < 0) return fail("end together");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}

int main(void) {
    double scale = 10;
    return crunrt_spawn(worker, 4, &scale) < 0 ? fail("start the workers") : 0;
}
