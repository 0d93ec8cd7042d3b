/* Groups of calls (ncclGroupStart() to ncclGroupEnd()), and the threads that run non-blocking
 * groups.
 *
 * Modelled on NCCL 2.28.9 and 2.30.7, group.cc and enqueue.cc:
 * - Every call opens and ends a group (ncclGroupStartInternal, ncclGroupEndInternal). The end of
 *   the outermost group runs the jobs and launches the kernels of all calls in it.
 * - For blocking communicators this happens on the calling thread. For non-blocking ones it happens
 *   on a new thread; until it is done the communicators report ncclInProgress, and
 *   ncclCommGetAsyncError() joins the thread.
 * - Jobs (init, split, abort …) have a thread each (asyncJobLaunch).
 * - A group that destroys a communicator always blocks (ncclAsyncLaunch, destroyFlag).
 * - enqueue.cc: a kernel runs on the first stream of the group, and waits for the group's other
 *   streams and for the communicator's last kernel (ncclLaunchPrepare). After the launch all
 *   streams of the group wait for the kernel (ncclLaunchFinish). */
#include "tests/host_nccl/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 16

/* The operations of one communicator in a group, which become one kernel. */
struct plan {
    struct plan *next;
    struct kernel *kernel;
    struct part **end;
    cudaStream_t streams[STREAMS_MAX];
    size_t stream_count, part_count;
};

/* A group of non-blocking communicators after group_end(): its own thread runs it. */
struct group_job {
    pthread_t thread;
    int users; /* number of the group's communicators that have not called group_join() yet */
    struct job *jobs;
    struct plan *plans;
};

static __thread struct {
    /* depth: number of open groups (they can be nested); blocking: 1 if the group's communicators
     * are blocking, 0 if they are not, -1 while the group has none */
    int depth, blocking;
    ncclResult_t error;
    struct job *jobs;
    struct plan *plans;
} group = {.blocking = -1};

void group_start(void) { group.depth++; }
int group_depth(void) { return group.depth; }

ncclResult_t group_error(ncclResult_t result) {
    if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress) group.error = result;
    return result;
}

/* ---- jobs and operations of the open group ---- */

static ncclResult_t note_blocking(ncclComm_t comm) {
    if (comm->destroying) {
        group.blocking = 1;
    } else if (group.blocking == -1) {
        group.blocking = comm->blocking;
    } else if (group.blocking != (int) comm->blocking) {
        return nccl_fail(ncclInvalidArgument, "blocking and nonblocking communicators are not "
                                              "allowed in the same group");
    }
    return ncclSuccess;
}

ncclResult_t group_add_job(struct job *job) {
    struct job **end = &group.jobs;
    ncclResult_t r = note_blocking(job->comm);
    if (r != ncclSuccess) return r;
    while (*end != NULL) end = &(*end)->next;
    *end = job;
    return ncclSuccess;
}

static struct plan *plan_of(ncclComm_t comm) {
    struct plan **at = &group.plans;
    while (*at != NULL && (*at)->kernel->comm != comm) at = &(*at)->next;
    if (*at != NULL) return *at;
    struct plan *p = *at = calloc(1, sizeof(*p));
    if (p == NULL || (p->kernel = calloc(1, sizeof(*p->kernel))) == NULL) abort();
    p->kernel->comm = comm;
    p->end = &p->kernel->parts;
    return p;
}

ncclResult_t group_add_part(ncclComm_t comm, struct part *part, cudaStream_t stream) {
    ncclResult_t r = note_blocking(comm);
    if (r != ncclSuccess) return r;
    struct plan *p = plan_of(comm);
    size_t i = 0;
    *p->end = part;
    p->end = &part->next;
    p->part_count++;
    while (i < p->stream_count && p->streams[i] != stream) i++;
    if (i == STREAMS_MAX) host_misuse("more than %d streams in one group", STREAMS_MAX);
    if (i == p->stream_count) p->streams[p->stream_count++] = stream;
    if (p->part_count == 1)
        (void) snprintf(p->kernel->what, sizeof(p->kernel->what), "%s", part->name);
    else
        (void) snprintf(p->kernel->what, sizeof(p->kernel->what), "%s and %zu more in a group",
                        p->kernel->parts->name, p->part_count - 1);
    return ncclSuccess;
}

