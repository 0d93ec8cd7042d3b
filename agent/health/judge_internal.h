/* What the built-in checks decide on: facts about this node, and the reason why they make the node
 * unfit. Pure. */
#ifndef AGENT_HEALTH_JUDGE_INTERNAL_H
#define AGENT_HEALTH_JUDGE_INTERNAL_H

#include "agent/health/health.h"

#include <stdbool.h>
#include <stdint.h>

#define HEALTH_UNKNOWN UINT64_MAX /* value of a number that could not be found out; the check of
                                   * this number passes */

struct health_facts {
    uint32_t workers;
    int64_t wall_s;            /* the wall clock, in s since 1970 */
    uint64_t shm_free;         /* free bytes of /dev/shm; HEALTH_UNKNOWN if it is missing */
    bool has_shm;
    uint64_t files;            /* limit of open files of one process */
    uint64_t memlock;          /* limit of locked memory in bytes */
    bool has_rdma;             /* true if the node has an RDMA device */
    const char *segments;      /* folder of --health-segment-dir, or "" */
    char segment[200];         /* file in `segments` that marks this node's allocation as
                                * unavailable; "" if there is no such file */
    const char *service;       /* socket and arguments of --health-service, or "" */
    bool service_failed;       /* true if the service says that the node is not well, or if this
                                * node has no libcurl with HTTP/2, so crun cannot ask the service */
    char service_error[200];   /* the reason; valid if service_failed */
    char service_warning[480]; /* why the service gave no answer; "" if it has answered */
    const char *folder;        /* disk_free and inodes_free are of its file system */
    uint64_t disk_free, inodes_free; /* free bytes and free inodes; HEALTH_UNKNOWN if not counted */
    /* gpus_of_driver: number of GPUs that the driver lists; HEALTH_UNKNOWN if there is no such
     * list. gpus_of_nvml: number of GPUs that NVML has found; HEALTH_UNKNOWN without NVML */
    uint64_t gpus_of_driver, gpus_of_nvml;
    char gpu_error[160];       /* error that NVML has reported; "" if there is none */
    char link[64];             /* interface or HCA that is in use but down; "" if there is none */
    char link_state[32];       /* the state of `link` */
};

/* Makes the checks of `mask`. If a check fails, writes its reason to `why` and returns false,
 * without making the other checks. Returns true if all pass. */
bool health_judge(const struct health_facts *f, uint32_t mask, char why[HEALTH_WHY_MAX]);

/* Fills in the facts that the checks of `mask` need. `addr` is the numeric address of the interface
 * in use, or "". */
void health_find(struct health_facts *f, uint32_t mask, const char *addr);

/* Fills in what NVML says about the GPUs, unless its library is missing. */
void health_ask_nvml(struct health_facts *f);

/* Asks the service f->service, unless that is "". If the service gives no answer, sets only
 * f->service_warning, because the node passes the check in that case, as with NVRx. */
void health_ask_service(struct health_facts *f);

#endif
