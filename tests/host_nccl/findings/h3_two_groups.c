/* Finding H3: two works, on two groups, wait for a rank that never comes. Both must fail at their
 * timeout, and after that the process can make a new group. For this the communicators of both
 * groups must be aborted together: the abort of one waits for the kernels of the other. */
#include "tests/host_nccl/findings/finding.h"

int main(void) {
    open_world(1000);
    crunrt_group *other = make_group(1000, NULL, 0);
    first_sum(world);
    first_sum(other);
    if (rank != 0) {
        stand_by(1);
        kept();
    }
    crunrt_work *works[2];
    crunrt_op a = sum_of(floats(16, 1)), b = sum_of(floats(16, 1));
    int64_t since = now_ms();
    KEPT(crunrt_group_start(world, &a, &works[0]) == 0, "start");
    KEPT(crunrt_group_start(other, &b, &works[1]) == 0, "start");
    int first = crunrt_work_wait(works[0], CRUNRT_TIMEOUT_DEFAULT);
    int second = crunrt_work_wait(works[1], CRUNRT_TIMEOUT_DEFAULT);
    int64_t took = now_ms() - since;
    say_done();
    KEPT(first < 0 && second < 0, "%d, %d", first, second);
    KEPT(took < 3500, "both ended after %lld ms, the limit was 1000", (long long) took);
    crunrt_work_free(works[0]);
    crunrt_work_free(works[1]);
    crunrt_group_destroy(world);
    crunrt_group_destroy(other);
    const int alone = 0;
    crunrt_group_destroy(make_group(5000, &alone, 1));
    kept();
}
