/* Calls the finders until one recognises its scheduler, and describes the facts in one line. */
#include "launcher/scheduler/scheduler.h"

#include "base/memory.h"
#include "launcher/scheduler/find_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The finders, in the order in which they are called until one recognises its scheduler. If one
 * scheduler can run inside another one, the finder of the inner one comes first: mpirun runs inside
 * a Slurm job, and Slurm runs inside Kubernetes. */
static const scheduler_find_fn finders[] = {
    find_open_mpi, find_mpich,     find_flux,     find_slurm,  find_pbs,
    find_lsf,      find_sagemaker, find_skypilot, find_dstack, find_kubernetes,
};

static const struct scheduler_facts nothing = {.node_rank = -1, .tasks = 1};

int scheduler_find(const struct scheduler_world *world, struct scheduler_facts *out,
                   struct cr_error *err) {
    for (size_t i = 0; i < CR_ARRAY_LEN(finders); i++) {
        *out = nothing;
        int rc = finders[i](world, out, err);
        if (rc < 0) return rc;
        if (rc == 0) continue;
        if (out->port == 0 && out->job_id[0] != '\0') out->port = fact_port_of(out->job_id);
        return 0;
    }
    *out = nothing;
    return 0;
}

/* Appends a formatted fact at out[*len], and increases *len. Puts a comma in front of it unless it
 * is the first fact. If the fact does not fit into `cap` bytes, it is cut, and *len becomes
 * `cap`. */
__attribute__((format(printf, 4, 5))) static void add(char *out, size_t cap, size_t *len,
                                                      const char *fmt, ...) {
    va_list ap;
    if (*len + 3 >= cap) return;
    if (*len > 0 && out[*len - 1] != ':') out[(*len)++] = ',';
    if (*len > 0) out[(*len)++] = ' ';
    va_start(ap, fmt);
    int n = vsnprintf(out + *len, cap - *len, fmt, ap);
    va_end(ap);
    *len = n < 0 || (size_t) n >= cap - *len ? cap : *len + (size_t) n;
}

void scheduler_describe(const struct scheduler_facts *f, char *out, size_t cap) {
    size_t len = 0;
    add(out, cap, &len, "from %s:", f->name);
    if (f->nodes > 0) {
        add(out, cap, &len, "%" PRIu32 " node%s (%s)", f->nodes, f->nodes == 1 ? "" : "s",
            f->nodes_from);
    }
    if (f->node_rank >= 0 && f->rank_from != NULL) {
        add(out, cap, &len, "this is %" PRId64 " (%s)", f->node_rank, f->rank_from);
    }
    if (f->hosts[0] != '\0') add(out, cap, &len, "%s", f->hosts);
    if (f->head[0] != '\0') {
        add(out, cap, &len, "head %s:%u (%s)", f->head, (unsigned) f->port, f->head_from);
    }
    if (f->layout[0] != '\0') {
        add(out, cap, &len, "%s workers on the nodes (%s)", f->layout, f->workers_from);
    } else if (f->workers > 0) {
        add(out, cap, &len, "%" PRIu32 " worker%s per node (%s)", f->workers,
            f->workers == 1 ? "" : "s", f->workers_from);
    }
    if (f->job_id[0] != '\0') add(out, cap, &len, "job %s", f->job_id);
    if (len < cap && out[len - 1] == ':') add(out, cap, &len, "nothing that is not given");
}
