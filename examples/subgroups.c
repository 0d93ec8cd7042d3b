/* Groups of some of the ranks: the even ranks and the odd ranks each compute a sum, at the same
 * time.
 *
 *     crun --standalone --nproc-per-node=4 build/examples/subgroups */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>

static void must(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "subgroups: %s: %s\n", what, crunrt_last_error());
    (void) crunrt_report_error(NULL, NULL);
    exit(1);
}

int main(void) {
    crunrt *rt;
    must(crunrt_init(NULL, &rt), "start");
    int rank = crunrt_rank(rt), size = crunrt_world_size(rt);
    int *ranks = malloc((size_t) size * sizeof(*ranks));
    for (int parity = 0; parity < 2 && parity < size; parity++) {
        crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
        crunrt_group *group = NULL;
        o.name = parity == 0 ? "evens" : "odds";
        o.ranks = ranks;
        for (int r = parity; r < size; r += 2) ranks[o.rank_count++] = r;
        /* Every rank makes every group, in the same order. A rank that is not in the list gets
         * NULL. */
        must(crunrt_group_new(rt, &o, &group), "make a group");
        if (group == NULL) continue;
        int sum = rank;
        must(crunrt_group_all_reduce(group, &sum, &sum, 1, CRUNRT_INT32, CRUNRT_SUM), "sum");
        printf("rank %d is number %d of the %zu %s; their sum is %d\n", rank,
               crunrt_group_rank(group), o.rank_count, o.name, sum);
        must(crunrt_group_barrier(group), "end together");
        crunrt_group_destroy(group);
    }
    free(ranks);
    crunrt_destroy(rt);
    return 0;
}
