/* Implements these calls of mpi.h with libcrunrt's groups: start and end, communicators, and the
 * collectives that nccl-tests and llm.c call. The code uses only what crunrt.h declares, as a
 * program would. */
#include "worker_runtime/mpi/crunmpi_internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) struct crunmpi_comm crunmpi_world = {NULL, 0, 1};
static crunrt *runtime;
static enum { BEFORE_INIT, RUNNING, FINALIZED } state;

_Noreturn void fail(const char *call, const char *why) {
    (void) fprintf(stderr, "crunmpi: %s: %s\n", call, why);
    char message[1200];
    (void) snprintf(message, sizeof(message), "%s: %s", call, why);
    (void) crunrt_report_error(message, NULL);
    exit(EXIT_FAILURE);
}

void must(int rc, const char *call) {
    if (rc < 0) fail(call, crunrt_last_error());
}

crunrt_dtype dtype_of(MPI_Datatype type, const char *call) {
    switch (type) {
    case MPI_BYTE:
    case MPI_UNSIGNED_CHAR:
    case MPI_UINT8_T: return CRUNRT_UINT8;
    case MPI_CHAR:
    case MPI_INT8_T: return CRUNRT_INT8;
    case MPI_INT:
    case MPI_INT32_T: return CRUNRT_INT32;
    case MPI_UNSIGNED:
    case MPI_UINT32_T: return CRUNRT_UINT32;
    case MPI_LONG: return sizeof(long) == 8 ? CRUNRT_INT64 : CRUNRT_INT32;
    case MPI_UNSIGNED_LONG: return sizeof(long) == 8 ? CRUNRT_UINT64 : CRUNRT_UINT32;
    case MPI_LONG_LONG:
    case MPI_INT64_T: return CRUNRT_INT64;
    case MPI_UINT64_T: return CRUNRT_UINT64;
    case MPI_FLOAT: return CRUNRT_FLOAT32;
    case MPI_DOUBLE: return CRUNRT_FLOAT64;
    case MPI_DOUBLE_INT:
    case MPI_DATATYPE_NULL: break;
    }
    fail(call, "crunmpi does not support this data type in this call; its mpi.h has a list");
}

crunrt_reduce_op reduce_of(MPI_Op op, const char *call) {
    switch (op) {
    case MPI_SUM: return CRUNRT_SUM;
    case MPI_MIN: return CRUNRT_MIN;
    case MPI_MAX: return CRUNRT_MAX;
    case MPI_PROD: return CRUNRT_PRODUCT;
    case MPI_BAND: return CRUNRT_BAND;
    case MPI_BOR: return CRUNRT_BOR;
    case MPI_BXOR: return CRUNRT_BXOR;
    case MPI_MINLOC:
    case MPI_MAXLOC:
    case MPI_OP_NULL: break;
    }
    fail(call, "crunmpi does not support this operation in this call; its mpi.h has a list");
}

size_t elements(int count, const char *call) {
    if (count < 0) fail(call, "a negative count");
    return (size_t) count;
}

struct block block_of(int count, MPI_Datatype type, const char *call) {
    struct block b = {.dtype = dtype_of(type, call), .count = elements(count, call)};
    b.bytes = b.count * crunrt_dtype_size(b.dtype);
    return b;
}

void check_equal(struct block a, struct block b, const char *call) {
    if (a.bytes != b.bytes) fail(call, "the parts sent and received differ in length");
}

void refuse_in_place(const void *buffer, const char *call) {
    if (buffer != MPI_IN_PLACE) return;
    fail(call, "crunmpi does not support MPI_IN_PLACE in this call; pass a buffer of its own");
}

void check_in_place(const void *buffer, int root, MPI_Comm comm, const char *call) {
    if (buffer != MPI_IN_PLACE || comm->rank == root) return;
    fail(call, "MPI_IN_PLACE is allowed only at the root; pass a buffer on the other ranks");
}

