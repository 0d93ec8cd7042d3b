/* The MPI backend: collectives on host memory in a program that an MPI already runs (mpirun, mpiexec,
 * srun).
 *
 * MPI has no events and no deadlines. So every operation is a nonblocking call whose request is
 * tested, with the processor given away between tests, until it is done, the deadline has passed, or
 * the store says that another rank failed. Three calls of MPI can only block and have no deadline:
 * MPI_Init_thread, MPI_Comm_create_group and MPI_Finalize; each is made when all ranks are known to
 * be there.
 *
 * Nor can an operation be taken back: after a failure MPI may still write to its buffers, inside any
 * later call of MPI. What we gave it stays allocated then; the caller's buffers are the caller's.
 *
 * Which process of MPI_COMM_WORLD is which rank of the group is never assumed: each rank says so in
 * the store, and proves it to the next one with a message.
 *
 * Calls into MPI are made under one lock, so MPI_THREAD_SERIALIZED is enough. */
#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/reduce.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef OPEN_MPI
#define MPI_FLAVOUR "Open MPI"
#else
#define MPI_FLAVOUR "MPICH"
#endif

#define STORE_LOOK_EVERY_MS INT64_C(100)
#define GREETING_TAG        28266 /* on MPI_COMM_WORLD, once a group; below 32767, every MPI's bound */
#define GROUP_TAG           28267

struct mpi_state {
    MPI_Comm comm;
    int rank, size, tag_max;
    int aborted;
    struct backend_store store;
};

static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;

/* Of this process. `broke`: an operation was left behind, so MPI_Finalize might wait for ever. */
static struct { int we_initialised, broke, ops_made; } process;

static void enter(void) { (void) pthread_mutex_lock(&mpi_lock); }
static void leave(void) { (void) pthread_mutex_unlock(&mpi_lock); }

/* ---- errors ---- */

static int fail_mpi(int code, struct cr_error *err, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0, class = MPI_ERR_UNKNOWN;
    (void) MPI_Error_class(code, &class);
    (void) MPI_Error_string(code, text, &len);
    int rc = class == MPI_ERR_NO_MEM ? -ENOMEM : class == MPI_ERR_TRUNCATE ? -EPROTO : -EIO;
    return cr_fail(err, rc, "%s: MPI error class %d (%.*s)", what, class, (int) strcspn(text, "\n"),
                   text);
}

/* ---- waiting ---- */

/* MPI moves data only inside its calls, so a nap comes after a burst of tests, and none at all in
 * the first moments. */
static void pause_between_tests(int64_t started_ns, unsigned turn) {
    if (turn % 64 == 0 && cr_monotonic_ns() - started_ns > 20 * CR_NS_PER_MS) {
        struct timespec ts = {0, 200000};
        (void) nanosleep(&ts, NULL);
        return;
    }
    (void) sched_yield();
}

/* Until request[count] are done. 0, -EINPROGRESS at until_ms, a failure of MPI, or -ECONNRESET when
 * another rank says in the store that it failed. */
static int test_until(const struct backend_store *store, MPI_Request *request, MPI_Status *status,
                      int64_t until_ms, struct cr_error *err) {
    int64_t started_ns = cr_monotonic_ns(), next_look_ms = cr_monotonic_ms() + STORE_LOOK_EVERY_MS;
    for (unsigned turn = 1;; turn++) {
        int done = 0;
        enter();
        int code = MPI_Test(request, &done, status);
        int rc = code == MPI_SUCCESS ? 0 : fail_mpi(code, err, "the operation failed");
        leave();
        if (rc < 0 || done) return rc;
        int64_t now = cr_monotonic_ms();
        if (now >= until_ms) return -EINPROGRESS;
        if (now >= next_look_ms) {
            next_look_ms = now + STORE_LOOK_EVERY_MS;
            rc = store->failed(store->arg, err);
            if (rc < 0) return rc;
        }
        pause_between_tests(started_ns, turn);
    }
}

