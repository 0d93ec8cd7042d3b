/* The finders of batch systems other than Slurm: Flux, PBS (OpenPBS, PBS Pro, Torque) and LSF. */
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX ((size_t) 65536) /* bytes for the text of a list of hosts, with its NUL */

/* ---- Flux; its variables are described in flux-environment(7) ---- */

static int read_flux_tasks(const struct scheduler_world *w, struct scheduler_facts *f,
                           struct cr_error *err) {
    int64_t tasks = 0, local = 0, rank = 0;
    int rc = fact_number(w, "FLUX_JOB_SIZE", 1, &tasks, err);
    if (rc >= 0) rc = fact_number(w, "FLUX_TASK_LOCAL_ID", 0, &local, err);
    if (rc >= 0) rc = fact_number(w, "FLUX_TASK_RANK", 0, &rank, err);
    if (rc < 0 || f->nodes == 0) return rc;
    f->task = (uint32_t) local;
    if (tasks % f->nodes == 0 && tasks / f->nodes <= UINT16_MAX) {
        f->tasks = (uint32_t) (tasks / f->nodes);
    }
    if (f->tasks == 1) {
        f->node_rank = rank;
        f->rank_from = "FLUX_TASK_RANK";
    } else {
        f->workers = f->tasks;
        f->workers_from = "FLUX_JOB_SIZE";
    }
    return 1;
}

int find_flux(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err) {
    const char *id = fact_text(w, "FLUX_JOB_ID");
    if (id == NULL || fact_text(w, "FLUX_TASK_RANK") == NULL) return 0;
    f->name = "Flux";
    (void) snprintf(f->job_id, sizeof(f->job_id), "flux-%s", id);
    int rc = fact_nodes(w, "FLUX_JOB_NNODES", f, err);
    if (rc >= 0) rc = read_flux_tasks(w, f, err);
    return rc < 0 ? rc : 1;
}

/* ---- PBS; see pbs_job_attributes(7), qsub(1), pbsdsh(1) ---- */

/* Reads the file `path`, which has one line with a host for each slot, and writes the hosts to
 * `out`, separated by commas. A host that stands on several consecutive lines is written once.
 * Returns 0 or a negative errno. */
static int read_host_file(const struct scheduler_world *w, const char *path, char *out,
                          size_t cap) {
    size_t len = 0, last = 0;
    int rc = w->read_file(w->arg, path, out, cap);
    if (rc < 0) return rc;
    /* The text of the file and the result are both in `out`. The result is never longer than the
     * text that was read so far, so it overwrites no text that is still to be read. */
    for (char *at = out; *at != '\0';) {
        size_t n = strcspn(at, " \t\r\n");
        char *next = at + n + strspn(at + n, " \t\r\n");
        bool is_new = n > 0 && (len == 0 || len - last != n || memcmp(out + last, at, n) != 0);
        if (is_new) {
            if (len > 0) out[len++] = ',';
            last = len;
            memmove(out + len, at, n);
            len += n;
        }
        at = next;
    }
    out[len] = '\0';
    return 0;
}

static int fail_read(const char *variable, const char *path, int rc, struct cr_error *err) {
    return cr_fail(err, rc, "cannot read the list of hosts '%.200s' (%s): %s", path, variable,
                   strerror(-rc));
}

/* Stores in *f the facts that follow from a list of hosts: the number of nodes; the first host, as
 * the address of node 0; and this host's position in the list, as the rank of this node. `from` is
 * the name of the variable from which the list comes. Returns 1; or -EINVAL, and sets err, if the
 * list is empty or malformed. */
static int take_hosts(const struct scheduler_world *w, const char *list, const char *from,
                      struct scheduler_facts *f, struct cr_error *err) {
    if (host_list_first(list, f->head) < 0) {
        return cr_fail(err, -EINVAL, "the list of hosts in %s is empty or malformed", from);
    }
    f->nodes = host_list_count(list);
    f->nodes_from = f->head_from = from;
    fact_copy(f->hosts, sizeof(f->hosts), list);
    int64_t position = host_list_find(list, w->host_name);
    if (position >= 0) {
        f->node_rank = position;
        f->rank_from = from;
    }
    return 1;
}

/* Recognises PBS. Task 1 is the batch script, which runs on the first node. The tasks that pbsdsh
 * starts have higher numbers. */
int find_pbs(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err) {
    const char *id = fact_text(w, "PBS_JOBID"), *path = fact_text(w, "PBS_NODEFILE");
    char hosts[FILE_MAX];
    int64_t task = 1;
    if (id == NULL || path == NULL) return 0;
    f->name = "PBS";
    (void) snprintf(f->job_id, sizeof(f->job_id), "pbs-%s", id);
    int rc = read_host_file(w, path, hosts, sizeof(hosts));
    if (rc < 0) return fail_read("PBS_NODEFILE", path, rc, err);
    rc = take_hosts(w, hosts, "PBS_NODEFILE", f, err);
    if (rc >= 0) rc = fact_number(w, "PBS_TASKNUM", 0, &task, err);
    if (rc >= 0) rc = fact_workers(w, "NGPUS", f, err);
    if (rc < 0) return rc;
    f->start = task <= 1 ? SCHEDULER_STARTS_FIRST_NODE : SCHEDULER_STARTS_EACH_NODE;
    f->remedy = "pbsdsh -u";
    return 1;
}

/* ---- LSF; see "Environment variables" in its reference, and jsrun(1) ---- */

/* Writes the first, third, fifth … word of `text` to `out`, separated by commas. `text` is a list
 * such as "hostA 4 hostB 4", in which the number of slots follows each host. */
static void take_every_other_word(const char *text, char *out, size_t cap) {
    size_t len = 0;
    bool is_host = true;
    for (const char *at = text + strspn(text, " "); *at != '\0'; is_host = !is_host) {
        size_t n = strcspn(at, " ");
        if (is_host && len + n + 2 < cap) {
            if (len > 0) out[len++] = ',';
            memcpy(out + len, at, n);
            len += n;
        }
        at += n;
        at += strspn(at, " ");
    }
    out[len] = '\0';
}

/* Recognises LSF. The batch script runs on the first host. It starts tasks on the hosts by blaunch,
 * which sets LSF_PM_TASKID, or by jsrun, which sets JSM_NAMESPACE_RANK. */
int find_lsf(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err) {
    const char *id = fact_text(w, "LSB_JOBID"), *slots = fact_text(w, "LSB_MCPU_HOSTS");
    char hosts[FILE_MAX];
    if (id == NULL || slots == NULL) return 0;
    f->name = "LSF";
    (void) snprintf(f->job_id, sizeof(f->job_id), "lsf-%s", id);
    take_every_other_word(slots, hosts, sizeof(hosts));
    bool is_task = fact_text(w, "LSF_PM_TASKID") != NULL ||
                   fact_text(w, "JSM_NAMESPACE_RANK") != NULL;
    f->start = is_task ? SCHEDULER_STARTS_EACH_NODE : SCHEDULER_STARTS_FIRST_NODE;
    f->remedy = "blaunch -z \"$LSB_HOSTS\"";
    return take_hosts(w, hosts, "LSB_MCPU_HOSTS", f, err);
}