/* ---- launches of kernels, threads of jobs ---- */

static void leave_graph(void *comm) {
    (void) atomic_fetch_sub(&((struct ncclComm *) comm)->graphs, 1);
    host_changed();
}

/* Call this with host_lock() held. Puts the plan's kernel on the plan's first stream, and orders
 * the kernel with the plan's other streams. */
static void launch(struct plan *p, struct host_stream *const *streams) {
    struct kernel *k = p->kernel;
    ncclComm_t c = k->comm;
    struct host_access *accesses = calloc(2 * p->part_count, sizeof(*accesses));
    struct host_op *after[STREAMS_MAX] = {c->last};
    struct host_clock known = c->clock;
    if (accesses == NULL) abort();
    for (size_t i = 1; i < p->stream_count; i++) {
        after[i] = streams[i]->last;
        host_clock_join(&known, &streams[i]->clock);
    }
    struct host_work w = {.what = k->what,
                          .run = kernel_run,
                          .drop = kernel_free,
                          .arg = k,
                          .accesses = accesses,
                          .access_count = kernel_accesses(k, accesses),
                          .after = after,
                          .after_count = p->stream_count,
                          .clock = &known};
    struct host_op *op = host_put(streams[0], &w);
    /* NULL means that the stream captures: the kernel has become a node of a graph */
    if (op == NULL) {
        (void) atomic_fetch_add(&c->graphs, 1);
        host_capture_keep(streams[0], leave_graph, c);
    } else {
        host_op_ref(op);
        host_op_unref(c->last);
        c->last = op;
        c->clock = streams[0]->clock;
        for (size_t i = 1; i < p->stream_count; i++) host_stream_wait(streams[i], op, &c->clock);
    }
    free(accesses);
}

static ncclResult_t launch_plan(struct plan *p) {
    struct host_stream *streams[STREAMS_MAX];
    host_set_device(p->kernel->comm->device);
    ncclResult_t r = kernel_connect(p->kernel);
    for (size_t i = 0; i < p->stream_count && r == ncclSuccess; i++) {
        streams[i] = host_stream_of(p->streams[i]);
        if (streams[i] == NULL) r = nccl_fail(ncclUnhandledCudaError, "invalid resource handle");
    }
    if (r == ncclSuccess && host_poisoned() != cudaSuccess) r = ncclUnhandledCudaError;
    if (r != ncclSuccess) {
        kernel_free(p->kernel);
        return r;
    }
    host_lock();
    launch(p, streams);
    host_unlock();
    return ncclSuccess;
}

struct job_thread {
    pthread_t thread;
    struct job *job;
    ncclResult_t result;
    bool started;
};

static void *run_job(void *arg) {
    struct job_thread *t = arg;
    host_set_device(t->job->comm->device);
    t->result = t->job->run(t->job);
    return NULL;
}

static void free_job(struct job *job) {
    free(job->survivors);
    free(job);
}

/* Runs all jobs, each on a new thread, and waits for them. If there is only one job, it runs on the
 * calling thread; it is counted in "threads" nevertheless, because NCCL would make a thread for it.
 */
static ncclResult_t run_jobs(struct job *jobs) {
    ncclResult_t result = ncclSuccess;
    size_t count = 0, i = 0;
    for (struct job *j = jobs; j != NULL; j = j->next) count++;
    if (count == 0) return ncclSuccess;
    struct job_thread *threads = calloc(count, sizeof(*threads));
    if (threads == NULL) abort();
    host_count("threads", count);
    for (struct job *j = jobs; j != NULL; j = j->next, i++) {
        threads[i].job = j;
        threads[i].started =
            count > 1 && pthread_create(&threads[i].thread, NULL, run_job, &threads[i]) == 0;
        if (!threads[i].started) (void) run_job(&threads[i]);
    }
    for (i = 0; i < count; i++) {
        if (threads[i].started) (void) pthread_join(threads[i].thread, NULL);
        if (threads[i].result != ncclSuccess) result = threads[i].result;
    }
    free(threads);
    return result;
}

