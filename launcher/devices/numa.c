/* Implements --numa-binding: finds the NUMA node of each GPU and the CPUs of each NUMA node, and
 * applies the rules of launcher/devices/numa_binding.h to each worker. */
#include "launcher/devices/numa.h"

#include "base/log/log.h"
#include "base/memory.h"

#include <errno.h>

static int fail_count(uint32_t workers, uint32_t gpus, const char *visible, struct cr_error *err) {
    return cr_fail(err, -ENODEV,
                   "cannot bind %u worker(s), each near a GPU of its own: this node shows %u GPU(s)"
                   "%s%.200s%s; lower --nproc-per-node, or leave the option out",
                   workers, gpus, visible != NULL ? " (CUDA_VISIBLE_DEVICES='" : "",
                   visible != NULL ? visible : "", visible != NULL ? "')" : "");
}

static void log_binding(uint32_t rank, const char *bus_id, int32_t node,
                        const struct cr_cpu_mask *mask) {
    char cpus[256];
    cr_cpu_format(mask, cpus, sizeof(cpus));
    cr_info("local rank %u is bound to CPUs %s: its GPU at %s is on NUMA node %d", rank, cpus,
            bus_id[0] != '\0' ? bus_id : "?", (int) node);
}

static void warn_unknown(uint32_t rank, const char *bus_id) {
    cr_warn("local rank %u is not bound: the kernel does not know the NUMA node of its GPU%s%s",
            rank, bus_id[0] != '\0' ? " at " : "", bus_id);
}

int numa_bind_workers(enum numa_mode mode, const struct device_places *places, const char *sys,
                      const char *visible_devices, uint32_t workers, struct cr_cpu_mask *masks,
                      struct cr_error *err) {
    struct numa_topology t;
    struct cr_cpu_mask allowed;
    CR_AUTO_FREE struct device_gpu *gpus = NULL;
    uint32_t count = 0;
    int rc = device_gpus(places, visible_devices, &gpus, &count, err);
    if (rc < 0) return rc;
    if (count < workers) return fail_count(workers, count, visible_devices, err);
    CR_AUTO_FREE int32_t *nodes = calloc(count, sizeof(*nodes));
    if (nodes == NULL) return cr_fail(err, -ENOMEM, "cannot bind workers to CPUs: out of memory");
    rc = cr_cpu_allowed(&allowed);
    if (rc < 0) return cr_fail(err, rc, "cannot ask which CPUs this process may use");
    rc = numa_topology_read(sys, &allowed, numa_mode_reads(mode), &t, err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < count; i++) nodes[i] = numa_node_of_device(sys, &t, gpus[i].bus_id);
    for (uint32_t i = 0; rc == 0 && i < workers; i++) {
        masks[i] = (struct cr_cpu_mask){0};
        if (nodes[i] < 0) {
            warn_unknown(i, gpus[i].bus_id);
            continue;
        }
        rc = numa_binding(mode, &t, nodes, count, i, &masks[i], err);
        if (rc == 0) log_binding(i, gpus[i].bus_id, nodes[i], &masks[i]);
        else (void) cr_wrap(err, "local rank %u, GPU at %s", i, gpus[i].bus_id);
    }
    numa_topology_done(&t);
    return rc;
}
