/* NCCL's configuration of a group, sums of products with a factor, registered memory, and gathers
 * and scatters with counts: what the program asks for reaches NCCL, and the results are right. */
#include "tests/host_nccl/findings/finding.h"

#include <nccl.h>

const ncclConfig_t *host_nccl_config(ncclComm_t comm);
uint64_t host_nccl_counter(const char *name);

static void configured_group(void) {
    crunrt_group_options o;
    crunrt_nccl_config c;
    crunrt_group *g = NULL;
    crunrt_group_options_init(&o);
    crunrt_nccl_config_init(&c);
    c.min_ctas = 2;
    c.max_ctas = 4;
    c.cga_cluster_size = 1;
    c.traffic_class = 7;
    c.cta_policy = 1;
    c.nvls_ctas = 3;
    c.channels_per_net_peer = 5;
    c.net_name = "Socket";
    o.backend = "nccl";
    o.nccl = &c;
    KEPT(crunrt_group_new(rt, &o, &g) == 0, "a configured group");
    const ncclConfig_t *seen = host_nccl_config(crunrt_nccl_comm(g));
    KEPT(seen->minCTAs == 2 && seen->maxCTAs == 4 && seen->cgaClusterSize == 1, "thread blocks");
    KEPT(seen->trafficClass == 7 && seen->CTAPolicy == 1 && seen->nvlsCTAs == 3, "network");
    KEPT(seen->nChannelsPerNetPeer == 5 && strcmp(seen->netName, "Socket") == 0, "channels");
    KEPT(seen->collnetEnable == NCCL_CONFIG_UNDEF_INT, "a field that was not set");
    KEPT(seen->nvlinkCentricSched == NCCL_CONFIG_UNDEF_INT, "a field that was not set");
    seen = host_nccl_config(crunrt_nccl_comm(world));
    KEPT(seen->minCTAs == NCCL_CONFIG_UNDEF_INT, "another group");
    crunrt_group_destroy(g);
    c.size = 0;
    KEPT(crunrt_group_new(rt, &o, &g) == -EINVAL, "a configuration without its size");
}

static void sum_of_products(void) {
    float factor = 0.5F * (float) (rank + 1), expected = 0;
    for (int r = 0; r < size; r++) expected += 0.5F * (float) (r + 1) * 4;
    crunrt_op op = sum_of(floats(16, 4));
    op.reduce = CRUNRT_PREMUL_SUM;
    KEPT(crunrt_group_run(world, &op) == -EINVAL, "without a factor");
    op.factor = &factor;
    KEPT(crunrt_group_run(world, &op) == 0, "a factor in host memory");
    KEPT(first_of(op.recv) == expected, "%g, not %g", first_of(op.recv), expected);
    op.send = op.recv = floats(16, 4);
    op.factor = floats(1, factor);
    KEPT(crunrt_group_run(world, &op) == 0, "a factor in memory of the GPU");
    KEPT(first_of(op.recv) == expected, "%g, not %g", first_of(op.recv), expected);
    op.dtype = CRUNRT_INT32;
    KEPT(crunrt_group_run(world, &op) == -EINVAL, "integers");
}

static void registered_memory(void) {
    crunrt_registration *local = NULL, *window = NULL;
    void *memory = NULL;
    KEPT(crunrt_group_memory_new(world, 4096, &memory) == 0, "memory");
    KEPT(crunrt_group_register(world, memory, 4096, CRUNRT_REGISTER_LOCAL, &local) == 0, "local");
    KEPT(crunrt_group_register(world, memory, 4096, CRUNRT_REGISTER_SYMMETRIC, &window) == 0,
         "symmetric");
    KEPT(host_nccl_counter("ncclCommRegister") == 1, "calls");
    KEPT(host_nccl_counter("ncclCommWindowRegister") == 1, "calls");
    float one[16] = {1};
    (void) cudaMemcpy(memory, one, sizeof(one), cudaMemcpyHostToDevice);
    (void) cudaDeviceSynchronize();
    crunrt_op op = sum_of(memory);
    KEPT(crunrt_group_run(world, &op) == 0 && first_of(memory) == (float) size, "a sum there");
    crunrt_registration_free(window);
    crunrt_registration_free(local);
    KEPT(host_nccl_counter("ncclCommDeregister") == 1, "calls");
    KEPT(host_nccl_counter("ncclCommWindowDeregister") == 1, "calls");
    crunrt_group_memory_free(world, memory);
    KEPT(crunrt_group_register(world, NULL, 1, CRUNRT_REGISTER_LOCAL, &local) == -EINVAL, "NULL");
    KEPT(crunrt_group_memory_new(world, 0, &memory) == -EINVAL, "no bytes");
}

/* A rank that does not register a window makes the others time out. */
static void window_without_a_peer(void) {
    crunrt_group *g = make_group(500, NULL, 0);
    crunrt_registration *window = NULL;
    if (rank == 0) {
        float *memory = floats(16, 1);
        KEPT(crunrt_group_register(g, memory, 64, CRUNRT_REGISTER_SYMMETRIC, &window) ==
                 -ETIMEDOUT, "alone");
        KEPT(crunrt_group_barrier(g) == -EPIPE, "the group is broken");
        KEPT(crunrt_group_register(g, memory, 64, CRUNRT_REGISTER_LOCAL, &window) == -EPIPE,
             "broken");
        say_done();
    } else {
        stand_by(1);
    }
}

int main(void) {
    open_world(5000);
    configured_group();
    sum_of_products();
    registered_memory();
    window_without_a_peer();
    kept();
}
