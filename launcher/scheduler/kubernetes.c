/* The finder of Kubernetes: pods of Kubeflow (TrainJob, PyTorchJob v1) and Volcano, and indexed
 * jobs (also those of a JobSet).
 *
 * Kubeflow's TrainJob sets torchrun's own variables (PET_NNODES, PET_NODE_RANK, …). crun reads
 * these as defaults of its options, so the finder does not read them. PyTorchJob v1 and Volcano
 * also set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. In their pods, RANK and WORLD_SIZE count
 * pods, not workers. */
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HOSTS_MAX ((size_t) 8192) /* room for the contents of /etc/hosts, in bytes, with the NUL */

/* Stores in *f the variables that Volcano's pytorch plugin and PyTorchJob v1 set in each pod. In a
 * worker of torchrun or crun, which has TORCHELASTIC_RUN_ID, the same variables have another
 * meaning and are not read. Returns 1; 0 if this is no such pod; or a negative errno, and sets
 * err. */
static int find_pods(const struct scheduler_world *w, struct scheduler_facts *f,
                     struct cr_error *err) {
    int64_t port = 0;
    if (fact_text(w, "TORCHELASTIC_RUN_ID") != NULL || fact_text(w, "MASTER_ADDR") == NULL ||
        fact_text(w, "MASTER_PORT") == NULL || fact_text(w, "RANK") == NULL ||
        fact_text(w, "WORLD_SIZE") == NULL) {
        return 0;
    }
    int rc = fact_nodes(w, "WORLD_SIZE", f, err);
    if (rc >= 0) rc = fact_rank(w, "RANK", f, err);
    if (rc >= 0) rc = fact_number(w, "MASTER_PORT", 1, &port, err);
    if (rc < 0) return rc;
    if (port > UINT16_MAX) return cr_fail(err, -EINVAL, "MASTER_PORT=%lld is not a port",
                                          (long long) port);
    f->port = (uint16_t) port;
    fact_copy(f->head, sizeof(f->head), fact_text(w, "MASTER_ADDR"));
    f->head_from = "MASTER_ADDR";
    return 1;
}

/* Stores the domain of this pod in `out`, for example ".train.default.svc.cluster.local". The
 * kubelet writes the domain to /etc/hosts, in the line "ADDRESS NAME.DOMAIN NAME". Stores "" if
 * there is no such line: the pod has no subdomain. */
static void read_domain(const struct scheduler_world *w, char *out, size_t cap) {
    char hosts[HOSTS_MAX];
    size_t n = strlen(w->host_name);
    out[0] = '\0';
    if (w->read_file(w->arg, "/etc/hosts", hosts, sizeof(hosts)) < 0) return;
    for (const char *at = hosts; (at = strstr(at, w->host_name)) != NULL; at += n) {
        bool starts_word = at > hosts && strchr(" \t", at[-1]) != NULL;
        if (!starts_word || at[n] != '.') continue;
        size_t len = strcspn(at + n, " \t\r\n");
        if (len < cap) (void) snprintf(out, cap, "%.*s", (int) len, at + n);
        return;
    }
}

/* Stores in *f what the name and the variables of an indexed job's pod say. The pods of the job are
 * named "<job>-<index>", and the pod with index 0 is node 0. No variable says how many pods the job
 * has, so the user must give the number of nodes by --nnodes or PET_NNODES. */
static int find_indexed_job(const struct scheduler_world *w, struct scheduler_facts *f,
                            struct cr_error *err) {
    char domain[CR_HOST_MAX], index[24];
    int rc = fact_rank(w, "JOB_COMPLETION_INDEX", f, err);
    if (rc <= 0) return rc;
    (void) snprintf(index, sizeof(index), "-%lld", (long long) f->node_rank);
    size_t name = strlen(w->host_name), tail = strlen(index);
    if (name <= tail || strcmp(w->host_name + name - tail, index) != 0) return 1;
    read_domain(w, domain, sizeof(domain));
    int n = snprintf(f->head, sizeof(f->head), "%.*s-0%s", (int) (name - tail), w->host_name,
                     domain);
    if (n < 0 || (size_t) n >= sizeof(f->head)) return f->head[0] = '\0', 1;
    f->head_from = "JOB_COMPLETION_INDEX";
    (void) snprintf(f->job_id, sizeof(f->job_id), "k8s-%.*s", (int) (name - tail), w->host_name);
    return 1;
}

int find_kubernetes(const struct scheduler_world *w, struct scheduler_facts *f,
                    struct cr_error *err) {
    if (fact_text(w, "KUBERNETES_SERVICE_HOST") == NULL) return 0;
    f->name = "Kubernetes";
    f->term_is_notice = true; /* the kubelet sends SIGTERM, and after the grace period SIGKILL */
    int rc = find_pods(w, f, err);
    if (rc == 0) rc = find_indexed_job(w, f, err);
    return rc < 0 ? rc : 1;
}
