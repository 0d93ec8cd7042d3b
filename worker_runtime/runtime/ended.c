/* Writes to the store that this rank has ended, so that a rank that waits for it fails at once and
 * not only at its timeout. crunrt_destroy() does this, and so does the normal end of the process.
 * The value of the key <prefix>/ended has the text "<rank>;" for each rank that has ended; such a
 * rank makes no more groups. A rank that ends also writes, for each group that it has not
 * destroyed, how many collectives it has made in that group. */
#include "worker_runtime/runtime/runtime.h"

#include "base/cleanup.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* longest time in ms that a request waits for the store when the process ends */
#define REPORT_MS INT64_C(1000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct crunrt *living; /* list of all runtimes of this process, linked by next_living */

static void key_of(const struct crunrt *rt, char out[96]) {
    (void) snprintf(out, 96, "%s/ended", rt->prefix);
}

void rt_report_end(struct crunrt *rt) {
    char key[96], text[16];
    bool is_child = rt->pid != getpid(); /* a child that this process has forked reports nothing */
    if (is_child || rt->store == NULL || rt->prefix[0] == '\0' || rt->place.world_size == 1) return;
    if (rt->store->timeout_ms > REPORT_MS) rt->store->timeout_ms = REPORT_MS;
    rt->store->never_waits = true;
    if (rt->leave_groups != NULL) rt->leave_groups(rt);
    int n = snprintf(text, sizeof(text), "%d;", rt->place.rank);
    key_of(rt, key);
    (void) crunrt_store_append(rt->store, key, text, (size_t) n);
    rt->store->never_waits = false;
}

/* Runs at exit(): reports the end of this process's rank in each runtime. Does not free the
 * runtimes, because other threads may still use them. */
static void on_exit_of_process(void) {
    if (pthread_mutex_trylock(&lock) != 0) return;
    for (struct crunrt *rt = living; rt != NULL; rt = rt->next_living) rt_report_end(rt);
    (void) pthread_mutex_unlock(&lock);
}

void rt_begin_life(struct crunrt *rt) {
    static bool has_handler;
    (void) pthread_mutex_lock(&lock);
    if (!has_handler) has_handler = atexit(on_exit_of_process) == 0;
    rt->pid = getpid();
    rt->next_living = living;
    living = rt;
    (void) pthread_mutex_unlock(&lock);
}

void rt_end_life(struct crunrt *rt) {
    (void) pthread_mutex_lock(&lock);
    struct crunrt **at = &living;
    while (*at != NULL && *at != rt) at = &(*at)->next_living;
    if (*at != NULL) *at = rt->next_living;
    (void) pthread_mutex_unlock(&lock);
}

int rt_ended_rank(struct crunrt *rt, const int *ranks, size_t count) {
    char key[96];
    void *value = NULL;
    key_of(rt, key);
    if (crunrt_store_get(rt->store, key, 0, &value, NULL) < 0) return -1;
    CR_AUTO_FREE char *text = value;
    for (char *at = text, *end = NULL; at != NULL && *at != '\0'; at = strchr(at, ';')) {
        if (*at == ';' && *++at == '\0') break;
        long rank = strtol(at, &end, 10);
        if (end == at || rank == rt->place.rank) continue;
        for (size_t i = 0; ranks != NULL && i < count; i++) {
            if (ranks[i] == rank) return (int) rank;
        }
        if (ranks == NULL) return (int) rank;
    }
    return -1;
}
