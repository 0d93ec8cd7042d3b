/* Streams: queues of operations. Each stream has a thread that runs its operations in order.
 *
 * Modelled on the CUDA C++ Programming Guide, "Streams" and "Implicit Synchronization", and on the
 * CUDA Runtime API manual, "Stream synchronization behavior": the legacy default stream and the
 * blocking streams of its device wait for each other; streams made with cudaStreamNonBlocking
 * neither wait for these nor are waited for. Here any number of operations of different streams can
 * run at the same time; a GPU has a limit (README.md). */
#include "tests/host_nccl/host.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct host_stream *streams;
static int stream_numbers;

void host_lock(void) { (void) pthread_mutex_lock(&lock); }
void host_unlock(void) { (void) pthread_mutex_unlock(&lock); }
void host_changed(void) { (void) pthread_cond_broadcast(&change); }
void host_wait_change(void) { (void) pthread_cond_wait(&change, &lock); }

void host_pause(unsigned turn) {
    struct timespec nap = {0, turn < 2000 ? 20000 : 500000};
    if (turn < 100)
        (void) sched_yield();
    else
        (void) nanosleep(&nap, NULL);
}

/* ---- operations ---- */

void host_op_ref(struct host_op *op) {
    if (op != NULL) op->refs++;
}

static void forget_after(struct host_op *op) {
    for (size_t i = 0; i < op->after_count; i++) host_op_unref(op->after[i]);
    free(op->after);
    op->after = NULL;
    op->after_count = 0;
}

void host_op_unref(struct host_op *op) {
    if (op == NULL || --op->refs > 0) return;
    forget_after(op);
    if (op->drop != NULL) op->drop(op->arg);
    free(op);
}

static bool may_run(const struct host_op *op) {
    for (size_t i = 0; i < op->after_count; i++)
        if (!op->after[i]->done) return false;
    return true;
}

void host_op_wait(struct host_op *op) {
    host_lock();
    if (!op->done) host_count("host_waits", 1);
    while (!op->done) host_wait_change();
    host_unlock();
}

/* ---- the thread of a stream ---- */

static void *serve(void *arg) {
    struct host_stream *s = arg;
    host_lock();
    for (;;) {
        struct host_op *op = s->first;
        if (op == NULL || !may_run(op)) {
            host_wait_change();
            continue;
        }
        host_unlock();
        if (op->run != NULL && host_poisoned() == cudaSuccess) op->run(op->arg);
        host_lock();
        op->done = true;
        forget_after(op);
        if (op->drop != NULL) op->drop(op->arg);
        op->drop = NULL;
        s->first = op->next;
        host_op_unref(op);
        host_changed();
    }
    return NULL;
}

static void start_thread(struct host_stream *s) {
    sigset_t all, before;
    pthread_t thread;
    if (s->started) return;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&thread, NULL, serve, s) != 0) host_misuse("no thread for a stream");
    (void) pthread_detach(thread);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->started = true;
}

/* ---- the order of operations ---- */

static void add_after(struct host_op *op, struct host_op *earlier) {
    if (earlier == NULL || earlier->done) return;
    op->after = realloc(op->after, (op->after_count + 1) * sizeof(*op->after));
    if (op->after == NULL) abort();
    host_op_ref(earlier);
    op->after[op->after_count++] = earlier;
}

/* Orders an operation after operations of other streams by CUDA's implicit rule: the legacy default
 * stream and the blocking streams of its device wait for each other. */
static void add_implicit_order(struct host_stream *s, struct host_op *op) {
    if (s->non_blocking) return;
    for (struct host_stream *o = streams; o != NULL; o = o->next) {
        if (o == s || o->non_blocking || o->device != s->device || s->legacy == o->legacy) continue;
        add_after(op, o->last);
        host_clock_join(&s->clock, &o->clock);
    }
}

static void enqueue(struct host_stream *s, struct host_op *op) {
    struct host_op **end = &s->first;
    while (*end != NULL) end = &(*end)->next;
    host_op_ref(op);
    *end = op;
    host_op_unref(s->last);
    host_op_ref(op);
    s->last = op;
    start_thread(s);
    host_changed();
}