/* ---- beginning and ending MPI ---- */

/* The number of processes that the launcher says it started, or 0. */
static int launched_size(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) {
        int64_t n = 0;
        if (cr_parse_i64(getenv(names[i]), 1, INT_MAX, &n) == 0) return (int) n;
    }
    return 0;
}

static int is_initialised(void) {
    int flag = 0;
    (void) MPI_Initialized(&flag);
    return flag;
}

static int is_finalised(void) {
    int flag = 0;
    (void) MPI_Finalized(&flag);
    return flag;
}

/* A program brings its own MPI, and its symbols come before those that this module was linked
 * with; another MPI's numbers would mean nothing to it. */
static int check_flavour(struct cr_error *err) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int len = 0;
    (void) MPI_Get_library_version(version, &len);
    version[strcspn(version, "\n")] = '\0';
    int open_mpi = strncmp(version, "Open MPI", 8) == 0;
    if (open_mpi == (strcmp(MPI_FLAVOUR, "Open MPI") == 0)) return 0;
    return cr_fail(err, -ENOTSUP,
                   "use MPI: the program runs on '%.80s' and this module was built for " MPI_FLAVOUR
                   "; build it with that MPI (make MPICC=its-mpicc)",
                   version);
}

static int mpi_probe(const struct backend_group *group, struct cr_error *err) {
    int rc = check_flavour(err);
    if (rc < 0) return rc;
    if (is_finalised()) {
        return cr_fail(err, -EINVAL, "use MPI: the program has called MPI_Finalize already");
    }
    if (is_initialised()) return 0;
    int size = launched_size();
    if (size == 0 && group->size > 1) {
        return cr_fail(err, -ENODEV,
                       "use MPI: no MPI started this process; start the program with mpirun, "
                       "mpiexec or srun, or use the backend gloo");
    }
    if (size > group->size) {
        return cr_fail(err, -EINVAL,
                       "use MPI: MPI_Init waits for all %d processes and this group has %d; make a "
                       "group of all ranks first, or call MPI_Init_thread in the program",
                       size, group->size);
    }
    return 0;
}

/* A process that ends well waits for the others here; one that failed does not, and the launcher
 * ends the job. */
static void finalise_at_exit(int status, void *arg) {
    (void) arg;
    if (status == 0 && !process.broke && !is_finalised()) (void) MPI_Finalize();
}

static int initialise(struct cr_error *err) {
    int level = MPI_THREAD_SINGLE, is_main = 0;
    if (!is_initialised()) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS) return fail_mpi(code, err, "initialise MPI");
        process.we_initialised = 1;
        (void) on_exit(finalise_at_exit, NULL);
    }
    (void) MPI_Query_thread(&level);
    (void) MPI_Is_thread_main(&is_main);
    if (level >= MPI_THREAD_SERIALIZED || is_main) return 0;
    return cr_fail(err, -EINVAL,
                   "use MPI: it was initialised for one thread, which is not this one; call "
                   "MPI_Init_thread with MPI_THREAD_SERIALIZED");
}

/* ---- who is who ---- */

struct identity { /* of one rank of the group */
    int rank, world_rank, world_size;
    char nonce[33];
};

static void identify_self(const struct backend_group *g, struct identity *out) {
    out->rank = g->rank;
    (void) MPI_Comm_rank(MPI_COMM_WORLD, &out->world_rank);
    (void) MPI_Comm_size(MPI_COMM_WORLD, &out->world_size);
    (void) snprintf(out->nonce, sizeof(out->nonce), "%08x%016llx", (unsigned) getpid(),
                    (unsigned long long) cr_monotonic_ns());
}

