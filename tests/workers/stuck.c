/* A worker that waits forever, for tests of `crun-agent why` and --hang-timeout. The rank that the
 * first argument gives waits in the function that the second argument names; all other ranks wait
 * in all_reduce(). Each rank writes "in place" to stdout before it waits. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static int ends[2];
static volatile unsigned long turns;

static void wait_for_ever(void) {
    char c;
    while (read(ends[0], &c, 1) != 0) continue;
}

APART static void all_reduce(void) {
    wait_for_ever();
    turns++;
}

APART static void broadcast(void) {
    wait_for_ever();
    turns++;
}

APART static void load_batch(void) {
    for (;;) (void) sleep(1000);
}

APART static void compute(void) {
    for (;;) turns++;
}

APART static void stop_itself(void) {
    for (;;) (void) raise(SIGSTOP);
}

static const struct {
    const char *name;
    void (*run)(void);
} places[] = {{"broadcast", broadcast},
              {"load_batch", load_batch},
              {"compute", compute},
              {"stop_itself", stop_itself},
              {"all_reduce", all_reduce}};

int main(int argc, char **argv) {
    const char *rank = getenv("RANK");
    if (argc != 3 || rank == NULL || pipe(ends) < 0) return 2;
    (void) printf("in place\n");
    (void) fflush(stdout);
    const char *where = strcmp(rank, argv[1]) == 0 ? argv[2] : "all_reduce";
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strcmp(places[i].name, where) == 0) places[i].run();
    }
    return 2;
}
