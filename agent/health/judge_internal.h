/* What the built-in checks decide on: facts about this node, and the reason why they make the node
 * unfit. Pure. */
#ifndef AGENT_HEALTH_JUDGE_INTERNAL_H
#define AGENT_HEALTH_JUDGE_INTERNAL_H

#include "agent/health/health.h"

#include <stdbool.h>
#include <stdint.h>

#define HEALTH_UNKNOWN UINT64_MAX /* a number that could not be found out; its check passes */

struct health_facts {
    uint32_t workers;
    int64_t wall_s;            /* the wall clock, in s since 1970 */
    uint64_t shm_free;         /* free bytes of /dev/shm; HEALTH_UNKNOWN if it is missing */
    bool has_shm;
    uint64_t files;            /* limit of open files of one process */
    uint64_t memlock;          /* limit of locked memory in bytes */
    bool has_rdma;             /* true if the node has an RDMA device */
    const char *folder;        /* folder of the next two */
    uint64_t disk_free, inodes_free; /* HEALTH_UNKNOWN if the file system does not count them */
    /* number of GPUs that the driver lists, and that NVML has found; HEALTH_UNKNOWN if there is no
     * list, or no NVML */
    uint64_t gpus_of_driver, gpus_of_nvml;
    char gpu_error[160];       /* what NVML has said that is wrong; "" = nothing */
    char link[64];             /* interface or HCA that is in use and down; "" = none is */
    char link_state[32];       /* the state of `link` */
};

/* Writes to `why` the reason of the first check of `mask` that fails, and returns false; or returns
 * true if all pass. */
bool health_judge(const struct health_facts *f, uint32_t mask, char why[HEALTH_WHY_MAX]);

/* Fills in the facts that the checks of `mask` need. `addr` is the numeric address of the interface
 * in use, or "". */
void health_find(struct health_facts *f, uint32_t mask, const char *addr);

/* Fills in what NVML says about the GPUs, unless its library is missing. */
void health_ask_nvml(struct health_facts *f);

#endif
