/* The finder of Kubernetes: it recognises pods of Kubeflow (TrainJob, PyTorchJob v1) and Volcano,
 * and of indexed jobs (also those of a JobSet).
 *
 * Kubeflow's TrainJob sets torchrun's own variables (PET_NNODES, PET_NODE_RANK, …). The finder does
 * not read them, because crun reads them as defaults of its options. PyTorchJob v1 and Volcano also
 * set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. In their pods, RANK and WORLD_SIZE count pods,
 * not workers. */
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HOSTS_MAX ((size_t) 8192) /* bytes for the contents of /etc/hosts, with the NUL */

/* Stores in *f the facts that Volcano's pytorch plugin and PyTorchJob v1 give by variables in each
 * pod. If TORCHELASTIC_RUN_ID is set, this process is a worker of torchrun or crun; the same
 * variables then have another meaning and are not read. Returns 1; 0 if the variables are not set
 * or not read; or a negative errno, and sets err. */
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

/* Writes the domain of this pod to `out`, for example ".train.default.svc.cluster.local". The
 * kubelet writes it to /etc/hosts, in a line "ADDRESS NAME.DOMAIN NAME". If there is no such line,
 * the pod has no subdomain, and `out` becomes "". */
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

/* Stores in *f the facts that follow from the name and the variables of an indexed job's pod. The
 * pods are named "<job>-<index>"; the pod with index 0 is node 0. No variable says how many pods
 * the job has, so the user must give the number of nodes by --nnodes or PET_NNODES. */
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
    f->term_is_notice = true; /* after SIGTERM and the grace period, the kubelet sends SIGKILL */
    int rc = find_pods(w, f, err);
    if (rc == 0) rc = find_indexed_job(w, f, err);
    return rc < 0 ? rc : 1;
}
