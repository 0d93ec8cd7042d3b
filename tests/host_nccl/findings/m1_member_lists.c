/* Finding M1: if ranks give different lists of ranks for a group, crunrt_group_new() must fail
 * instead of making a wrong group. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    static const int lists[4][2] = {{0, 1}, {0, 3}, {0, 1}, {2, 3}};
    open_job();
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_group *g = NULL;
    o.backend = "nccl";
    o.timeout_ms = 2000;
    o.ranks = lists[rank];
    o.rank_count = 2;
    int rc = crunrt_group_new(rt, &o, &g);
    KEPT(g == NULL, "a group of {%d, %d} was made", lists[rank][0], lists[rank][1]);
    if (rank == 0 || rank == 3) KEPT(rc == -EPROTO, "%d", rc);
    kept();
}
