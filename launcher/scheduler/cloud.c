/* The finders of cloud services that start a command on several nodes: SageMaker, SkyPilot and
 * dstack. (HyperPod needs no finder: it runs Slurm or Kubernetes, whose finders recognise it.) */
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Stores the first address of the list in the variable `name` as the address of node 0. Returns 1;
 * 0, and stores nothing, if the variable is not set; or -EINVAL, and sets err, if the list is
 * malformed. */
static int take_addresses(const struct scheduler_world *w, const char *name,
                          struct scheduler_facts *f, struct cr_error *err) {
    const char *list = fact_text(w, name);
    if (list == NULL) return 0;
    if (host_list_first(list, f->head) < 0) {
        return cr_fail(err, -EINVAL, "%s='%.200s' is not a list of addresses", name, list);
    }
    f->head_from = name;
    return 1;
}

/* Recognises SkyPilot; its variables are defined in its source, sky/skylet/constants.py.
 * SKYPILOT_NODE_IPS has one address per line. */
int find_skypilot(const struct scheduler_world *w, struct scheduler_facts *f,
                  struct cr_error *err) {
    if (fact_text(w, "SKYPILOT_NODE_RANK") == NULL) return 0;
    f->name = "SkyPilot";
    const char *id = fact_text(w, "SKYPILOT_TASK_ID");
    (void) snprintf(f->job_id, sizeof(f->job_id), "skypilot-%s", id != NULL ? id : "0");
    int rc = fact_nodes(w, "SKYPILOT_NUM_NODES", f, err);
    if (rc >= 0) rc = fact_rank(w, "SKYPILOT_NODE_RANK", f, err);
    if (rc >= 0) rc = take_addresses(w, "SKYPILOT_NODE_IPS", f, err);
    if (rc >= 0) rc = fact_workers(w, "SKYPILOT_NUM_GPUS_PER_NODE", f, err);
    return rc < 0 ? rc : 1;
}

/* Recognises dstack; see "Environment variables" in its documentation of tasks. */
int find_dstack(const struct scheduler_world *w, struct scheduler_facts *f, struct cr_error *err) {
    if (fact_text(w, "DSTACK_NODE_RANK") == NULL) return 0;
    f->name = "dstack";
    const char *id = fact_text(w, "DSTACK_RUN_NAME");
    (void) snprintf(f->job_id, sizeof(f->job_id), "dstack-%s", id != NULL ? id : "0");
    int rc = fact_nodes(w, "DSTACK_NODES_NUM", f, err);
    if (rc >= 0) rc = fact_rank(w, "DSTACK_NODE_RANK", f, err);
    if (rc >= 0) rc = take_addresses(w, "DSTACK_MASTER_NODE_IP", f, err);
    if (rc >= 0) rc = fact_workers(w, "DSTACK_GPUS_PER_NODE", f, err);
    return rc < 0 ? rc : 1;
}

/* Writes the texts of a JSON list such as ["algo-1","algo-2"] to `out`, separated by commas.
 * Returns 0; or -EINVAL if `json` is no such list, if the result does not fit into `cap` bytes, or
 * if a text has a backslash, which no host name has. */
static int take_json_texts(const char *json, char *out, size_t cap) {
    size_t len = 0;
    const char *at = json + strspn(json, " ");
    if (*at++ != '[') return -EINVAL;
    for (at += strspn(at, " "); *at == '"'; at += strspn(at, ", ")) {
        size_t n = strcspn(++at, "\"\\");
        if (at[n] != '"' || len + n + 2 > cap) return -EINVAL;
        if (len > 0) out[len++] = ',';
        memcpy(out + len, at, n);
        len += n;
        at += n + 1;
    }
    out[len] = '\0';
    return *at == ']' && len > 0 ? 0 : -EINVAL;
}

/* Recognises SageMaker. Its training toolkit sets SM_HOSTS to the same list on all hosts, so a
 * host's position in this list is its node rank. */
int find_sagemaker(const struct scheduler_world *w, struct scheduler_facts *f,
                   struct cr_error *err) {
    const char *json = fact_text(w, "SM_HOSTS"), *self = fact_text(w, "SM_CURRENT_HOST");
    const char *id = fact_text(w, "TRAINING_JOB_NAME");
    char hosts[16384];
    if (json == NULL || self == NULL) return 0;
    f->name = "SageMaker";
    if (take_json_texts(json, hosts, sizeof(hosts)) < 0) {
        return cr_fail(err, -EINVAL, "SM_HOSTS='%.200s' is not a JSON list of host names", json);
    }
    f->node_rank = host_list_find(hosts, self);
    if (f->node_rank < 0) {
        return cr_fail(err, -EINVAL, "SM_CURRENT_HOST='%.100s' is not in SM_HOSTS='%.200s'", self,
                       json);
    }
    (void) host_list_first(hosts, f->head);
    f->nodes = host_list_count(hosts);
    f->nodes_from = f->head_from = "SM_HOSTS";
    f->rank_from = "SM_CURRENT_HOST";
    fact_copy(f->hosts, sizeof(f->hosts), hosts);
    (void) snprintf(f->job_id, sizeof(f->job_id), "sagemaker-%s", id != NULL ? id : "0");
    int rc = fact_workers(w, "SM_NUM_GPUS", f, err);
    return rc < 0 ? rc : 1;
}
