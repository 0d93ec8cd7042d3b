/* Finds out which process of MPI_COMM_WORLD is which rank of the group, and makes the communicator.
 *
 * MPI may number the processes differently from the group, and by mistake the ranks of one group
 * may belong to several MPI jobs. So each rank writes its rank in MPI_COMM_WORLD to the store, and
 * proves it by an MPI message (a greeting) to the next rank of the group. MPI_Comm_create_group()
 * has no timeout, so a rank calls it only after it has read the records of all ranks and has got
 * the greeting of the previous rank. */
#include "worker_runtime/backends/mpi/mpi_internal.h"

#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* tag of greetings on MPI_COMM_WORLD; every MPI library allows tags up to 32767 */
#define GREETING_TAG 28266
#define GROUP_TAG    28267

struct identity { /* what a rank of the group writes to the store about itself */
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
    if (rc < 0) return cr_wrap(err, "read which MPI process is rank %d", rank);
    CR_AUTO_FREE char *text = strndup(value, len);
    free(value);
    *out = (struct identity){.rank = rank};
    if (text == NULL) return cr_fail(err, -ENOMEM, "read which MPI process is rank %d", rank);
    if (sscanf(text, "%d %d %32s", &out->world_rank, &out->world_size, out->nonce) != 3) {
        return cr_fail(err, -EPROTO, "read which MPI process is rank %d: the store holds '%.64s'",
                       rank, text);
    }
    return 0;
}

/* Checks what the ranks have written to the store: the ranks in MPI_COMM_WORLD of all[size] must be
 * valid, and no two may be the same. */
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
                           "compare ranks: ranks %d and %d both claim to be process %d of MPI"
                           "; start all with one mpirun",
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

/* Receives the greeting of the previous rank of the group, whose identity is `last`. Ignores
 * greetings that were sent in an earlier attempt to make a group. */
static int receive_greeting(const struct backend_group *g, const struct identity *last,
                     int64_t deadline_ms, struct cr_error *err) {
    struct identity greeting;
    do {
        MPI_Request in = MPI_REQUEST_NULL;
        mpi_enter();
        int code = MPI_Irecv(&greeting, sizeof(greeting), MPI_BYTE, last->world_rank, GREETING_TAG,
                             MPI_COMM_WORLD, &in);
        int rc = code == MPI_SUCCESS ? 0 : fail_mpi(code, err, "greet the last rank");
        mpi_leave();
        if (rc == 0) rc = test_until(&g->store, &in, MPI_STATUS_IGNORE, deadline_ms, err);
        if (rc < 0) {
            cancel_receive(&in);
            return rc;
        }
    } while (greeting.rank != last->rank ||
             memcmp(greeting.nonce, last->nonce, sizeof(greeting.nonce)) != 0);
    return 0;
}

/* Sends this rank's identity by MPI to the next rank of the group, and waits for a message with the
 * identity that the previous rank has written to the store. If two jobs use one store by mistake,
 * no such message comes, and the function fails within the timeout. */
static int greet_neighbours(const struct backend_group *g, const struct identity *self,
                            const struct identity *all, struct cr_error *err) {
    const struct identity *next = &all[(g->rank + 1) % g->size];
    const struct identity *last = &all[(g->rank + g->size - 1) % g->size];
    /* allocated, because MPI may read the memory until the message is sent, and this function may
     * return before that */
    struct identity *word = malloc(sizeof(*word));
    if (word == NULL) return cr_fail(err, -ENOMEM, "greet the next rank: out of memory");
    *word = *self;
    MPI_Request out = MPI_REQUEST_NULL;
    int64_t deadline_ms = cr_deadline_ms(g->timeout_ms);
    mpi_enter();
    int code = MPI_Isend(word, sizeof(*word), MPI_BYTE, next->world_rank, GREETING_TAG,
                         MPI_COMM_WORLD, &out);
    int rc = code == MPI_SUCCESS ? 0 : fail_mpi(code, err, "greet the next rank");
    mpi_leave();
    if (rc == 0) rc = receive_greeting(g, last, deadline_ms, err);
    if (rc == 0) rc = test_until(&g->store, &out, MPI_STATUS_IGNORE, deadline_ms, err);
    if (rc == 0) {
        free(word);
        return 0;
    }
    mpi_note_unfinished(); /* `word` is not freed, because MPI may still read it */
    if (rc != -EINPROGRESS) return rc;
    return cr_fail(err, -ETIMEDOUT,
                   "greet by MPI: no greeting from rank %d (process %d of MPI) within %lld ms; do "
                   "all ranks run under one mpirun?",
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
    mpi_enter();
    identify_self(g, &self);
    mpi_leave();
    int rc = exchange_identities(g, &self, all, err);
    if (rc == 0 && s->size > 1) rc = greet_neighbours(g, &self, all, err);
    if (rc < 0) return rc;
    mpi_enter();
    rc = make_comm(s, all, err);
    int *bound = NULL, found = 0;
    if (rc == 0) (void) MPI_Comm_get_attr(s->comm, MPI_TAG_UB, &bound, &found);
    if (found) s->tag_max = *bound;
    mpi_leave();
    return rc;
}

/* Connects the group. During this function MPI_COMM_WORLD has an error handler that makes MPI
 * return errors instead of ending the process. MPI_COMM_WORLD belongs to the program, so the
 * program's error handler is restored before this function returns. */
int mpi_connect(struct mpi_state *s, const struct backend_group *g, struct cr_error *err) {
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    mpi_enter();
    (void) MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    (void) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    mpi_leave();
    int rc = connect_comm(s, g, err);
    mpi_enter();
    (void) MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    (void) MPI_Errhandler_free(&before);
    mpi_leave();
    return rc;
}
