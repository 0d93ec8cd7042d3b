/* What the programs of tests/gpu share: the runtime of this rank, a check, and a group on NCCL. */
#ifndef TESTS_GPU_TEST_H
#define TESTS_GPU_TEST_H

#include <crunrt.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static crunrt *rt;
static int rank, size;

/* Ends the program with an error text if `ok` is 0. */
static void require(int ok, const char *what) {
    if (ok) return;
    printf("FAILED %s: %s\n", what, crunrt_last_error());
    exit(1);
}

static crunrt_group *open_group(int64_t timeout_ms) {
    crunrt_group *g = NULL;
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    o.backend = "nccl";
    o.timeout_ms = timeout_ms;
    require(crunrt_group_new(rt, &o, &g) == 0, "make a group");
    return g;
}

#endif
