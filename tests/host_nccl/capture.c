/* Captures streams into CUDA graphs, and launches graphs.
 *
 * Modelled on the CUDA Runtime API manual: "Graph Management", cudaStreamBeginCapture,
 * cudaThreadExchangeStreamCaptureMode, cudaEventQuery (cudaErrorCapturedEvent). Here a graph is a
 * list of operations in the order in which they were captured. A launch runs them one after the
 * other in this order; CUDA may run independent ones at the same time. In contrast to CUDA, the end
 * of a capture does not check that all streams have joined back (cudaErrorStreamCaptureUnjoined).
 */
#include "tests/host_nccl/host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *next;
    const char *what;
    void (*run)(void *arg);
    void (*drop)(void *arg);
    void *arg;
    struct host_access *accesses;
    size_t access_count;
};

struct keeper {
    struct keeper *next;
    void (*unref)(void *);
    void *arg;
};

struct host_graph {
    int refs;
    bool invalid;
    struct node *first;
    struct keeper *keepers;
};

struct launch {
    struct host_graph *graph;
    struct node *node;
};

static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

static void unref_graph(struct host_graph *g) {
    if (--g->refs > 0) return;
    for (struct node *n = g->first, *next; n != NULL; n = next) {
        next = n->next;
        if (n->drop != NULL) n->drop(n->arg);
        free(n->accesses);
        free(n);
    }
    for (struct keeper *k = g->keepers, *next; k != NULL; k = next) {
        next = k->next;
        k->unref(k->arg);
        free(k);
    }
    free(g);
}

struct host_op *host_capture_node(struct host_stream *s, const struct host_work *w) {
    struct node *n = calloc(1, sizeof(*n)), **end = &s->capture->first;
    if (n == NULL) abort();
    n->what = w->what;
    n->run = w->run;
    n->drop = w->drop;
    n->arg = w->arg;
    n->access_count = w->access_count;
    if (w->access_count > 0) {
        n->accesses = calloc(w->access_count, sizeof(*n->accesses));
        if (n->accesses == NULL) abort();
        memcpy(n->accesses, w->accesses, w->access_count * sizeof(*n->accesses));
    }
    while (*end != NULL) end = &(*end)->next;
    *end = n;
    return NULL;
}

void host_capture_invalidate(struct host_graph *g) { g->invalid = true; }

/* Makes a stream capture into graph `g`, because the stream waits for an event of that capture.
 * Returns false if the stream already captures into another graph. */
bool host_capture_joins(struct host_stream *s, struct host_graph *g) {
    if (s->capture != NULL) return s->capture == g;
    s->capture = g;
    s->capture_origin = false;
    return true;
}

void host_capture_keep(struct host_stream *s, void (*unref)(void *), void *arg) {
    struct keeper *k = calloc(1, sizeof(*k));
    if (k == NULL) abort();
    *k = (struct keeper){s->capture->keepers, unref, arg};
    s->capture->keepers = k;
}

static uint64_t this_thread(void) { return (uint64_t) pthread_self(); }

bool host_capture_forbids(void) {
    bool forbidden = false;
    if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
    for (struct host_stream *s = host_streams(); s != NULL; s = s->next) {
        if (s->capture == NULL || !s->capture_origin) continue;
        bool own = s->capture_owner == this_thread();
        bool counts = own ? s->capture_mode != cudaStreamCaptureModeRelaxed
                          : s->capture_mode == cudaStreamCaptureModeGlobal &&
                                thread_mode == cudaStreamCaptureModeGlobal;
        if (!counts) continue;
        s->capture->invalid = true;
        forbidden = true;
    }
    return forbidden;
}

