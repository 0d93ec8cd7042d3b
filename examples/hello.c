/* Prints the rank of each worker. It uses the job's store, but no process group.
 *
 *     crun --standalone --nproc-per-node=4 build/examples/hello */
#include <crunrt.h>

#include <stdio.h>

int main(void) {
    crunrt *rt;
    int64_t arrived;
    if (crunrt_init(NULL, &rt) < 0 ||
        crunrt_store_add(crunrt_job_store(rt), "hello", 1, &arrived) < 0) {
        fprintf(stderr, "hello: %s\n", crunrt_last_error());
        (void) crunrt_report_error(NULL, NULL);
        return 1;
    }
    printf("hello from rank %d of %d, number %lld to arrive\n", crunrt_rank(rt),
           crunrt_world_size(rt), (long long) arrived);
    crunrt_destroy(rt);
    return 0;
}
