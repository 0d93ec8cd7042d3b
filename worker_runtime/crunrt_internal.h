/* What the files of the worker runtime share; never installed. */
#ifndef CRUNRT_INTERNAL_H
#define CRUNRT_INTERNAL_H

#include "base/error.h"
#include "store/store.h"
#include "worker_runtime/agent_link_internal.h"
#include "worker_runtime/store_host_internal.h"
#include "worker_runtime/worker_place_internal.h"

#include <crunrt.h>

#include <pthread.h>

#define CRUNRT_TIMEOUT_MS INT64_C(300000) /* torch's default of a store */
#define CRUNRT_KEY_MAX    ((size_t) 8000) /* bytes of a key, its prefixes included */

/* The calling thread's error text. Every exported function fails through it:
 *     return cr_fail(rt_last_error(), -EINVAL, "…"); */
struct cr_error *rt_last_error(void);

/* -EINVAL: "<what>: <argument> is NULL". */
int rt_fail_null(const char *what, const char *argument);

/* A connection that is lost is -ECONNRESET, whoever noticed: in a group -EPIPE means another thing. */
int rt_lost_is_reset(int rc, struct cr_error *err);

/* One connection, shared by a store and its prefixed views. */
struct crunrt_store {
    struct crunrt_store *parent; /* NULL: this one owns the client */
    struct store *base;          /* NULL in a view */
    pthread_mutex_t lock;        /* turns on `base`; unused in a view */
    int64_t timeout_ms;
    char *prefix; /* "" or "a/b/", in front of every key */
};

struct crunrt_group;
struct crunrt_backend;

/* The group of all ranks that later ones may be split from; see group_split.c. */
struct rt_whole_group {
    const struct crunrt_backend *backend; /* NULL: there has been none */
    struct crunrt_group *group;           /* NULL: it was destroyed */
    uint64_t number;
    char prefix[64]; /* the runtime's when it was made */
};

struct crunrt {
    struct worker_place place;
    struct crunrt_store *store;
    const struct store_host *host;    /* the module, where this process hosts the store */
    void *host_state;                 /* NULL: another process hosts it */
    int first_rank, first_world_size; /* from the launcher; place has those of this generation */
    int64_t generation;               /* 0, then one more with each crunrt_rejoin() */
    char prefix[64];                  /* "crunrt/<attempt>/<generation>" */
    uint64_t group_seq;               /* groups made so far, the same on every rank */
    struct rt_whole_group whole;
    struct agent_link link;
    struct cr_error link_error; /* why there is none, though one is named */
};

/* Sets the place in the first generation, or, for a process started anew, joins the next one. */
int rt_enter_first_generation(struct crunrt *rt);

/* Whether the agent has said so, without notice, and no next round has begun: any thread may ask. */
int rt_round_is_over(const struct crunrt *rt);

/* Connects the store and its views to another server; what they are stays the same to their users. */
int rt_store_move(crunrt_store *store, const char *host, uint16_t port, int64_t timeout_ms);

/* A store in a file, shared by world_size processes; the last one to close it removes it. */
int rt_store_open_file(const char *path, int world_size, int64_t timeout_ms, crunrt_store **out);

#define RT_ADDRESS_MAX 64 /* a numeric address, NUL included */

/* The numeric address of this host by which the other ranks reach it. */
int rt_bind_address(const struct crunrt *rt, char out[RT_ADDRESS_MAX], struct cr_error *err);

/* `timeout_ms`, or the fallback if it is CRUNRT_TIMEOUT_DEFAULT. */
int64_t rt_timeout(int64_t timeout_ms, int64_t fallback_ms);

#endif
