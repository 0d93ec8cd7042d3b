/* Counters of the host NCCL, and its messages on stderr.
 *
 * The calls of each function of CUDA and NCCL are counted under the function's name. The other
 * counters are "threads" (threads that NCCL would make), "host_waits" (calls in which the host
 * blocked), "device_waits" (waits for a whole device), "kernels" and "races". If the environment
 * has HOST_NCCL_COUNTERS=PREFIX, the process writes all counters to the file PREFIX.<RANK> when it
 * ends, as lines of the form "name value". */
#include "tests/host_nccl/host.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNTERS_MAX 256

struct counter {
    const char *name;
    uint64_t value;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter counters[COUNTERS_MAX];
static size_t used;

static struct counter *find(const char *name, bool make) {
    for (size_t i = 0; i < used; i++) {
        if (counters[i].name == name) return &counters[i];
    }
    for (size_t i = 0; i < used; i++) {
        if (strcmp(counters[i].name, name) == 0) return &counters[i];
    }
    if (!make || used == COUNTERS_MAX) return NULL;
    counters[used].name = name;
    return &counters[used++];
}

void host_count(const char *name, uint64_t n) {
    (void) pthread_mutex_lock(&lock);
    struct counter *c = find(name, true);
    if (c != NULL) c->value += n;
    (void) pthread_mutex_unlock(&lock);
}

uint64_t host_nccl_counter(const char *name) {
    (void) pthread_mutex_lock(&lock);
    const struct counter *c = find(name, false);
    uint64_t value = c != NULL ? c->value : 0;
    (void) pthread_mutex_unlock(&lock);
    return value;
}

__attribute__((destructor)) static void write_counters(void) {
    const char *prefix = getenv("HOST_NCCL_COUNTERS"), *rank = getenv("RANK");
    char path[512];
    if (prefix == NULL) return;
    (void) snprintf(path, sizeof(path), "%s.%s", prefix, rank != NULL ? rank : "0");
    FILE *f = fopen(path, "w");
    if (f == NULL) return;
    for (size_t i = 0; i < used; i++)
        (void) fprintf(f, "%s %llu\n", counters[i].name, (unsigned long long) counters[i].value);
    (void) fclose(f);
}

static void write_line(const char *prefix, const char *format, va_list args) {
    char line[1024];
    int n = snprintf(line, sizeof(line), "host nccl: %s", prefix);
    int m = vsnprintf(line + n, sizeof(line) - (size_t) n - 1, format, args);
    size_t len = (size_t) n + (m > 0 ? (size_t) m : 0);
    if (len > sizeof(line) - 2) len = sizeof(line) - 2;
    line[len++] = '\n';
    (void) !write(STDERR_FILENO, line, len);
}

void host_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line("", format, args);
    va_end(args);
}

void host_misuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line("MISUSE: ", format, args);
    va_end(args);
    _exit(98);
}
