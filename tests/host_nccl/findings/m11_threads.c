/* Finding M11: two threads may use two groups at the same time, one each. If both groups are on one
 * GPU, crunrt.h demands that all ranks make the calls in the same order; here a lock ensures this.
 */
#include "tests/host_nccl/findings/finding.h"

#include <pthread.h>

enum { ROUNDS = 50 };

static crunrt_group *groups[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_over = PTHREAD_COND_INITIALIZER;
static int turn;

static void *use(void *arg) {
    int own = (int) (intptr_t) arg;
    (void) cudaSetDevice(rank);
    float *x = floats(16, 1);
    crunrt_op op = sum_of(x);
    for (int i = 0; i < ROUNDS; i++) {
        (void) pthread_mutex_lock(&lock);
        while (turn % 2 != own) (void) pthread_cond_wait(&turn_over, &lock);
        KEPT(crunrt_group_enqueue(groups[own], &op) == 0, "enqueue");
        turn++;
        (void) pthread_cond_signal(&turn_over);
        (void) pthread_mutex_unlock(&lock);
    }
    KEPT(crunrt_group_wait(groups[own], CRUNRT_FOREVER) == 0, "wait");
    return NULL;
}

int main(void) {
    pthread_t other;
    open_world(5000);
    groups[0] = world;
    groups[1] = make_group(5000, NULL, 0);
    first_sum(groups[0]);
    first_sum(groups[1]);
    KEPT(pthread_create(&other, NULL, use, (void *) (intptr_t) 1) == 0, "thread");
    (void) use((void *) (intptr_t) 0);
    (void) pthread_join(other, NULL);
    crunrt_group_destroy(groups[1]);
    crunrt_group_destroy(groups[0]);
    kept();
}