struct block gather_part(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                         int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                         const char *call, const void **from) {
    check_root(checked(comm, call), root, call);
    bool at_root = comm->rank == root, in_place = sendbuf == MPI_IN_PLACE;
    check_in_place(sendbuf, root, comm, call);
    struct block part =
        in_place ? block_of(recvcount, recvtype, call) : block_of(sendcount, sendtype, call);
    if (at_root) check_equal(part, block_of(recvcount, recvtype, call), call);
    *from = in_place ? (const char *) recvbuf + part.bytes * (size_t) root : sendbuf;
    return part;
}

struct block scatter_part(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                          int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                          const char *call, void **to) {
    check_root(checked(comm, call), root, call);
    bool at_root = comm->rank == root, in_place = recvbuf == MPI_IN_PLACE;
    check_in_place(recvbuf, root, comm, call);
    struct block part =
        in_place ? block_of(sendcount, sendtype, call) : block_of(recvcount, recvtype, call);
    if (at_root) check_equal(part, block_of(sendcount, sendtype, call), call);
    const char *own = in_place ? (const char *) sendbuf + part.bytes * (size_t) root : NULL;
    *to = in_place ? (void *) (size_t) own : recvbuf;
    return part;
}

void check_root(MPI_Comm comm, int root, const char *call) {
    if (root < 0 || root >= comm->size) fail(call, "the root is not a rank of the communicator");
}

MPI_Comm checked(MPI_Comm comm, const char *call) {
    if (state == BEFORE_INIT) fail(call, "MPI_Init has not been called");
    if (state == FINALIZED) fail(call, "MPI_Finalize has been called");
    if (comm == MPI_COMM_NULL) fail(call, "MPI_COMM_NULL is not a communicator");
    return comm;
}

/* Returns true if a launcher has started this process, so that at least one variable of names[] is
 * set. */
static bool is_launched(void) {
    static const char *const names[] = {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i]) != NULL) return true;
    }
    return false;
}

int MPI_Init(int *argc, char ***argv) {
    (void) argc;
    (void) argv;
    if (state != BEFORE_INIT) fail("MPI_Init", "it has been called before; MPI begins once");
    state = RUNNING;
    if (!is_launched()) {
        (void) fprintf(stderr, "crunmpi: no launcher in the environment, so the world is this "
                               "process alone; start with crun for more\n");
        return MPI_SUCCESS;
    }
    must(crunrt_init(NULL, &runtime), "MPI_Init");
    crunmpi_world.rank = crunrt_rank(runtime);
    crunmpi_world.size = crunrt_world_size(runtime);
    /* The backend gloo moves data in host memory. That is enough for the programs that use mpi.h:
     * they pass only buffers in host memory to MPI, even if they compute on GPUs. */
    crunrt_group_options options = CRUNRT_GROUP_OPTIONS_INIT;
    options.backend = "gloo";
    options.name = "MPI_COMM_WORLD";
    must(crunrt_group_new(runtime, &options, &crunmpi_world.group), "MPI_Init");
    return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    *provided = required < MPI_THREAD_FUNNELED ? required : MPI_THREAD_FUNNELED;
    return MPI_Init(argc, argv);
}

int MPI_Initialized(int *flag) {
    *flag = state != BEFORE_INIT;
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int errorcode) {
    char text[64];
    (void) comm;
    (void) snprintf(text, sizeof(text), "MPI_Abort: the program ends with status %d", errorcode);
    (void) fprintf(stderr, "crunmpi: %s\n", text);
    (void) crunrt_report_error(text, NULL);
    exit(errorcode != 0 ? errorcode : EXIT_FAILURE);
}

