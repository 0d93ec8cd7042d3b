/* Faults of calls, which a test orders by the environment variable HOST_NCCL_FAULT.
 *
 * The variable is a list of NAME:N:WHAT[@RANK], separated by commas:
 *   NAME   a function of CUDA or NCCL, or "kernel" (a kernel begins to run), "connect" (before the
 *          launch of a kernel, its ranks connect), or "init" (a communicator is initialised)
 *   N      the number of the call in this process, beginning with 1, or "*" for every call
 *   WHAT   the name of an ncclResult_t; "cuda" and a number (cuda700); "async-" and the name of an
 *          ncclResult_t; "hang"; "late" and milliseconds (late50); for kernels "stall" or "wedge"
 *   RANK   the fault occurs only in the process whose environment has this RANK; without @RANK it
 *          occurs in every process
 * A program may change the variable while it runs. enum host_fault_kind explains the faults. */
#include "tests/host_nccl/host.h"

#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_MAX 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *name;
    unsigned long calls;
} names[NAMES_MAX];
static size_t used;

static unsigned long count_call(const char *name) {
    for (size_t i = 0; i < used; i++) {
        if (names[i].name == name) return ++names[i].calls;
    }
    for (size_t i = 0; i < used; i++) {
        if (strcmp(names[i].name, name) == 0) return ++names[i].calls;
    }
    if (used == NAMES_MAX) return 0;
    names[used].name = name;
    return names[used++].calls = 1;
}

static int result_named(const char *text) {
    static const struct {
        const char *name;
        int code;
    } results[] = {
        {"ncclUnhandledCudaError", ncclUnhandledCudaError}, {"ncclSystemError", ncclSystemError},
        {"ncclInternalError", ncclInternalError},           {"ncclInvalidUsage", ncclInvalidUsage},
        {"ncclInvalidArgument", ncclInvalidArgument},       {"ncclRemoteError", ncclRemoteError},
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (strcmp(text, results[i].name) == 0) return results[i].code;
    }
    return -1;
}

static struct host_fault parse(const char *what) {
    struct host_fault f = {HOST_FAULT_NONE, 0};
    if (strncmp(what, "cuda", 4) == 0) {
        f = (struct host_fault){HOST_FAULT_CUDA, atoi(what + 4)};
    } else if (strncmp(what, "async-", 6) == 0) {
        f = (struct host_fault){HOST_FAULT_ASYNC, result_named(what + 6)};
    } else if (strncmp(what, "late", 4) == 0) {
        f = (struct host_fault){HOST_FAULT_LATE, atoi(what + 4)};
    } else if (strcmp(what, "hang") == 0) {
        f.kind = HOST_FAULT_HANG;
    } else if (strcmp(what, "stall") == 0) {
        f.kind = HOST_FAULT_STALL;
    } else if (strcmp(what, "wedge") == 0) {
        f.kind = HOST_FAULT_WEDGE;
    } else {
        f = (struct host_fault){HOST_FAULT_NCCL, result_named(what)};
    }
    if (f.code < 0) host_misuse("HOST_NCCL_FAULT has no fault '%s'", what);
    return f;
}

static struct host_fault ordered_for(const char *name, unsigned long call) {
    struct host_fault none = {HOST_FAULT_NONE, 0};
    const char *orders = getenv("HOST_NCCL_FAULT");
    const char *rank = orders != NULL ? getenv("RANK") : NULL;
    while (orders != NULL && *orders != '\0') {
        char order[128], symbol[64], nth[16], what[48], where[16] = "";
        size_t len = strcspn(orders, ",");
        (void) snprintf(order, sizeof(order), "%.*s", (int) len, orders);
        orders += len + (orders[len] == ',');
        if (sscanf(order, "%63[^:]:%15[^:]:%47[^@]@%15s", symbol, nth, what, where) < 3)
            host_misuse("HOST_NCCL_FAULT: '%s' is not NAME:N:WHAT", order);
        if (strcmp(symbol, name) != 0) continue;
        if (strcmp(nth, "*") != 0 && strtoul(nth, NULL, 10) != call) continue;
        if (where[0] != '\0' && (rank == NULL || strcmp(where, rank) != 0)) continue;
        return parse(what);
    }
    return none;
}

struct host_fault host_call(const char *name) {
    host_count(name, 1);
    (void) pthread_mutex_lock(&lock);
    struct host_fault f = ordered_for(name, count_call(name));
    (void) pthread_mutex_unlock(&lock);
    if (f.kind == HOST_FAULT_HANG) {
        host_say("%s hangs, as ordered", name);
        for (;;) (void) pause();
    }
    if (f.kind == HOST_FAULT_LATE) {
        (void) usleep((useconds_t) f.code * 1000);
        f.kind = HOST_FAULT_NONE;
    }
    return f;
}
