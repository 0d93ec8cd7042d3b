/* Finding H5: after the loss of its CUDA context a process cannot take part in another round, so
 * crunrt_rejoin() must fail with -ENOTRECOVERABLE. The process then ends, crun replaces it, and the
 * job succeeds. This program must be started by crun. */
#include "tests/host_nccl/findings/finding.h"

/* Makes a group and runs two all-reduces on it. In the first round the second all-reduce poisons
 * the CUDA context of rank 1, because main() has ordered this fault. */
static int work(void) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    o.timeout_ms = 3000;
    int rc = crunrt_group_new(rt, &o, &world);
    for (int i = 0; i < 2 && rc == 0; i++) {
        crunrt_op op = sum_of(floats(16, 1));
        rc = crunrt_group_run(world, &op);
    }
    crunrt_group_destroy(world);
    world = NULL;
    return rc;
}

int main(void) {
    open_job();
    int poisoned = rank == 1 && crunrt_restart_count(rt) == 0;
    if (poisoned) (void) setenv("HOST_NCCL_FAULT", "kernel:2:cuda700", 1);
    (void) crunrt_can_rejoin(rt, 1);
    for (int turn = 0; turn < 5; turn++) {
        if (work() == 0) {
            KEPT(!poisoned, "rank 1 computed on a lost context");
            kept();
        }
        int rc = crunrt_rejoin(rt, NULL);
        if (poisoned) {
            KEPT(rc == -ENOTRECOVERABLE, "rejoin returned %d", rc);
            return 9;
        }
        KEPT(rc == 0, "rejoin returned %d", rc);
        rank = crunrt_rank(rt);
    }
    KEPT(0, "no turn went well");
}