double MPI_Wtime(void) {
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

int MPI_Get_processor_name(char *name, int *length) {
    if (gethostname(name, MPI_MAX_PROCESSOR_NAME) != 0) name[0] = '\0';
    name[MPI_MAX_PROCESSOR_NAME - 1] = '\0';
    *length = (int) strlen(name);
    return MPI_SUCCESS;
}

int MPI_Finalize(void) {
    if (state == RUNNING) state = FINALIZED;
    if (runtime == NULL) return MPI_SUCCESS;
    must(crunrt_group_barrier(crunmpi_world.group), "MPI_Finalize");
    crunrt_group_destroy(crunmpi_world.group);
    crunrt_destroy(runtime);
    crunmpi_world.group = NULL;
    runtime = NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size) {
    *size = checked(comm, "MPI_Comm_size")->size;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    *rank = checked(comm, "MPI_Comm_rank")->rank;
    return MPI_SUCCESS;
}

/* ---- splitting ---- */

struct part { /* a rank, and the arguments with which it has called MPI_Comm_split */
    int32_t color, key, rank;
};

static int by_color_key_rank(const void *a, const void *b) {
    const struct part *x = a, *y = b;
    if (x->color != y->color) return x->color < y->color ? -1 : 1;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Makes a communicator of ranks[count]. On a rank that is not in the list, returns
 * MPI_COMM_NULL. */
static MPI_Comm make_group(const int *ranks, int count) {
    crunrt_group_options options = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_group *group = NULL;
    options.backend = "gloo";
    options.ranks = ranks;
    options.rank_count = (size_t) count;
    must(crunrt_group_new(runtime, &options, &group), "MPI_Comm_split");
    if (group == NULL) return MPI_COMM_NULL;
    MPI_Comm comm = malloc(sizeof(*comm));
    if (comm == NULL) fail("MPI_Comm_split", "out of memory");
    *comm = (struct crunmpi_comm){group, crunrt_group_rank(group), count};
    return comm;
}

/* Makes one group for each colour (see struct part), in the order of the colours. Each rank makes
 * all groups, as crunrt_group_new() requires. Returns the communicator of this rank's colour. */
static MPI_Comm make_groups(struct part *parts, int count) {
    int *ranks = malloc((size_t) count * sizeof(*ranks));
    if (ranks == NULL) fail("MPI_Comm_split", "out of memory");
    MPI_Comm mine = MPI_COMM_NULL;
    for (int first = 0; first < count;) {
        int end = first;
        for (; end < count && parts[end].color == parts[first].color; end++) {
            ranks[end - first] = parts[end].rank;
        }
        MPI_Comm made = MPI_COMM_NULL;
        if (parts[first].color != MPI_UNDEFINED) made = make_group(ranks, end - first);
        if (made != MPI_COMM_NULL) mine = made;
        first = end;
    }
    free(ranks);
    return mine;
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm) {
    static const char call[] = "MPI_Comm_split";
    if (checked(comm, call) != MPI_COMM_WORLD) fail(call, "only MPI_COMM_WORLD can be split");
    if (comm->group == NULL) {
        MPI_Comm alone = color == MPI_UNDEFINED ? MPI_COMM_NULL : malloc(sizeof(*alone));
        if (alone != MPI_COMM_NULL) *alone = (struct crunmpi_comm){NULL, 0, 1};
        if (alone == MPI_COMM_NULL && color != MPI_UNDEFINED) fail(call, "out of memory");
        *newcomm = alone;
        return MPI_SUCCESS;
    }
    struct part own = {color, key, comm->rank};
    struct part *parts = malloc((size_t) comm->size * sizeof(*parts));
    if (parts == NULL) fail(call, "out of memory");
    must(crunrt_group_all_gather(comm->group, &own, parts, sizeof(own), CRUNRT_UINT8), call);
    qsort(parts, (size_t) comm->size, sizeof(*parts), by_color_key_rank);
    *newcomm = make_groups(parts, comm->size);
    free(parts);
    return MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm) {
    static const char call[] = "MPI_Comm_split_type";
    char own[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0, color = 0;
    (void) info;
    if (split_type != MPI_COMM_TYPE_SHARED) fail(call, "only MPI_COMM_TYPE_SHARED is known");
    (void) MPI_Get_processor_name(own, &length);
    char(*names)[sizeof(own)] = calloc((size_t) checked(comm, call)->size, sizeof(*names));
    if (names == NULL) fail(call, "out of memory");
    (void) MPI_Allgather(own, sizeof(own), MPI_BYTE, names, sizeof(own), MPI_BYTE, comm);
    while (strcmp(names[color], own) != 0) color++; /* becomes the first rank on this host */
    free(names);
    return MPI_Comm_split(comm, color, key, newcomm);
}

int MPI_Comm_free(MPI_Comm *comm) {
    if (checked(*comm, "MPI_Comm_free") == MPI_COMM_WORLD) {
        fail("MPI_Comm_free", "MPI_COMM_WORLD cannot be freed");
    }
    /* A rank may free the communicator while another rank still connects to it. Without this
     * barrier, the other rank would see the closed connection as the death of its peer. MPI permits
     * this call to wait. */
    if ((*comm)->group != NULL) must(crunrt_group_barrier((*comm)->group), "MPI_Comm_free");
    crunrt_group_destroy((*comm)->group);
    free(*comm);
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

/* ---- collectives ---- */

int MPI_Barrier(MPI_Comm comm) {
    if (checked(comm, "MPI_Barrier")->group != NULL) {
        must(crunrt_group_barrier(comm->group), "MPI_Barrier");
    }
    return MPI_SUCCESS;
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
    static const char call[] = "MPI_Bcast";
    check_root(checked(comm, call), root, call);
    crunrt_dtype dtype = dtype_of(datatype, call);
    if (comm->group == NULL) return MPI_SUCCESS;
    must(crunrt_group_broadcast(comm->group, buffer, elements(count, call), dtype, root), call);
    return MPI_SUCCESS;
}

int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    static const char call[] = "MPI_Allgather";
    struct block part = block_of(recvcount, recvtype, call);
    char *own = (char *) recvbuf + part.bytes * (size_t) checked(comm, call)->rank;
    if (sendbuf != MPI_IN_PLACE) check_equal(part, block_of(sendcount, sendtype, call), call);
    const void *send = sendbuf == MPI_IN_PLACE ? own : sendbuf;
    if (comm->group == NULL) {
        if (part.bytes > 0) memmove(own, send, part.bytes);
        return MPI_SUCCESS;
    }
    must(crunrt_group_all_gather(comm->group, send, recvbuf, part.count, part.dtype), call);
    return MPI_SUCCESS;
}

int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    static const char call[] = "MPI_Gather";
    const void *from;
    struct block part = gather_part(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                    root, comm, call, &from);
    if (comm->group == NULL) {
        if (part.bytes > 0) memmove(recvbuf, from, part.bytes);
        return MPI_SUCCESS;
    }
    must(crunrt_group_gather(comm->group, from, recvbuf, part.count, part.dtype, root), call);
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm) {
    static const char call[] = "MPI_Allreduce";
    if (datatype == MPI_DOUBLE_INT) return reduce_located(sendbuf, recvbuf, count, op, -1, comm);
    struct block all = block_of(count, datatype, call);
    crunrt_reduce_op reduce = reduce_of(op, call);
    const void *send = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    if (checked(comm, call)->group == NULL) {
        if (all.bytes > 0) memmove(recvbuf, send, all.bytes);
        return MPI_SUCCESS;
    }
    must(crunrt_group_all_reduce(comm->group, send, recvbuf, all.count, all.dtype, reduce), call);
    return MPI_SUCCESS;
}

int MPI_Error_string(int errorcode, char *string, int *resultlen) {
    *resultlen = snprintf(string, MPI_MAX_ERROR_STRING, "%s",
                          errorcode == MPI_SUCCESS ? "success" : strerror(abs(errorcode)));
    return MPI_SUCCESS;
}
