/* Measures crunrt_step(), and clock_gettime(), which crunrt_step() calls. Prints "step N" and
 * "clock N": the nanoseconds per call of the two functions, each the lowest of ten rounds.
 * bench_crunrt.py runs this program without an agent and with a simulated agent. */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 1000000, ROUNDS = 10 };

static double now_ns(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double) ts.tv_sec * 1e9 + (double) ts.tv_nsec;
}

int main(void) {
    crunrt *rt = NULL;
    double step = 1e9, clock = 1e9;
    if (crunrt_init(NULL, &rt) < 0) {
        fprintf(stderr, "step: %s\n", crunrt_last_error());
        return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) {
            if (crunrt_step(rt, NULL) != 0) return 1;
        }
        double between = now_ns();
        for (int i = 0; i < CALLS; i++) (void) now_ns();
        double end = now_ns();
        if ((between - start) / CALLS < step) step = (between - start) / CALLS;
        if ((end - between) / CALLS < clock) clock = (end - between) / CALLS;
    }
    crunrt_destroy(rt);
    printf("step %.1f\nclock %.1f\n", step, clock);
    return 0;
}
