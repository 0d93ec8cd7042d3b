/* One of each collective, on one number or one number per rank.
 *
 *     crun --standalone --nproc-per-node=3 build/examples/collectives */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>

static int rank, size;

static void must(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "collectives: %s: %s\n", what, crunrt_last_error());
    (void) crunrt_report_error(NULL, NULL);
    exit(1);
}

static void show(const char *what, const int *numbers, size_t count) {
    char line[4096];
    int n = snprintf(line, sizeof(line), "rank %d: %s", rank, what);
    for (size_t i = 0; i < count && n < (int) sizeof(line) - 16; i++)
        n += snprintf(line + n, sizeof(line) - (size_t) n, " %d", numbers[i]);
    (void) puts(line);
}

/* Collectives in which every rank gives one number, and gets one number. */
static void of_one_number(crunrt_group *world) {
    int own = rank, got = rank;
    must(crunrt_group_broadcast(world, &got, 1, CRUNRT_INT32, size - 1), "broadcast");
    show("broadcast", &got, 1);
    must(crunrt_group_all_reduce(world, &own, &got, 1, CRUNRT_INT32, CRUNRT_MAX), "all_reduce");
    show("all_reduce", &got, 1);
    must(crunrt_group_reduce(world, &own, &got, 1, CRUNRT_INT32, CRUNRT_SUM, 0), "reduce");
    if (rank == 0) show("reduce", &got, 1);
}

/* Collectives in which every rank gives, or gets, one number for each rank. */
static void of_a_number_per_rank(crunrt_group *world, const int *mine, int *got) {
    size_t n = (size_t) size;
    int own = rank;
    must(crunrt_group_all_gather(world, &own, got, 1, CRUNRT_INT32), "all_gather");
    show("all_gather", got, n);
    must(crunrt_group_gather(world, &own, got, 1, CRUNRT_INT32, 0), "gather");
    if (rank == 0) show("gather", got, n);
    must(crunrt_group_scatter(world, mine, got, 1, CRUNRT_INT32, 0), "scatter");
    show("scatter", got, 1);
    must(crunrt_group_reduce_scatter(world, mine, got, 1, CRUNRT_INT32, CRUNRT_SUM),
         "reduce_scatter");
    show("reduce_scatter", got, 1);
    must(crunrt_group_all_to_all(world, mine, got, 1, CRUNRT_INT32), "all_to_all");
    show("all_to_all", got, n);
}

/* Collectives with parts of different lengths: rank r has r + 1 numbers, and counts[r] contains
 * this length. */
static void of_parts_of_different_lengths(crunrt_group *world, const int *mine, int *got) {
    size_t n = (size_t) size, own = (size_t) rank + 1, before = 0;
    size_t *counts = calloc(n, sizeof(*counts));
    if (counts == NULL) exit(1);
    for (size_t r = 0; r < n; r++) counts[r] = r + 1;
    for (int r = 0; r < rank; r++) before += counts[r];
    must(crunrt_group_gather_counts(world, mine, own, got, counts, CRUNRT_INT32, 0),
         "gather_counts");
    if (rank == 0) show("gather_counts", got, n * (n + 1) / 2);
    for (size_t i = 0; i < own; i++) got[before + i] = mine[i];
    must(crunrt_group_all_gather_counts(world, got, counts, CRUNRT_INT32), "all_gather_counts");
    show("all_gather_counts", got, n * (n + 1) / 2);
    free(counts);
}

int main(void) {
    crunrt *rt;
    crunrt_group *world;
    must(crunrt_init(NULL, &rt), "start");
    must(crunrt_group_new(rt, NULL, &world), "meet the other ranks");
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
    size_t n = (size_t) size;
    int *mine = calloc(n, sizeof(*mine)), *got = calloc(n * (n + 1), sizeof(*got));
    if (mine == NULL || got == NULL) return 1;
    for (int i = 0; i < size; i++) mine[i] = 10 * rank + i;
    of_one_number(world);
    of_a_number_per_rank(world, mine, got);
    of_parts_of_different_lengths(world, mine, got);
    must(crunrt_group_barrier(world), "end together");
    free(mine);
    free(got);
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
