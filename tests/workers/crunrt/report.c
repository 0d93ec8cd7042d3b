/* Tests of the error file and the flight record. */
#include "tests/workers/crunrt/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHT_DUMPS 100

static void *dump_again_and_again(void *arg) {
    int *code = arg;
    for (int i = 0; i < FLIGHT_DUMPS && *code == 0; i++) *code = crunrt_flight_dump(NULL);
    return NULL;
}

/* Returns whether the file contains a complete flight record: it begins with the first brace of the
 * JSON text and ends with the last. */
static int is_whole(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    size_t n = fread(text, 1, sizeof(text), f);
    (void) fclose(f);
    return n > 4 && n < sizeof(text) && text[0] == '{' && memcmp(text + n - 3, "]}\n", 3) == 0 &&
           memchr(text, '\0', n) == NULL;
}

/* Two threads write the flight record at the same time, while this thread reads the file. */
void mode_flight(void) {
    const char *path = argument[0];
    REQUIRE(crunrt_flight_dump(NULL) == -ENOENT && strstr(crunrt_last_error(), "crunrt_init()"),
            "before a path is known");
    open_world(20000);
    for (int i = 0; i < 2500; i++) REQUIRE(crunrt_group_barrier(world) == 0, "barrier");
    crunrt_op ops[2] = {CRUNRT_OP_INIT, CRUNRT_OP_INIT};
    ops[0].kind = CRUNRT_OP_SEND;
    REFUSED(crunrt_group_batch(world, ops, 2), "operation 0: send in group 'world': the peer is");
    ops[0].kind = CRUNRT_OP_BARRIER;
    REFUSED(crunrt_group_batch(world, ops, 2), "operation 0: barrier is neither a send");
    REQUIRE(crunrt_flight_dump(NULL) == 0, "dump");
    pthread_t threads[2];
    int codes[2] = {0, 0};
    for (int t = 0; t < 2; t++)
        REQUIRE(pthread_create(&threads[t], NULL, dump_again_and_again, &codes[t]) == 0, "thread");
    for (int i = 0; i < FLIGHT_DUMPS; i++) REQUIRE(is_whole(path), "half a record");
    for (int t = 0; t < 2; t++) (void) pthread_join(threads[t], NULL);
    REQUIRE(codes[0] == 0 && codes[1] == 0 && is_whole(path), "dumps");
    close_world();
}

/* Writes the error file: from a given text, from the last error, or by a fatal signal. */
void mode_report(void) {
    const char *what = argument[0];
    if (strcmp(what, "text") == 0) {
        int rc = crunrt_report_error("ValueError: \"bad\" \\ \x01 \xff \xc3\xa9", "line 1\nline 2");
        if (rc < 0) print_error(rc, now_ms());
        exit(rc < 0 ? 3 : 1);
    }
    if (strcmp(what, "last") == 0) {
        crunrt_store *nowhere = NULL;
        REQUIRE(crunrt_store_open("", 1, 1, &nowhere) == -EINVAL, "an error to report");
        exit(crunrt_report_error(NULL, NULL) == 0 ? 1 : 3);
    }
    REQUIRE(crunrt_report_fatal_signals() == 0, "handler");
    if (strcmp(what, "segv") == 0) {
        int *volatile nowhere = (int *) (uintptr_t) 0x10;
        *nowhere = 1;
    }
    abort();
}