static ncclResult_t run_group(struct job *jobs, struct plan *plans) {
    int device = host_device();
    ncclResult_t r = run_jobs(jobs);
    while (jobs != NULL) {
        struct job *next = jobs->next;
        free_job(jobs);
        jobs = next;
    }
    while (plans != NULL) {
        struct plan *next = plans->next;
        if (r == ncclSuccess)
            r = launch_plan(plans);
        else
            kernel_free(plans->kernel);
        free(plans);
        plans = next;
    }
    host_set_device(device);
    return r;
}

/* ---- non-blocking groups ---- */

struct concerned {
    ncclComm_t comms[64];
    size_t count;
};

static void concern(struct concerned *c, ncclComm_t comm) {
    for (size_t i = 0; i < c->count; i++)
        if (c->comms[i] == comm) return;
    if (c->count == 64) host_misuse("more than 64 communicators in one group");
    c->comms[c->count++] = comm;
}

static struct concerned all_concerned(const struct group_job *g) {
    struct concerned c = {.count = 0};
    for (const struct job *j = g->jobs; j != NULL; j = j->next) concern(&c, j->comm);
    for (const struct plan *p = g->plans; p != NULL; p = p->next) concern(&c, p->kernel->comm);
    return c;
}

static void *run_in_background(void *arg) {
    struct group_job *g = arg;
    struct concerned c = all_concerned(g);
    ncclResult_t r = run_group(g->jobs, g->plans);
    for (size_t i = 0; i < c.count; i++) comm_set_async(c.comms[i], r);
    return NULL;
}

static ncclResult_t start_in_background(void) {
    struct group_job *g = calloc(1, sizeof(*g));
    if (g == NULL) abort();
    g->jobs = group.jobs;
    g->plans = group.plans;
    struct concerned c = all_concerned(g);
    for (size_t i = 0; i < c.count; i++) {
        comm_set_async(c.comms[i], ncclInProgress);
        if (c.comms[i]->group_job != NULL) group_join(c.comms[i]);
        c.comms[i]->group_job = g;
        g->users++;
    }
    host_count("threads", 1);
    if (pthread_create(&g->thread, NULL, run_in_background, g) != 0) abort();
    return ncclInProgress;
}

void group_join(ncclComm_t comm) {
    host_lock();
    struct group_job *g = comm->group_job;
    comm->group_job = NULL;
    bool last = g != NULL && --g->users == 0;
    host_unlock();
    if (!last) return;
    (void) pthread_join(g->thread, NULL);
    free(g);
}

/* ---- the end of a group ---- */

static void drop_group(ncclResult_t error) {
    for (struct job *j = group.jobs, *next; j != NULL; j = next) {
        next = j->next;
        if (!j->comm->destroying && !j->comm->blocking) comm_set_async(j->comm, error);
        free_job(j);
    }
    for (struct plan *p = group.plans, *next; p != NULL; p = next) {
        next = p->next;
        if (!p->kernel->comm->blocking) comm_set_async(p->kernel->comm, error);
        kernel_free(p->kernel);
        free(p);
    }
}

ncclResult_t group_end(void) {
    if (group.depth == 0) return nccl_fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group.depth > 0) return ncclSuccess;
    ncclResult_t r = group.error;
    struct job *jobs = group.jobs;
    struct plan *plans = group.plans;
    int blocking = group.blocking;
    if (r != ncclSuccess)
        drop_group(r);
    else if (jobs != NULL || plans != NULL)
        r = blocking == 0 ? start_in_background() : ncclSuccess;
    group.error = ncclSuccess;
    group.jobs = NULL;
    group.plans = NULL;
    group.blocking = -1;
    if (r == ncclSuccess) r = run_group(blocking == 0 ? NULL : jobs, blocking == 0 ? NULL : plans);
    return r;
}

#pragma GCC visibility push(default)

/* nccl.h declares these functions without prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
    struct host_fault f = host_call("ncclGroupStart");
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    group_start();
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    struct host_fault f = host_call("ncclGroupEnd");
    if (f.kind == HOST_FAULT_NCCL) (void) group_error((ncclResult_t) f.code);
    return group_end();
}

#pragma GCC visibility pop