#pragma GCC visibility push(default)

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    (void) host_call("cudaThreadExchangeStreamCaptureMode");
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void) host_call("cudaStreamBeginCapture");
    struct host_stream *s = host_stream_of(stream);
    if (s == NULL) return host_fail(cudaErrorInvalidResourceHandle);
    if (s->legacy) return host_fail(cudaErrorStreamCaptureUnsupported);
    struct host_graph *g = calloc(1, sizeof(*g));
    if (g == NULL) return host_fail(cudaErrorMemoryAllocation);
    g->refs = 1;
    host_lock();
    bool busy = s->capture != NULL;
    if (!busy) {
        s->capture = g;
        s->capture_origin = true;
        s->capture_owner = this_thread();
        s->capture_mode = (int) mode;
    }
    host_unlock();
    if (!busy) return cudaSuccess;
    free(g);
    return host_fail(cudaErrorIllegalState);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    (void) host_call("cudaStreamEndCapture");
    struct host_stream *s = host_stream_of(stream);
    *graph = NULL;
    if (s == NULL) return host_fail(cudaErrorInvalidResourceHandle);
    host_lock();
    struct host_graph *g = s->capture;
    if (g == NULL || !s->capture_origin) {
        host_unlock();
        return host_fail(g == NULL ? cudaErrorIllegalState : cudaErrorStreamCaptureUnmatched);
    }
    for (struct host_stream *o = host_streams(); o != NULL; o = o->next)
        if (o->capture == g) o->capture = NULL;
    bool invalid = g->invalid;
    if (invalid)
        unref_graph(g);
    else
        *graph = (cudaGraph_t) (void *) g;
    host_unlock();
    return invalid ? host_fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

/* Call this with host_lock() held. Returns true if `legacy` is a legacy default stream and a
 * blocking stream of its device is being captured. During such a capture CUDA refuses the use of
 * `legacy`. */
static bool captures_implicitly(const struct host_stream *legacy) {
    for (const struct host_stream *s = host_streams(); s != NULL && legacy->legacy; s = s->next)
        if (s->capture != NULL && !s->non_blocking && s->device == legacy->device) return true;
    return false;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void) host_call("cudaStreamIsCapturing");
    const struct host_stream *s = host_stream_of(stream);
    if (s == NULL) return host_fail(cudaErrorInvalidResourceHandle);
    host_lock();
    if (captures_implicitly(s)) {
        host_unlock();
        return host_fail(cudaErrorStreamCaptureImplicit);
    }
    *status = s->capture == NULL    ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    host_unlock();
    return cudaSuccess;
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void) flags;
#else
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *bad,
                                 char *log, size_t size) {
    (void) bad;
    (void) log;
    (void) size;
#endif
    (void) host_call("cudaGraphInstantiate");
    struct host_graph *g = (struct host_graph *) (void *) graph;
    host_lock();
    g->refs++;
    host_unlock();
    *exec = (cudaGraphExec_t) (void *) g;
    return cudaSuccess;
}

static cudaError_t unref_handle(void *handle) {
    host_lock();
    unref_graph(handle);
    host_unlock();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    (void) host_call("cudaGraphDestroy");
    return unref_handle(graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    (void) host_call("cudaGraphExecDestroy");
    return unref_handle(exec);
}

static void run_node(void *arg) {
    const struct launch *l = arg;
    if (l->node->run != NULL) l->node->run(l->node->arg);
}

static void drop_launch(void *arg) {
    struct launch *l = arg;
    unref_graph(l->graph);
    free(l);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    (void) host_call("cudaGraphLaunch");
    struct host_graph *g = (struct host_graph *) (void *) exec;
    struct host_stream *s = host_stream_of(stream);
    if (s == NULL) return host_fail(cudaErrorInvalidResourceHandle);
    host_lock();
    for (struct node *n = g->first; n != NULL; n = n->next) {
        struct launch *l = calloc(1, sizeof(*l));
        if (l == NULL) abort();
        *l = (struct launch){g, n};
        g->refs++;
        struct host_work w = {.what = n->what,
                              .run = run_node,
                              .drop = drop_launch,
                              .arg = l,
                              .accesses = n->accesses,
                              .access_count = n->access_count};
        (void) host_put(s, &w);
    }
    host_unlock();
    return cudaSuccess;
}

#pragma GCC visibility pop