struct host_op *host_put(struct host_stream *s, const struct host_work *w) {
    if (s->capture != NULL) return host_capture_node(s, w);
    struct host_op *op = calloc(1, sizeof(*op));
    if (op == NULL) abort();
    op->run = w->run;
    op->drop = w->drop;
    op->arg = w->arg;
    host_clock_join(&s->clock, &host_time);
    add_implicit_order(s, op);
    for (size_t i = 0; i < w->after_count; i++) add_after(op, w->after[i]);
    if (w->clock != NULL) host_clock_join(&s->clock, w->clock);
    uint32_t number = ++s->clock.at[s->actor];
    (void) snprintf(op->what, sizeof(op->what), "%s (operation %u of stream %d)", w->what, number,
                    s->number);
    host_race_check(op->what, s->actor, &s->clock, w->accesses, w->access_count);
    enqueue(s, op);
    return op;
}

void host_stream_wait(struct host_stream *s, struct host_op *op, const struct host_clock *clock) {
    struct host_work w = {.what = "wait", .after = &op, .after_count = 1, .clock = clock};
    (void) host_put(s, &w);
}

void host_device_wait(int device, const char *who) {
    struct host_op *last[HOST_ACTORS];
    size_t count = 0;
    struct host_clock known;
    memset(&known, 0, sizeof(known));
    host_lock();
    for (struct host_stream *s = streams; s != NULL; s = s->next) {
        if (s->device != device || s->last == NULL) continue;
        host_clock_join(&known, &s->clock);
        if (s->last->done || count == HOST_ACTORS) continue;
        host_op_ref(s->last);
        last[count++] = s->last;
    }
    if (count > 0) host_count("device_waits", 1);
    if (count > 0 && getenv("HOST_NCCL_VERBOSE") != NULL) host_say("%s waits for the device", who);
    for (size_t i = 0; i < count; i++) {
        while (!last[i]->done) host_wait_change();
        host_op_unref(last[i]);
    }
    host_clock_join(&host_time, &known);
    host_unlock();
}

/* ---- new streams, and streams of handles ---- */

struct host_stream *host_stream_new(int device, bool non_blocking, bool legacy) {
    struct host_stream *s = streams;
    while (s != NULL && !(s->destroyed && s->first == NULL)) s = s->next;
    if (s == NULL) {
        s = calloc(1, sizeof(*s));
        if (s == NULL) abort();
        s->actor = host_actor_new();
        s->next = streams;
        streams = s;
    }
    s->destroyed = false;
    s->device = device;
    s->number = ++stream_numbers;
    s->non_blocking = non_blocking;
    s->legacy = legacy;
    return s;
}

struct host_stream *host_streams(void) {
    return streams;
}

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void end_own(void *stream) {
    host_lock();
    ((struct host_stream *) stream)->destroyed = true;
    host_unlock();
}

static void make_key(void) { (void) pthread_key_create(&own_key, end_own); }

/* Returns the calling thread's own stream (cudaStreamPerThread). The first call in a thread makes
 * the stream; the end of the thread destroys it. */
static struct host_stream *own_stream(void) {
    (void) pthread_once(&own_once, make_key);
    struct host_stream *s = pthread_getspecific(own_key);
    if (s == NULL) {
        s = host_stream_new(host_device(), false, false);
        (void) pthread_setspecific(own_key, s);
    }
    return s;
}

static struct host_stream *legacy_stream(int device) {
    for (struct host_stream *s = streams; s != NULL; s = s->next)
        if (s->legacy && s->device == device) return s;
    return host_stream_new(device, false, true);
}

struct host_stream *host_stream_of(cudaStream_t handle) {
    struct host_stream *found = NULL;
    host_lock();
    if (handle == NULL || handle == cudaStreamLegacy) {
        found = legacy_stream(host_device());
    } else if (handle == cudaStreamPerThread) {
        found = own_stream();
    } else {
        for (struct host_stream *s = streams; s != NULL; s = s->next)
            if (s == (struct host_stream *) (void *) handle && !s->destroyed) found = s;
    }
    host_unlock();
    return found;
}