static int read_identity(const struct backend_group *g, int rank, struct identity *out,
                         struct cr_error *err) {
    char key[32];
    (void) snprintf(key, sizeof(key), "mpi/%d", rank);
    void *value = NULL;
    size_t len = 0;
    int rc = g->store.get(g->store.arg, key, g->timeout_ms, &value, &len, err);
    if (rc < 0) return cr_wrap(err, "ask which MPI process is rank %d", rank);
    CR_AUTO_FREE char *text = strndup(value, len);
    free(value);
    *out = (struct identity){.rank = rank};
    if (text == NULL) return cr_fail(err, -ENOMEM, "ask which MPI process is rank %d", rank);
    if (sscanf(text, "%d %d %32s", &out->world_rank, &out->world_size, out->nonce) != 3) {
        return cr_fail(err, -EPROTO, "ask which MPI process is rank %d: the store holds '%.64s'",
                       rank, text);
    }
    return 0;
}

/* all[size]: what the ranks say; their places in MPI_COMM_WORLD must be possible ones. */
static int check_identities(const struct identity *all, int size, const struct identity *self,
                            struct cr_error *err) {
    CR_AUTO_FREE int *holder = malloc((size_t) self->world_size * sizeof(*holder));
    if (holder == NULL) return cr_fail(err, -ENOMEM, "compare ranks: out of memory");
    for (int i = 0; i < self->world_size; i++) holder[i] = -1;
    if (self->world_size < size) {
        return cr_fail(err, -EINVAL,
                       "compare ranks: rank %d is in an MPI job of %d, the group has %d; start all "
                       "with one mpirun of " MPI_FLAVOUR ", which this module was built for",
                       self->rank, self->world_size, size);
    }
    for (int r = 0; r < size; r++) {
        int w = all[r].world_rank;
        if (all[r].world_size != self->world_size) {
            return cr_fail(err, -EINVAL,
                           "compare ranks: rank %d is in an MPI job of %d and rank %d in one of "
                           "%d; start all with one mpirun",
                           self->rank, self->world_size, r, all[r].world_size);
        }
        if (w < 0 || w >= self->world_size || holder[w] >= 0) {
            return cr_fail(err, -EINVAL,
                           "compare ranks: ranks %d and %d both say that they are process %d of "
                           "MPI; start all with one mpirun",
                           w >= 0 && w < self->world_size ? holder[w] : r, r, w);
        }
        holder[w] = r;
    }
    return 0;
}

static int exchange_identities(const struct backend_group *g, const struct identity *self,
                               struct identity *all, struct cr_error *err) {
    char key[32], mine[64];
    (void) snprintf(key, sizeof(key), "mpi/%d", g->rank);
    (void) snprintf(mine, sizeof(mine), "%d %d %s", self->world_rank, self->world_size,
                    self->nonce);
    int rc = g->store.set(g->store.arg, key, mine, strlen(mine), err);
    for (int r = 0; rc == 0 && r < g->size; r++) rc = read_identity(g, r, &all[r], err);
    return rc < 0 ? rc : check_identities(all, g->size, self, err);
}

