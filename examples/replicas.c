/* Several jobs run the same program as replicas, and exchange results through a second store, which
 * outlives the jobs. Rank 0 of each job writes the job's result to the key result/<REPLICA_ID> of
 * the second store, and waits for the results of the other jobs.
 *
 *     crun-store serve --host 127.0.0.1 --port 29700 &
 *     REPLICA_ID=0 REPLICAS=2 STORE=127.0.0.1:29700 STORE_PREFIX=run7 \
 *         crun --standalone --nproc-per-node=2 build/examples/replicas &
 *     REPLICA_ID=1 REPLICAS=2 STORE=127.0.0.1:29700 STORE_PREFIX=run7 \
 *         crun --standalone --nproc-per-node=2 build/examples/replicas */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "replicas: %s: %s\n", what, crunrt_last_error());
    (void) crunrt_report_error(NULL, NULL);
    exit(1);
}

static const char *setting(const char *name) {
    const char *value = getenv(name);
    if (value != NULL && value[0] != '\0') return value;
    fprintf(stderr, "replicas: %s is not set\n", name);
    exit(2);
}

static int number(const char *name, const char *text, long max) {
    char *end = NULL;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > max) {
        fprintf(stderr, "replicas: %s='%s' is not a number from 1 to %ld\n", name, text, max);
        exit(2);
    }
    return (int) n;
}

static int64_t meet_other_replicas(int64_t result) {
    char host[256], key[32], text[32];
    const char *address = setting("STORE"), *colon = strrchr(address, ':');
    int replicas = number("REPLICAS", setting("REPLICAS"), 1000);
    if (colon == NULL || (size_t) (colon - address) >= sizeof(host)) {
        fprintf(stderr, "replicas: STORE='%s' is not HOST:PORT\n", address);
        exit(2);
    }
    (void) snprintf(host, sizeof(host), "%.*s", (int) (colon - address), address);
    crunrt_store *outer, *shared;
    must(crunrt_store_open(host, number("STORE", colon + 1, 65535), 30000, &outer),
         "open the replicas' store");
    must(crunrt_store_prefix(outer, setting("STORE_PREFIX"), &shared), "take the prefix");
    (void) snprintf(key, sizeof(key), "result/%s", setting("REPLICA_ID"));
    (void) snprintf(text, sizeof(text), "%lld", (long long) result);
    must(crunrt_store_set(shared, key, text, strlen(text)), "publish the result");
    int64_t total = 0;
    for (int r = 0; r < replicas; r++) {
        void *value;
        (void) snprintf(key, sizeof(key), "result/%d", r);
        must(crunrt_store_get(shared, key, CRUNRT_TIMEOUT_DEFAULT, &value, NULL),
             "wait for a replica");
        total += strtoll(value, NULL, 10);
        crunrt_free(value);
    }
    crunrt_store_close(shared);
    crunrt_store_close(outer);
    return total;
}

int main(void) {
    crunrt *rt;
    crunrt_group *world;
    must(crunrt_init(NULL, &rt), "start");
    must(crunrt_group_new(rt, NULL, &world), "meet the other ranks");
    int64_t sum = crunrt_rank(rt) + 1, total = 0;
    must(crunrt_group_all_reduce(world, &sum, &sum, 1, CRUNRT_INT64, CRUNRT_SUM), "sum");
    if (crunrt_rank(rt) == 0) total = meet_other_replicas(sum);
    must(crunrt_group_broadcast(world, &total, 1, CRUNRT_INT64, 0), "share the total");
    printf("replica %s rank %d: %lld here, %lld over all replicas\n", setting("REPLICA_ID"),
           crunrt_rank(rt), (long long) sum, (long long) total);
    must(crunrt_group_barrier(world), "end together");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
