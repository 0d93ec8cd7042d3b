/* A worker program for the tests of libcrunrt:  crunrt_worker MODE [ARGUMENT…]
 *
 * Each mode tests one property of the library, and prints its results for the test scripts. If a
 * check fails, the program prints a line that names the check and ends with status 1. */
#include "tests/workers/crunrt/worker.h"

#include <string.h>
#include <time.h>

const char *argument[2] = {"", ""};
crunrt *rt;
crunrt_group *world;
int rank, size;

int64_t now_ms(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void open_runtime(void) {
    crunrt_init_options o = CRUNRT_INIT_OPTIONS_INIT;
    o.method = getenv("TEST_INIT_METHOD");
    REQUIRE(crunrt_init(&o, &rt) == 0, "init");
    rank = crunrt_rank(rt);
    size = crunrt_world_size(rt);
}

void open_world(int64_t timeout_ms) {
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.timeout_ms = timeout_ms;
    open_runtime();
    REQUIRE(crunrt_group_new(rt, &o, &world) == 0, "world");
}

int on_nccl(void) {
    const char *backend = crunrt_group_backend(world);
    return strcmp(backend, "nccl") == 0 || strcmp(backend, "rccl") == 0;
}

void close_world(void) {
    REQUIRE(crunrt_group_barrier(world) == 0, "last barrier");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
}

void print_error(int rc, int64_t since_ms) {
    printf("error %d after %lld ms: %s\n", rc, (long long) (now_ms() - since_ms),
           crunrt_last_error());
    (void) fflush(stdout);
}

int main(int argc, char **argv) {
#define ENTRY(name, function) {name, function},
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {MODES(ENTRY)};
#undef ENTRY
    const char *mode = argc > 1 ? argv[1] : "";
    for (int i = 0; i < 2 && i + 2 < argc; i++) argument[i] = argv[i + 2];
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].name, mode) != 0) continue;
        modes[i].run();
        return 0;
    }
    (void) fprintf(stderr, "crunrt_worker: no mode '%s'\n", mode);
    return 2;
}
