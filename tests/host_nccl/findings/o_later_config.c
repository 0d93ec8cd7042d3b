/* Checks those fields of NCCL's configuration that are not in the headers with which the backend is
 * built. If the loaded NCCL reports a version that has the fields, the backend must pass them to
 * NCCL. If NCCL reports an older version, the backend must refuse them. */
#include "tests/host_nccl/findings/finding.h"

#include <nccl.h>

const ncclConfig_t *host_nccl_config(ncclComm_t comm);
const int *host_nccl_later_fields(ncclComm_t comm);

int main(void) {
    const char *version = getenv("HOST_NCCL_VERSION");
    crunrt_group_options o = CRUNRT_GROUP_OPTIONS_INIT;
    crunrt_nccl_config c = CRUNRT_NCCL_CONFIG_INIT;
    crunrt_group *g = NULL;
    open_job();
    o.backend = "nccl";
    o.timeout_ms = 5000;
    o.nccl = &c;
    c.graph_usage_mode = 1;
    c.max_p2p_peers = 6;
    if (version == NULL) {
        KEPT(crunrt_group_new(rt, &o, &g) == -ENOTSUP, "2.28 has no graphUsageMode");
        KEPT(strstr(crunrt_last_error(), "'graph_usage_mode'") != NULL, "the text");
        kept();
    }
    c.launch_order_implicit = 1;
    if (strcmp(version, "23000") == 0) {
        KEPT(crunrt_group_new(rt, &o, &g) == -ENOTSUP, "2.30 has no launchOrderImplicit");
        c.launch_order_implicit = -1;
    }
    KEPT(crunrt_group_new(rt, &o, &g) == 0, "a configured group");
    ncclComm_t comm = crunrt_nccl_comm(g);
    /* checked only with headers before 2.29: in later headers ncclConfig_t itself has some of these
     * fields, so they are not in `later` */
    const int *later = host_nccl_later_fields(comm);
    if (NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)) {
        KEPT(later[0] == 1 && later[1] == NCCL_CONFIG_UNDEF_INT, "2.29");
        KEPT(later[2] == 6 && later[3] == NCCL_CONFIG_UNDEF_INT, "2.30");
        KEPT(later[4] == (strcmp(version, "23100") == 0 ? 1 : NCCL_CONFIG_UNDEF_INT), "2.31");
    }
    KEPT(host_nccl_config(comm)->version == (unsigned) atoi(version), "the version");
    kept();
}
