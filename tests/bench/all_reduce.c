/* The worker program of bench_crunrt.py. It measures the time from crunrt_init() to the end of the
 * first collective, the median time of an all-reduce for each of several sizes, and the time that
 * the worker runtime itself takes per call. To measure this last time, the program reduces over a
 * group of one rank, for which Gloo has nothing to do. Rank 0 prints one line "NAME VALUE" for each
 * of these times, in microseconds; the name of an all-reduce is its size in bytes. With the
 * argument "first", only the time to the first collective is measured. */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}

static void must(int rc) {
    if (rc == 0) return;
    fprintf(stderr, "all_reduce: %s\n", crunrt_last_error());
    exit(1);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median_us(crunrt_group *world, float *data, size_t count, int rounds) {
    double *took = malloc((size_t) rounds * sizeof(*took));
    for (int i = -2; i < rounds; i++) { /* rounds -2 and -1 only warm up */
        must(crunrt_group_barrier(world));
        double start = now_us();
        must(crunrt_group_all_reduce(world, data, data, count, CRUNRT_FLOAT32, CRUNRT_SUM));
        if (i >= 0) took[i] = now_us() - start;
    }
    qsort(took, (size_t) rounds, sizeof(*took), by_value);
    double median = took[rounds / 2];
    free(took);
    return median;
}

static double layer_us(crunrt *rt) {
    enum { CALLS = 200000 };
    int alone[1] = {crunrt_rank(rt)};
    crunrt_group *g = NULL, *mine = NULL;
    for (int r = 0; r < crunrt_world_size(rt); r++) {
        int list[1] = {r};
        crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
        o.ranks = list;
        o.rank_count = 1;
        must(crunrt_group_new(rt, &o, &g));
        if (r == alone[0]) mine = g;
    }
    float x = 1;
    double start = now_us();
    for (int i = 0; i < CALLS; i++) {
        must(crunrt_group_all_reduce(mine, &x, &x, 1, CRUNRT_FLOAT32, CRUNRT_SUM));
    }
    double each = (now_us() - start) / CALLS;
    crunrt_group_destroy(mine);
    return each;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {1 << 10, 1 << 16, 1 << 20, 16 << 20, 64 << 20};
    static const int rounds[] = {1000, 300, 100, 15, 7};
    double start = now_us();
    crunrt *rt = NULL;
    crunrt_group *world = NULL;
    must(crunrt_init(NULL, &rt));
    must(crunrt_group_new(rt, NULL, &world));
    float one = 1;
    must(crunrt_group_all_reduce(world, &one, &one, 1, CRUNRT_FLOAT32, CRUNRT_SUM));
    double first = now_us() - start;
    float *data = malloc(sizes[4]);
    memset(data, 0, sizes[4]);
    int first_only = argc > 1 && strcmp(argv[1], "first") == 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !first_only; i++) {
        double us = median_us(world, data, sizes[i] / sizeof(float), rounds[i]);
        if (crunrt_rank(rt) == 0) printf("%zu %.1f\n", sizes[i], us);
    }
    double layer = first_only ? 0 : layer_us(rt);
    if (crunrt_rank(rt) == 0) printf("first %.0f\nlayer %.3f\n", first, layer);
    must(crunrt_group_barrier(world));
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    free(data);
    return 0;
}