/* Gives a receive back to the program: MPI can take that back, and nothing else. */
static void cancel_receive(MPI_Request *request) {
    enter();
    if (*request != MPI_REQUEST_NULL && !is_finalised()) {
        (void) MPI_Cancel(request);
        (void) MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    leave();
}

/* Until the last rank's word has come; an older one may lie there from an attempt that failed. */
static int hear_word(const struct backend_group *g, const struct identity *last,
                     int64_t deadline_ms, struct cr_error *err) {
    struct identity heard;
    do {
        MPI_Request in = MPI_REQUEST_NULL;
        enter();
        int code = MPI_Irecv(&heard, sizeof(heard), MPI_BYTE, last->world_rank, GREETING_TAG,
                             MPI_COMM_WORLD, &in);
        int rc = code == MPI_SUCCESS ? 0 : fail_mpi(code, err, "greet the last rank");
        leave();
        if (rc == 0) rc = test_until(&g->store, &in, MPI_STATUS_IGNORE, deadline_ms, err);
        if (rc < 0) {
            cancel_receive(&in);
            return rc;
        }
    } while (heard.rank != last->rank ||
             memcmp(heard.nonce, last->nonce, sizeof(heard.nonce)) != 0);
    return 0;
}

/* Sends our word by MPI to the next rank and waits for the word that the last one left in the
 * store: two jobs that share a store by mistake are found out here, within the deadline. */
static int greet_neighbours(const struct backend_group *g, const struct identity *self,
                            const struct identity *all, struct cr_error *err) {
    const struct identity *next = &all[(g->rank + 1) % g->size];
    const struct identity *last = &all[(g->rank + g->size - 1) % g->size];
    struct identity *word = malloc(sizeof(*word)); /* MPI's until it is sent */
    if (word == NULL) return cr_fail(err, -ENOMEM, "greet the next rank: out of memory");
    *word = *self;
    MPI_Request out = MPI_REQUEST_NULL;
    int64_t deadline_ms = cr_deadline_ms(g->timeout_ms);
    enter();
    int code = MPI_Isend(word, sizeof(*word), MPI_BYTE, next->world_rank, GREETING_TAG,
                         MPI_COMM_WORLD, &out);
    int rc = code == MPI_SUCCESS ? 0 : fail_mpi(code, err, "greet the next rank");
    leave();
    if (rc == 0) rc = hear_word(g, last, deadline_ms, err);
    if (rc == 0) rc = test_until(&g->store, &out, MPI_STATUS_IGNORE, deadline_ms, err);
    if (rc == 0) {
        free(word);
        return 0;
    }
    process.broke = 1; /* and the word stays */
    if (rc != -EINPROGRESS) return rc;
    return cr_fail(err, -ETIMEDOUT,
                   "greet by MPI: no word from rank %d (process %d of MPI) within %lld ms; do all "
                   "ranks run under one mpirun?",
                   last->rank, last->world_rank, (long long) g->timeout_ms);
}

static int make_comm(struct mpi_state *s, const struct identity *all, struct cr_error *err) {
    CR_AUTO_FREE int *members = malloc((size_t) s->size * sizeof(*members));
    if (members == NULL) return cr_fail(err, -ENOMEM, "make a communicator: out of memory");
    for (int r = 0; r < s->size; r++) members[r] = all[r].world_rank;
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    int rank = -1;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (code == MPI_SUCCESS) code = MPI_Group_incl(world, s->size, members, &group);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(MPI_COMM_WORLD, group, GROUP_TAG, &s->comm);
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(s->comm, &rank);
    if (group != MPI_GROUP_NULL) (void) MPI_Group_free(&group);
    if (world != MPI_GROUP_NULL) (void) MPI_Group_free(&world);
    if (code != MPI_SUCCESS) return fail_mpi(code, err, "make a communicator");
    if (rank != s->rank) {
        return cr_fail(err, -EPROTO, "make a communicator: MPI gave rank %d instead of %d", rank,
                       s->rank);
    }
    return 0;
}

static int connect_comm(struct mpi_state *s, const struct backend_group *g, struct cr_error *err) {
    struct identity self;
    CR_AUTO_FREE struct identity *all = calloc((size_t) s->size, sizeof(*all));
    if (all == NULL) return cr_fail(err, -ENOMEM, "compare ranks: out of memory");
    memset(&self, 0, sizeof(self));
    enter();
    identify_self(g, &self);
    leave();
    int rc = exchange_identities(g, &self, all, err);
    if (rc == 0 && s->size > 1) rc = greet_neighbours(g, &self, all, err);
    if (rc < 0) return rc;
    enter();
    rc = make_comm(s, all, err);
    int *bound = NULL, found = 0;
    if (rc == 0) (void) MPI_Comm_get_attr(s->comm, MPI_TAG_UB, &bound, &found);
    if (found) s->tag_max = *bound;
    leave();
    return rc;
}

/* MPI_COMM_WORLD is the program's: its error handler is ours only while a group is being made. */
static int connect_with_errors_returned(struct mpi_state *s, const struct backend_group *g,
                                        struct cr_error *err) {
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    enter();
    (void) MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    (void) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    leave();
    int rc = connect_comm(s, g, err);
    enter();
    (void) MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    (void) MPI_Errhandler_free(&before);
    leave();
    return rc;
}

static int make_ops(struct cr_error *err);

static int mpi_open(const struct backend_group *group, void **out, struct cr_error *err) {
    struct mpi_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return cr_fail(err, -ENOMEM, "open a communicator: out of memory");
    *s = (struct mpi_state){.comm = MPI_COMM_NULL,
                            .rank = group->rank,
                            .size = group->size,
                            .tag_max = 32767,
                            .store = group->store};
    enter();
    int rc = initialise(err);
    if (rc == 0) rc = make_ops(err);
    leave();
    if (rc == 0) rc = connect_with_errors_returned(s, group, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* MPI cannot break a communicator off. The others hear of it through the store, where they look
 * while they wait. */
static void mpi_abort(void *arg) {
    struct mpi_state *s = arg;
    s->aborted = 1;
    process.broke = 1;
}

static void mpi_close(void *arg) {
    struct mpi_state *s = arg;
    enter();
    if (!s->aborted && !is_finalised()) (void) MPI_Comm_free(&s->comm);
    leave();
    free(s);
}

/* ---- reductions that MPI lacks: half-width floats, as operations of ours on 16-bit words ---- */

#define HALF_OP(name, dtype, reduce)                                                               \
    static void name(void *in, void *inout, int *len, MPI_Datatype *type) {                        \
        (void) type;                                                                               \
        reduce_function(dtype, reduce)(inout, in, inout, (size_t) *len);                           \
    }

HALF_OP(half_sum, CRUNRT_FLOAT16, CRUNRT_SUM)
HALF_OP(half_product, CRUNRT_FLOAT16, CRUNRT_PRODUCT)
HALF_OP(half_max, CRUNRT_FLOAT16, CRUNRT_MAX)
HALF_OP(half_min, CRUNRT_FLOAT16, CRUNRT_MIN)
HALF_OP(bfloat_sum, CRUNRT_BFLOAT16, CRUNRT_SUM)
HALF_OP(bfloat_product, CRUNRT_BFLOAT16, CRUNRT_PRODUCT)
HALF_OP(bfloat_max, CRUNRT_BFLOAT16, CRUNRT_MAX)
HALF_OP(bfloat_min, CRUNRT_BFLOAT16, CRUNRT_MIN)

static MPI_Op half_ops[2][4]; /* float16, bfloat16; sum, product, max, min */

/* Once a process; they last as long as MPI. */
static int make_ops(struct cr_error *err) {
    static MPI_User_function *const functions[2][4] = {
        {half_sum, half_product, half_max, half_min},
        {bfloat_sum, bfloat_product, bfloat_max, bfloat_min},
    };
    if (process.ops_made) return 0;
    for (size_t i = 0; i < 8; i++) {
        int code = MPI_Op_create(functions[i / 4][i % 4], 1, &half_ops[i / 4][i % 4]);
        if (code != MPI_SUCCESS) return fail_mpi(code, err, "make the half-width reductions");
    }
    process.ops_made = 1;
    return 0;
}

static MPI_Op operation_of(crunrt_dtype dtype, crunrt_reduce_op reduce) {
    if (reduce == CRUNRT_AVG) reduce = CRUNRT_SUM; /* divided at the end */
    if (dtype == CRUNRT_FLOAT16) return half_ops[0][reduce];
    if (dtype == CRUNRT_BFLOAT16) return half_ops[1][reduce];
    switch (reduce) {
    case CRUNRT_AVG:
    case CRUNRT_SUM: return MPI_SUM;
    case CRUNRT_PRODUCT: return MPI_PROD;
    case CRUNRT_MAX: return MPI_MAX;
    case CRUNRT_MIN: return MPI_MIN;
    case CRUNRT_BAND: return MPI_BAND;
    case CRUNRT_BOR: return MPI_BOR;
    case CRUNRT_BXOR: return MPI_BXOR;
    }
    return MPI_OP_NULL;
}

static MPI_Datatype type_of(crunrt_dtype dtype) {
    switch (dtype) {
    case CRUNRT_INT8: return MPI_INT8_T;
    case CRUNRT_UINT8: return MPI_UINT8_T;
    case CRUNRT_INT32: return MPI_INT32_T;
    case CRUNRT_UINT32: return MPI_UINT32_T;
    case CRUNRT_INT64: return MPI_INT64_T;
    case CRUNRT_UINT64: return MPI_UINT64_T;
    case CRUNRT_FLOAT32: return MPI_FLOAT;
    case CRUNRT_FLOAT64: return MPI_DOUBLE;
    case CRUNRT_FLOAT16:
    case CRUNRT_BFLOAT16: return MPI_UINT16_T;
    }
    return MPI_DATATYPE_NULL;
}

/* ---- operations: every one is a work, and run() waits for it at once ---- */

struct mpi_work {
    struct mpi_state *s;
    crunrt_op op;
    size_t element; /* bytes */
    int64_t deadline_ms;
    MPI_Request request;
    int *counts; /* all-to-all with counts: sent, at, received, at; [size] each */
    int over;
    struct cr_error outcome; /* once over */
};

static int is_reduction(const crunrt_op *op) {
    return op->kind == CRUNRT_OP_ALL_REDUCE || op->kind == CRUNRT_OP_REDUCE ||
           op->kind == CRUNRT_OP_REDUCE_SCATTER;
}

static int is_message(const crunrt_op *op) {
    return op->kind == CRUNRT_OP_SEND || op->kind == CRUNRT_OP_RECV;
}

static int check_supported(const struct mpi_state *s, const crunrt_op *op, struct cr_error *err) {
    if (is_reduction(op) && reduce_function(op->dtype, op->reduce) == NULL) {
        return cr_fail(err, -ENOTSUP,
                       "mpi has no reduce operation %d for data type %d; an average needs a "
                       "floating type",
                       (int) op->reduce, (int) op->dtype);
    }
    if (op->kind != CRUNRT_OP_ALL_TO_ALL_COUNTS && op->count > INT_MAX) {
        return cr_fail(err, -ENOTSUP, "mpi counts to %d elements, not to %zu; split the call",
                       INT_MAX, op->count);
    }
    if (is_message(op) && op->tag > (unsigned) s->tag_max) {
        return cr_fail(err, -ENOTSUP, "tags of this MPI end at %d", s->tag_max);
    }
    return 0;
}

/* Counts and displacements in MPI's form, behind one another from `out`. */
static int put_counts(const size_t *counts, int size, int *out, struct cr_error *err) {
    size_t at = 0;
    for (int r = 0; r < size; r++) {
        if (counts[r] > INT_MAX || at > INT_MAX) {
            return cr_fail(err, -ENOTSUP, "mpi counts to %d elements in all; split the call",
                           INT_MAX);
        }
        out[r] = (int) counts[r];
        out[size + r] = (int) at;
        at += counts[r];
    }
    return 0;
}

static int fill_counts(struct mpi_work *w, struct cr_error *err) {
    int size = w->s->size;
    if (w->op.kind != CRUNRT_OP_ALL_TO_ALL_COUNTS) return 0;
    w->counts = malloc(4 * (size_t) size * sizeof(*w->counts));
    if (w->counts == NULL) return cr_fail(err, -ENOMEM, "count: out of memory");
    int rc = put_counts(w->op.send_counts, size, w->counts, err);
    if (rc == 0)
        rc = put_counts(w->op.recv_counts, size, w->counts + (size_t) 2 * (size_t) size, err);
    return rc;
}

/* MPI wants to be told where a buffer is its own input. */
static const void *unless_same(const void *send, const void *recv) {
    return send == recv ? MPI_IN_PLACE : send;
}

static int submit(struct mpi_work *w) {
    const crunrt_op *op = &w->op;
    struct mpi_state *s = w->s;
    int n = (int) op->count, *c = w->counts, size = s->size, at_root = op->root == s->rank;
    size_t part = op->count * w->element;
    const char *own_sent = (const char *) op->send + (size_t) s->rank * part;
    char *own_recv = (char *) op->recv + (size_t) s->rank * part;
    MPI_Datatype t = type_of(op->dtype);
    MPI_Op reduce = is_reduction(op) ? operation_of(op->dtype, op->reduce) : MPI_OP_NULL;
    switch (op->kind) {
    case CRUNRT_OP_ALL_REDUCE:
        return MPI_Iallreduce(unless_same(op->send, op->recv), op->recv, n, t, reduce, s->comm,
                              &w->request);
    case CRUNRT_OP_REDUCE:
        return MPI_Ireduce(at_root ? unless_same(op->send, op->recv) : op->send,
                           at_root ? op->recv : NULL, n, t, reduce, op->root, s->comm, &w->request);
    case CRUNRT_OP_BROADCAST: return MPI_Ibcast(op->recv, n, t, op->root, s->comm, &w->request);
    case CRUNRT_OP_ALL_GATHER:
        return MPI_Iallgather(unless_same(op->send, own_recv), n, t, op->recv, n, t, s->comm,
                              &w->request);
    case CRUNRT_OP_GATHER:
        return MPI_Igather(at_root ? unless_same(op->send, own_recv) : op->send, n, t,
                           at_root ? op->recv : NULL, n, t, op->root, s->comm, &w->request);
    case CRUNRT_OP_SCATTER:
        return MPI_Iscatter(at_root ? op->send : NULL, n, t,
                            at_root && own_sent == op->recv ? MPI_IN_PLACE : op->recv, n, t,
                            op->root, s->comm, &w->request);
    case CRUNRT_OP_REDUCE_SCATTER:
        return MPI_Ireduce_scatter_block(op->send, op->recv, n, t, reduce, s->comm, &w->request);
    case CRUNRT_OP_ALL_TO_ALL:
        return MPI_Ialltoall(op->send, n, t, op->recv, n, t, s->comm, &w->request);
    case CRUNRT_OP_ALL_TO_ALL_COUNTS:
        return MPI_Ialltoallv(op->send, c, c + size, t, op->recv, c + 2 * size, c + 3 * size, t,
                              s->comm, &w->request);
    case CRUNRT_OP_BARRIER: return MPI_Ibarrier(s->comm, &w->request);
    case CRUNRT_OP_SEND:
        return MPI_Isend(op->send, n, t, op->root, (int) op->tag, s->comm, &w->request);
    case CRUNRT_OP_RECV:
        return MPI_Irecv(op->recv, n, t, op->root, (int) op->tag, s->comm, &w->request);
    }
    return MPI_ERR_ARG;
}

static void mpi_release(void *arg);

static int mpi_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err) {
    struct mpi_state *s = arg;
    int rc = check_supported(s, call->op, err);
    if (rc < 0) return rc;
    struct mpi_work *w = calloc(1, sizeof(*w));
    if (w == NULL) return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    w->s = s;
    w->op = *call->op;
    w->element = call->element_size;
    w->deadline_ms = cr_deadline_ms(call->op->timeout_ms);
    w->request = MPI_REQUEST_NULL;
    rc = fill_counts(w, err);
    if (rc == 0) {
        enter();
        int code = is_finalised() ? MPI_ERR_OTHER : submit(w);
        if (code != MPI_SUCCESS) rc = fail_mpi(code, err, "begin the operation");
        leave();
    }
    if (rc < 0) {
        mpi_release(w);
        return rc;
    }
    *out = w;
    return 0;
}

/* MPI takes a shorter message for a longer one without a word. */
static int check_length(const struct mpi_work *w, const MPI_Status *status, struct cr_error *err) {
    int count = 0;
    (void) MPI_Get_count(status, type_of(w->op.dtype), &count);
    if (count == (int) w->op.count) return 0;
    return cr_fail(err, -EPROTO, "receive from rank %d: it sent %d elements instead of %zu",
                   w->op.root, count, w->op.count);
}

static int finish(const struct mpi_work *w, const MPI_Status *status, struct cr_error *err) {
    const crunrt_op *op = &w->op;
    if (op->kind == CRUNRT_OP_RECV) return check_length(w, status, err);
    if (is_reduction(op) && (op->kind != CRUNRT_OP_REDUCE || op->root == w->s->rank)) {
        reduce_finish(op->recv, op->count, op->dtype, op->reduce, w->s->size);
    }
    return 0;
}

static int mpi_wait(void *arg, int64_t timeout_ms, struct cr_error *err) {
    struct mpi_work *w = arg;
    if (w->over) {
        if (w->outcome.code != 0) *err = w->outcome;
        return w->outcome.code;
    }
    int64_t until = timeout_ms > 0 ? cr_deadline_ms(timeout_ms) : 0;
    if (until > w->deadline_ms) until = w->deadline_ms;
    if (w->s->aborted) until = 0; /* it may be done all the same */
    MPI_Status status;
    int rc = test_until(&w->s->store, &w->request, &status, until, err);
    if (rc == 0) {
        rc = finish(w, &status, err);
    } else if (rc == -EINPROGRESS && w->s->aborted) {
        rc = cr_fail(err, -ECONNRESET, "the group was broken off");
    } else if (rc == -EINPROGRESS && cr_monotonic_ms() >= w->deadline_ms) {
        rc = cr_fail(err, -ETIMEDOUT, "the operation timed out after %lld ms",
                     (long long) w->op.timeout_ms);
    }
    if (rc == -EINPROGRESS) return rc;
    w->over = 1;
    if (rc < 0) w->outcome = *err;
    w->outcome.code = rc;
    return rc;
}

/* A receive can be taken back; whatever else is unfinished after a failure keeps its memory. */
static void mpi_release(void *arg) {
    struct mpi_work *w = arg;
    if (w->op.kind == CRUNRT_OP_RECV) cancel_receive(&w->request);
    if (w->request != MPI_REQUEST_NULL) return;
    free(w->counts);
    free(w);
}

static int mpi_run(void *arg, const struct backend_call *call, struct cr_error *err) {
    void *work = NULL;
    int rc = mpi_start(arg, call, &work, err);
    if (rc < 0) return rc;
    rc = mpi_wait(work, CR_FOREVER, err);
    mpi_release(work);
    return rc;
}

static int mpi_batch(void *arg, const struct backend_call *calls, size_t count,
                     struct cr_error *err) {
    CR_AUTO_FREE void **works = calloc(count, sizeof(*works));
    if (works == NULL) return cr_fail(err, -ENOMEM, "run a batch: out of memory");
    size_t started = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) rc = check_supported(arg, calls[i].op, err);
    if (rc < 0) return rc; /* before anything is begun */
    for (; rc == 0 && started < count; started += rc == 0) {
        rc = mpi_start(arg, &calls[started], &works[started], err);
    }
    for (size_t i = 0; rc == 0 && i < started; i++) rc = mpi_wait(works[i], CR_FOREVER, err);
    for (size_t i = 0; i < started; i++) mpi_release(works[i]);
    return rc;
}

__attribute__((visibility("default"))) const struct crunrt_backend crunrt_backend;
const struct crunrt_backend crunrt_backend = {
    .abi = CRUNRT_BACKEND_ABI,
    .name = "mpi",
    .probe = mpi_probe,
    .open = mpi_open,
    .run = mpi_run,
    .batch = mpi_batch,
    .start = mpi_start,
    .wait = mpi_wait,
    .release = mpi_release,
    .abort = mpi_abort,
    .close = mpi_close,
};
