/* The finders of mpirun and mpiexec: for Open MPI (and PRRTE), and for the MPICH family with its
 * launcher Hydra (MPICH, Intel MPI, MVAPICH).
 *
 * mpirun starts one process per slot. On each node one of these processes runs the job and starts
 * all workers of the node; the other processes wait until it has ended (launcher/task_leader.h). */
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct mpi_variables {
    const char *size, *rank, *local_size, *local_rank;
};

/* Stores the facts about nodes, tasks and workers in *f. A task knows only how many tasks its own
 * node has. So the function assumes that all nodes have this number of tasks, and divides the
 * number of all tasks by it to get the number of nodes, which stays unknown if there is a
 * remainder. This node's rank stays unknown if several nodes have several tasks each, because it
 * depends on whether mpirun numbers the tasks node by node or in turn. */
static int read_tasks(const struct scheduler_world *w, const struct mpi_variables *v,
                      struct scheduler_facts *f, struct cr_error *err) {
    int64_t size = 1, rank = 0, local_size = 1, local_rank = 0;
    int rc = fact_number(w, v->size, 1, &size, err);
    if (rc >= 0) rc = fact_number(w, v->rank, 0, &rank, err);
    if (rc >= 0) rc = fact_number(w, v->local_size, 1, &local_size, err);
    if (rc >= 0) rc = fact_number(w, v->local_rank, 0, &local_rank, err);
    if (rc < 0) return rc;
    if (size > UINT32_MAX || local_size > size || local_rank >= local_size) {
        return cr_fail(err, -EINVAL, "%s=%lld, %s=%lld and %s=%lld contradict each other", v->size,
                       (long long) size, v->local_size, (long long) local_size, v->local_rank,
                       (long long) local_rank);
    }
    f->tasks = (uint32_t) local_size;
    f->task = (uint32_t) local_rank;
    if (size % local_size == 0) {
        f->nodes = (uint32_t) (size / local_size);
        f->nodes_from = v->size;
    }
    if (local_size == 1 || local_size == size) {
        f->node_rank = local_size == 1 ? rank : 0;
        f->rank_from = v->rank;
    }
    if (local_size > 1) {
        f->workers = f->tasks;
        f->workers_from = v->local_size;
    }
    return 1;
}

/* Stores the address of the host of mpirun as the address of node 0, because by default mpirun runs
 * on the first node. The variable `name` has a form such as
 * "3932160.0;tcp://10.0.0.1,172.17.0.1:45661"; the first host after "tcp://" is stored. JAX finds
 * its coordinator in the same way. */
static void read_head(const struct scheduler_world *w, const char *name,
                      struct scheduler_facts *f) {
    const char *uri = fact_text(w, name);
    const char *at = uri == NULL ? NULL : strstr(uri, "tcp://");
    if (at == NULL) return;
    at += strlen("tcp://");
    size_t len = strcspn(at, ",:;");
    if (len == 0 || len >= sizeof(f->head)) return;
    (void) snprintf(f->head, sizeof(f->head), "%.*s", (int) len, at);
    f->head_from = name;
}

int find_open_mpi(const struct scheduler_world *w, struct scheduler_facts *f,
                  struct cr_error *err) {
    static const struct mpi_variables names = {
        .size = "OMPI_COMM_WORLD_SIZE", .rank = "OMPI_COMM_WORLD_RANK",
        .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE", .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK"};
    if (fact_text(w, names.rank) == NULL || fact_text(w, names.size) == NULL) return 0;
    f->name = "Open MPI";
    const char *job = fact_text(w, "PMIX_NAMESPACE");
    read_head(w, "OMPI_MCA_orte_hnp_uri", f);
    if (f->head[0] == '\0') read_head(w, "PMIX_LAUNCHER_RENDEZVOUS_URI", f);
    if (job == NULL && f->head_from != NULL) job = fact_text(w, f->head_from);
    if (job != NULL) { /* a URI begins with the job's number and ';' */
        (void) snprintf(f->job_id, sizeof(f->job_id), "mpi-%.*s", (int) strcspn(job, ";"), job);
    }
    return read_tasks(w, &names, f, err);
}

int find_mpich(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err) {
    static const struct mpi_variables names = {
        .size = "PMI_SIZE", .rank = "PMI_RANK",
        .local_size = "MPI_LOCALNRANKS", .local_rank = "MPI_LOCALRANKID"};
    if (fact_text(w, names.rank) == NULL || fact_text(w, names.local_rank) == NULL) return 0;
    f->name = "MPICH";
    const char *port = fact_text(w, "PMI_PORT"); /* HOST:PORT of Hydra's process manager */
    if (port != NULL) (void) snprintf(f->job_id, sizeof(f->job_id), "mpi-%s", port);
    return read_tasks(w, &names, f, err);
}
