/* Detects races between operations with vector clocks.
 *
 * Every stream is an actor, and the host is one more actor. The clock of an operation contains
 * every operation that the host has waited for, or that the operation's stream was made to wait
 * for. Two operations on overlapping memory, at least one of which writes, race if the clock of the
 * later one does not contain the earlier one. The rules by which operations are ordered are those
 * of CUDA's programming guide (streams, events, the legacy default stream) and of "API
 * synchronization behavior" in the runtime's manual. The times at which operations happen to run do
 * not matter, so a race is found in every run of a program.
 *
 * Accesses by the host itself are not checked, unless the test reports them with host_cuda_touch().
 * Races between threads of the program are not detected, because all threads are one actor. */
#include "tests/host_nccl/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct record {
    const char *at;
    size_t size;
    bool writes;
    int actor;
    uint32_t number;
    char what[96];
};

struct host_clock host_time;
static bool taken[HOST_ACTORS] = {true};
static struct record *records;
static size_t record_count, record_max;

void host_clock_join(struct host_clock *to, const struct host_clock *from) {
    for (size_t i = 0; i < HOST_ACTORS; i++)
        if (from->at[i] > to->at[i]) to->at[i] = from->at[i];
}

int host_actor_new(void) {
    for (int i = 1; i < HOST_ACTORS; i++) {
        if (taken[i]) continue;
        taken[i] = true;
        return i;
    }
    host_misuse("more than %d streams at the same time", HOST_ACTORS - 1);
}

/* Removes the records of operations that the host has waited for. All later operations are ordered
 * after such an operation, so none of them can race with it. */
static void forget_finished(void) {
    size_t kept = 0;
    for (size_t i = 0; i < record_count; i++)
        if (records[i].number > host_time.at[records[i].actor]) records[kept++] = records[i];
    record_count = kept;
}

static void remember(const struct record *r) {
    if (record_count == record_max) {
        record_max = record_max == 0 ? 64 : 2 * record_max;
        records = realloc(records, record_max * sizeof(*records));
        if (records == NULL) abort();
    }
    records[record_count++] = *r;
}

static void report(const struct record *later, const struct record *earlier) {
    const char *mode = getenv("HOST_NCCL_RACE");
    if (mode != NULL && strcmp(mode, "off") == 0) return;
    host_count("races", 1);
    host_say("RACE: %s %s memory that %s %s; nothing orders them", later->what,
             later->writes ? "writes" : "reads", earlier->what,
             earlier->writes ? "writes" : "reads");
    if (mode == NULL || strcmp(mode, "report") != 0) _exit(97);
}

static void check_one(const struct record *later, const struct host_clock *clock) {
    for (size_t i = 0; i < record_count; i++) {
        const struct record *r = &records[i];
        if (r->actor == later->actor && r->number == later->number) continue;
        if (!r->writes && !later->writes) continue;
        if (r->at >= later->at + later->size || later->at >= r->at + r->size) continue;
        if (clock->at[r->actor] >= r->number) continue;
        report(later, r);
    }
}

void host_race_check(const char *what, int actor, const struct host_clock *clock,
                     const struct host_access *accesses, size_t count) {
    if (count == 0) return;
    forget_finished();
    for (size_t i = 0; i < count; i++) {
        struct record r = {.at = accesses[i].at,
                           .size = accesses[i].size,
                           .writes = accesses[i].writes,
                           .actor = actor,
                           .number = clock->at[actor]};
        if (r.size == 0 || r.at == NULL) continue;
        (void) snprintf(r.what, sizeof(r.what), "%s", what);
        check_one(&r, clock);
        if (actor != HOST_ACTOR_OF_HOST) remember(&r);
    }
}

HOST_API void host_cuda_touch(const void *at, size_t size, int writes);

/* For tests: call this when the program itself reads or writes host memory (pinned, managed or
 * pageable). This function checks whether the access races with those of operations. */
void host_cuda_touch(const void *at, size_t size, int writes) {
    struct host_access access = {at, size, writes != 0};
    host_lock();
    host_race_check("the program", HOST_ACTOR_OF_HOST, &host_time, &access, 1);
    host_unlock();
}
