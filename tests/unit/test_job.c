/* Tests of job_build(), which makes the job from the command line and environment variables: every
 * grammar, every default and every rule of torchrun. A job_world of the test's own replaces the
 * environment and the machine. */
#include "launcher/job.h"
#include "launcher/options/values.h"
#include "tests/lib/fake_environment.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t gpus;
static int gpu_status;

static uint32_t count_cpus(void *arg) {
    (void) arg;
    return 6;
}

static int count_gpus(void *arg, const char *visible, uint32_t *count, struct cr_error *err) {
    (void) arg;
    (void) visible;
    if (gpu_status < 0) return cr_fail(err, gpu_status, "broken driver");
    *count = gpus;
    return 0;
}

static enum numa_mode bound_mode;
static char bound_visible[64];

static int bind_workers(void *arg, enum numa_mode mode, const char *visible, uint32_t workers,
                        struct cr_cpu_mask *masks, struct cr_error *err) {
    (void) arg;
    if (workers > gpus) return cr_fail(err, -ENODEV, "too few GPUs");
    bound_mode = mode;
    (void) snprintf(bound_visible, sizeof(bound_visible), "%s", visible == NULL ? "-" : visible);
    for (uint32_t i = 0; i < workers; i++) cr_cpu_add(&masks[i], 10 + i);
    return 0;
}

static int draw(void *arg, unsigned char out[16]) {
    (void) arg;
    for (int i = 0; i < 16; i++) out[i] = (unsigned char) (i * 17);
    return 0;
}

static uint32_t accelerators[3]; /* by enum accelerator */

static uint32_t count_accelerators(void *arg, enum accelerator kind) {
    (void) arg;
    return accelerators[kind];
}

static const struct job_world world = {
    .accelerator_count = count_accelerators,
    .lookup = lookup, .cpu_count = count_cpus, .gpu_count = count_gpus, .bind = bind_workers,
    .random = draw};

static struct options o;
static struct job job;
static struct cr_error err;

/* Builds a job from `argv`. Parsing reorders argv and `o` points into it, so argv is first copied
 * to a static array. */
static int build(const char *const *argv) {
    static const char *kept[32];
    size_t n = 0;
    do kept[n] = argv[n];
    while (argv[n++] != NULL);
    cr_error_clear(&err);
    job_done(&job);
    ck_assert_int_eq(options_parse((char **) (void *) kept, lookup, NULL, &o, &err), 0);
    return job_build(&o, &world, &job, &err);
}

#define BUILD(...)    build((const char *const[]){"crun", __VA_ARGS__, "prog", NULL})
#define WITH_ENV(...) set_environment((const char *const[]){__VA_ARGS__, NULL})
#define FAILS(needle, ...)                                                                         \
    do {                                                                                           \
        ck_assert_int_lt(BUILD(__VA_ARGS__), 0);                                                   \
        ck_assert_msg(strstr(err.text, needle) != NULL, "'%s' not in: %s", needle, err.text);      \
    } while (0)

#define R job.agent.rendezvous

static void setup(void) {
    environment = NULL;
    gpus = 0;
    gpu_status = 0;
}

static void teardown(void) { job_done(&job); }

static int warned(const char *needle) {
    for (unsigned i = 0; i < job.warning_count; i++) {
        if (strstr(job.warnings[i], needle) != NULL) return 1;
    }
    return 0;
}

START_TEST(nothing_asked_for_is_one_worker_on_a_free_port) {
    ck_assert_int_eq(build((const char *const[]){"crun", "prog", NULL}), 0);
    ck_assert_uint_eq(R.local_world_size, 1);
    ck_assert_int_eq(R.standalone, 1);
    ck_assert(!R.loopback_only);
    ck_assert_uint_eq(R.endpoint.port, 0);
    ck_assert_str_eq(R.run_id, "00112233-4455-4677-8899-aabbccddeeff");
    ck_assert_str_eq(R.role, "default");
    ck_assert_uint_eq(R.max_nodes, 1);
    ck_assert_int_eq(R.join_timeout_ms, 900000);
    ck_assert_int_eq(R.last_call_timeout_ms, 30000);
    ck_assert_int_eq(R.skips_last_call, 1);
    ck_assert_uint_eq(job.agent.max_restarts, 0);
    ck_assert_int_eq(job.agent.stop_timeout_ms, 30000);
    ck_assert_int_eq(job.agent.shutdown_timeout_ms, 30000);
    ck_assert_int_eq(job.agent.rendezvous.stop_limit_ms, 35000);
    ck_assert_ptr_null(job.agent.log_dir);
    ck_assert_ptr_null(job.agent.console);
    ck_assert_int_eq(job.agent.set_omp_num_threads, 0);
    ck_assert_uint_eq(job.warning_count, 0);
    ck_assert_int_eq(sigismember(&job.signals, SIGTERM), 1);
    ck_assert_int_eq(sigismember(&job.signals, SIGUSR1), 0);
}
END_TEST

START_TEST(where_to_meet) {
    ck_assert_int_eq(BUILD("--master-port=29500"), 0);
    ck_assert_int_eq(R.standalone, 0);
    ck_assert_str_eq(R.backend, "static");
    ck_assert_str_eq(R.run_id, "none");
    ck_assert_str_eq(R.endpoint.host, "127.0.0.1");
    ck_assert_uint_eq(R.endpoint.port, 29500);
    ck_assert_int_eq(R.is_host, 1);
    ck_assert_int_eq(R.node_rank, 0);
    ck_assert(!R.endpoint_given);
    ck_assert_int_eq(BUILD("--rdzv-backend=c10d", "--rdzv-endpoint=n1:7"), 0);
    ck_assert(R.endpoint_given);
    ck_assert_int_eq(BUILD("--rdzv-backend=c10d"), 0);
    ck_assert(!R.endpoint_given);
    ck_assert_str_eq(R.endpoint.host, "localhost");
    ck_assert_uint_eq(R.endpoint.port, 29400);
    ck_assert_int_eq(R.node_rank, -1);
    ck_assert_int_eq(R.is_host, -1);
    ck_assert_int_eq(R.join_timeout_ms, 600000);
    ck_assert_int_eq(BUILD("--rdzv-endpoint=n1:7", "--rdzv-id=j"), 0);
    ck_assert_str_eq(R.backend, "static");
    ck_assert_str_eq(R.run_id, "j");
    ck_assert_uint_eq(R.endpoint.port, 7);
    ck_assert_int_eq(BUILD("--master-addr=[::1]", "--master-port=5"), 0);
    ck_assert_str_eq(R.endpoint.host, "::1");
    WITH_ENV("PET_MASTER_PORT=29501");
    ck_assert_int_eq(BUILD("--role=a"), 0);
    ck_assert_str_eq(R.backend, "static");
    ck_assert_uint_eq(R.endpoint.port, 29501);
    ck_assert_int_eq(BUILD("--standalone"), 0);
    ck_assert_int_eq(R.standalone, 1);
    ck_assert(R.loopback_only);
}
END_TEST

START_TEST(job_ids) {
    ck_assert_int_eq(BUILD("--rdzv-id=mine"), 0);
    /* --rdzv-id is used even if no other rendezvous option is given */
    ck_assert_str_eq(R.run_id, "mine");
    ck_assert_int_eq(BUILD("--standalone", "--rdzv-id=mine", "--rdzv-backend=static"), 0);
    ck_assert_str_eq(R.run_id, "00112233-4455-4677-8899-aabbccddeeff");
    ck_assert(warned("--rdzv-id='mine' has no effect"));
    ck_assert(warned("--rdzv-backend='static' has no effect"));
    ck_assert_int_eq(BUILD("--rdzv-id=", "--rdzv-backend=c10d"), 0);
    /* the 128 bits of the UUID above, in decimal */
    ck_assert_str_eq(R.run_id, "88962710305976587138789898786303743");
    ck_assert(warned("--rdzv-id is empty"));
}
END_TEST

START_TEST(worker_counts) {
    ck_assert_int_eq(BUILD("--nproc-per-node=cpu"), 0);
    ck_assert_uint_eq(R.local_world_size, 6);
    ck_assert_int_eq(BUILD("--nproc-per-node=auto"), 0);
    ck_assert_uint_eq(R.local_world_size, 6);
    gpus = 3;
    ck_assert_int_eq(BUILD("--nproc-per-node=auto"), 0);
    ck_assert_uint_eq(R.local_world_size, 3);
    ck_assert_int_eq(BUILD("--nproc-per-node=gpu"), 0);
    ck_assert_uint_eq(R.local_world_size, 3);
    gpus = 0;
    FAILS("CUDA is not available", "--nproc-per-node=gpu");
    WITH_ENV("CUDA_VISIBLE_DEVICES=-1");
    FAILS("CUDA_VISIBLE_DEVICES='-1' leaves no GPU", "--nproc-per-node=gpu");
    gpu_status = -ENODEV; /* a broken driver: "auto" must fail, and must not count CPUs instead */
    FAILS("broken driver", "--nproc-per-node=auto");
    FAILS("no XPU found", "--nproc-per-node=xpu");
    FAILS("'foo' is not a number of workers", "--nproc-per-node=foo");
    FAILS("--nproc-per-node: '0'", "--nproc-per-node=0");
    FAILS("'-1'", "--nproc-per-node=-1");
    FAILS("'4097'", "--nproc-per-node=4097");
    FAILS("'1.5'", "--nproc-per-node=1.5");
    FAILS("''", "--nproc-per-node=");
    WITH_ENV("PET_NPROC_PER_NODE=many");
    FAILS("PET_NPROC_PER_NODE: 'many'", "--role=a");
}
END_TEST

START_TEST(accelerators_of_other_vendors) {
    accelerators[ACCELERATOR_ASCEND] = 8;
    ck_assert_int_eq(BUILD("--nproc-per-node=npu"), 0);
    ck_assert_uint_eq(R.local_world_size, 8);
    ck_assert_int_eq(BUILD("--nproc-per-node=auto"), 0);
    ck_assert_uint_eq(R.local_world_size, 8);
    FAILS("'xpu': no XPU found", "--nproc-per-node=xpu");
    accelerators[ACCELERATOR_INTEL] = 2;
    ck_assert_int_eq(BUILD("--nproc-per-node=xpu"), 0);
    ck_assert_uint_eq(R.local_world_size, 2);
    FAILS("CUDA is not available", "--nproc-per-node=gpu");
    accelerators[ACCELERATOR_AMD] = 4;
    ck_assert_int_eq(BUILD("--nproc-per-node=gpu"), 0); /* torch.cuda counts AMD's GPUs */
    ck_assert_uint_eq(R.local_world_size, 4);
    ck_assert_int_eq(BUILD("--nproc-per-node=auto"), 0);
    ck_assert_uint_eq(R.local_world_size, 4);
    gpus = 3;
    ck_assert_int_eq(BUILD("--nproc-per-node=gpu"), 0);
    ck_assert_uint_eq(R.local_world_size, 3);
    accelerators[ACCELERATOR_ASCEND] = 0;
    FAILS("'npu': no NPU found", "--nproc-per-node=npu");
}
END_TEST

START_TEST(threads_rule) {
    ck_assert_int_eq(BUILD("--nproc-per-node=2"), 0);
    ck_assert_int_eq(job.agent.set_omp_num_threads, 1);
    ck_assert(warned("OMP_NUM_THREADS"));
    WITH_ENV("OMP_NUM_THREADS=");
    ck_assert_int_eq(BUILD("--nproc-per-node=2"), 0);
    ck_assert_int_eq(job.agent.set_omp_num_threads, 0); /* an empty variable counts as set */
    ck_assert_uint_eq(job.warning_count, 0);
}
END_TEST

START_TEST(virtual_local_rank_needs_a_gpu_for_each) {
    WITH_ENV("CUDA_VISIBLE_DEVICES=4,5", "OMP_NUM_THREADS=1");
    ck_assert_int_eq(BUILD("--virtual-local-rank", "--nproc-per-node=2"), 0);
    ck_assert_int_eq(job.agent.virtual_local_rank, 1);
    FAILS("has 2 entries for 3 workers", "--virtual-local-rank", "--nproc-per-node=3");
}
END_TEST

START_TEST(virtual_local_rank_by_other_variables) {
    WITH_ENV("CUDA_VISIBLE_DEVICES=4", "HIP_VISIBLE_DEVICES=1,2", "OMP_NUM_THREADS=1");
    ck_assert_int_eq(BUILD("--virtual-local-rank", "--nproc-per-node=2"), 0);
    FAILS("HIP_VISIBLE_DEVICES='1,2' has 2 entries for 3", "--virtual-local-rank",
          "--nproc-per-node=3");
    WITH_ENV("ZE_AFFINITY_MASK=0", "OMP_NUM_THREADS=1");
    FAILS("ZE_AFFINITY_MASK='0' has 1 entries", "--virtual-local-rank", "--nproc-per-node=2");
}
END_TEST

START_TEST(nodes) {
    FAILS("'2:1'", "--nnodes=2:1");
    FAILS("'0'", "--nnodes=0");
    FAILS("'1:2:3'", "--nnodes=1:2:3");
    FAILS("'abc'", "--nnodes=abc");
    FAILS("''", "--nnodes=");
    FAILS("':2'", "--nnodes=:2");
    ck_assert_int_eq(BUILD("--nnodes=1:1"), 0);
    ck_assert_int_eq(BUILD("--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:1"), 0);
    ck_assert_uint_eq(R.min_nodes, 2);
    ck_assert_uint_eq(R.max_nodes, 4);
    ck_assert_int_eq(R.node_rank, -1);
    ck_assert_int_eq(R.standalone, 0);
    /* the backend static waits for all 3 nodes, although --nnodes allows 1 */
    ck_assert_int_eq(BUILD("--nnodes=1:3", "--node-rank=2"), 0);
    ck_assert_str_eq(R.backend, "static");
    ck_assert_uint_eq(R.min_nodes, 3);
    ck_assert_int_eq(R.node_rank, 2);
    ck_assert_int_eq(R.is_host, 0);
    FAILS("--node-rank: 3 is not below the number of nodes", "--nnodes=3", "--node-rank=3");
}
END_TEST

START_TEST(workers_are_bound_near_their_gpus) {
    static const struct {
        const char *option;
        enum numa_mode mode;
    } modes[] = {{"--numa-binding=node", NUMA_NODE},
                 {"--numa-binding=socket", NUMA_SOCKET},
                 {"--numa-binding=exclusive", NUMA_EXCLUSIVE},
                 {"--numa-binding=core-complex", NUMA_CORE_COMPLEX}};
    gpus = 4;
    ck_assert_int_eq(BUILD("--nproc-per-node=2"), 0);
    ck_assert_ptr_null(job.agent.cpus);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(BUILD(modes[i].option, "--nproc-per-node=2"), 0);
        ck_assert_int_eq(bound_mode, modes[i].mode);
        ck_assert_str_eq(bound_visible, "-");
        for (uint32_t rank = 0; rank < 2; rank++) {
            ck_assert_uint_eq(cr_cpu_count(&job.agent.cpus[rank]), 1);
            ck_assert(cr_cpu_has(&job.agent.cpus[rank], 10 + rank));
        }
    }
    FAILS("--numa-binding: too few GPUs", "--numa-binding=node", "--nproc-per-node=5");
    FAILS("--numa-binding: 'numa'", "--numa-binding=numa");
}
END_TEST

START_TEST(what_is_not_available_is_refused_by_name) {
    FAILS("--rdzv-backend: 'foo'", "--rdzv-backend=foo");
    FAILS("--logs-specs", "--logs-specs=plugin");
    FAILS("store_type", "--rdzv-conf=store_type=file");
}
END_TEST

START_TEST(endpoints) {
    FAILS("port of endpoint", "--rdzv-backend=c10d", "--rdzv-endpoint=h:99999");
    FAILS("--rdzv-endpoint: the host", "--rdzv-backend=c10d", "--rdzv-endpoint=a b:1");
    FAILS("port is missing in endpoint: 'h'", "--rdzv-endpoint=h");
    FAILS("--master-port: 'x'", "--master-port=x");
    FAILS("--master-port: '65536'", "--master-port=65536");
    FAILS("--master-addr", "--master-port=1", "--master-addr=a b");
}
END_TEST

/* ---- the backend etcd ---- */

START_TEST(several_nodes_at_localhost) {
    static const char *const machines[] = {"SLURM_NNODES=2", NULL};
    static const char *const one_step[] = {"SLURM_NNODES=2", "SLURM_STEP_NUM_NODES=1", NULL};
    ck_assert_int_eq(BUILD("--nnodes=2", "--rdzv-backend=c10d"), 0);
    ck_assert_uint_eq(job.warning_count, 1);
    ck_assert_ptr_nonnull(strstr(job.warnings[0], "nodes meet at 'localhost'"));
    ck_assert_int_eq(BUILD("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:7"), 0);
    ck_assert_uint_eq(job.warning_count, 0);
    ck_assert_int_eq(BUILD("--nnodes=1", "--rdzv-backend=c10d"), 0);
    ck_assert_uint_eq(job.warning_count, 0);
    set_environment(machines);
    FAILS("2 nodes cannot meet at 'localhost'", "--nnodes=2", "--rdzv-backend=c10d");
    FAILS("Slurm has given this job 2 machines", "--nnodes=2", "--master-port=29500");
    ck_assert_int_eq(BUILD("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n1:7"), 0);
    set_environment(one_step);
    ck_assert_int_eq(BUILD("--nnodes=2", "--rdzv-backend=c10d"), 0);
}
END_TEST

START_TEST(a_default_node_rank_is_not_a_given_one) {
    ck_assert_int_eq(BUILD("--nnodes=2", "--master-addr=n1", "--master-port=5"), 0);
    ck_assert(R.node_rank == 0 && !R.node_rank_given);
    ck_assert_int_eq(
        BUILD("--nnodes=2", "--master-addr=n1", "--master-port=5", "--node-rank=0"), 0);
    ck_assert(R.node_rank == 0 && R.node_rank_given);
}
END_TEST

#define ETCD "--rdzv-backend=etcd", "--nnodes=2"

START_TEST(etcd_endpoints) {
    const struct rendezvous_etcd *e = &job.agent.rendezvous.etcd;
    ck_assert_int_eq(BUILD(ETCD, "--rdzv-endpoint=a,b:23, [::1]:24"), 0);
    ck_assert_uint_eq(e->endpoint_count, 3);
    ck_assert_str_eq(e->endpoints[0].host, "a");
    ck_assert_uint_eq(e->endpoints[0].port, 2379);
    ck_assert_uint_eq(e->endpoints[1].port, 23);
    ck_assert_str_eq(e->endpoints[2].host, "::1");
    ck_assert_int_eq(e->https, 0);
    ck_assert_int_eq(e->is_candidate, -1);
    ck_assert_str_eq(e->prefix, "crun/rendezvous/");
    ck_assert_int_eq(BUILD(ETCD, "--rdzv-endpoint=https://a:23/,b"), 0);
    ck_assert_uint_eq(e->endpoint_count, 2);
    ck_assert_int_eq(e->https, 1);
    ck_assert_int_eq(BUILD(ETCD), 0);
    ck_assert_str_eq(e->endpoints[0].host, "localhost");
    FAILS("mixes http and https", ETCD, "--rdzv-endpoint=https://a,http://b");
    FAILS("mixes http and https", ETCD, "--rdzv-endpoint=http://b", "--rdzv-conf=protocol=https");
    FAILS("more than 8 endpoints", ETCD, "--rdzv-endpoint=1,2,3,4,5,6,7,8,9");
    FAILS("ftp", ETCD, "--rdzv-endpoint=ftp://a");
}
END_TEST

START_TEST(etcd_conf) {
    const struct rendezvous_etcd *e = &job.agent.rendezvous.etcd;
    ck_assert_int_eq(BUILD(ETCD, "--rdzv-conf=protocol=https,ca_cert=/a,ssl_cert=/b,"
                                 "ssl_cert_key=/c"), 0);
    ck_assert(e->https == 1 && strcmp(e->ca_cert, "/a") == 0);
    ck_assert(strcmp(e->ssl_cert, "/b") == 0 && strcmp(e->ssl_cert_key, "/c") == 0);
    ck_assert_int_eq(BUILD(ETCD, "--rdzv-conf=cacert=/a,cert=/b,key=/c,user=u,password_file=/p,"
                                 "candidate=false,etcd_prefix=/x/"), 0);
    ck_assert(strcmp(e->ca_cert, "/a") == 0 && strcmp(e->ssl_cert, "/b") == 0);
    ck_assert(strcmp(e->user, "u") == 0 && strcmp(e->password_file, "/p") == 0);
    ck_assert(e->is_candidate == 0 && strcmp(e->prefix, "/x/") == 0);
    FAILS("protocol", ETCD, "--rdzv-conf=protocol=ftp");
}
END_TEST

START_TEST(rdzv_conf) {
    ck_assert_int_eq(BUILD("--rdzv-backend=c10d",
                           "--rdzv-conf= join_timeout = 3 ,last_call_timeout=0.5,is_host=T,"
                           "keep_alive_max_attempt=7,read_timeout=2"),
                     0);
    ck_assert_int_eq(R.join_timeout_ms, 3000);
    ck_assert_int_eq(R.skips_last_call, 0);
    ck_assert_int_eq(R.last_call_timeout_ms, 500);
    ck_assert_int_eq(R.is_host, 1);
    ck_assert_uint_eq(R.keep_alive_max_attempt, 7);
    ck_assert_int_eq(R.read_timeout_ms, 2000);
    ck_assert_int_eq(BUILD("--rdzv-conf=change_notice=0"), 0);
    ck_assert_int_eq(R.change_notice_ms, 0);
    ck_assert_int_eq(BUILD("--rdzv-conf=colour=blue"), 0);
    ck_assert(warned("'colour'"));
    FAILS("the key 'a' has no value", "--rdzv-conf=a");
    FAILS("the key 'a' has no value", "--rdzv-conf=a= ");
    FAILS("'=1' has no key", "--rdzv-conf==1");
    FAILS("has no key", "--rdzv-conf=join_timeout=1,");
    FAILS("join_timeout: '0'", "--rdzv-conf=join_timeout=0");
    FAILS("join_timeout: 'x'", "--rdzv-conf=join_timeout=x");
    FAILS("join_timeout: 'inf'", "--rdzv-conf=join_timeout=inf");
    FAILS("is_host: 'maybe'", "--rdzv-conf=is_host=maybe");
    FAILS("keep_alive_max_attempt: '0'", "--rdzv-conf=keep_alive_max_attempt=0");
    FAILS("backend: it has an option of its own", "--rdzv-conf=backend=c10d");
}
END_TEST

START_TEST(the_token_file) {
    ck_assert_int_eq(BUILD("--rdzv-conf=auth=required"), 0);
    ck_assert_int_eq(R.auth, RENDEZVOUS_AUTH_REQUIRED);
    ck_assert_ptr_null(R.token_file);
    ck_assert_int_eq(BUILD("--rdzv-conf=auth=off"), 0);
    ck_assert_int_eq(R.auth, RENDEZVOUS_AUTH_OFF);
    FAILS("auth: 'maybe'", "--rdzv-conf=auth=maybe");
    WITH_ENV("CRUN_RDZV_TOKEN_FILE=/a");
    ck_assert_int_eq(BUILD("--rdzv-conf=auth=auto"), 0);
    ck_assert_int_eq(R.auth, RENDEZVOUS_AUTH_AUTO);
    ck_assert_str_eq(R.token_file, "/a");
    WITH_ENV("CRUN_RDZV_TOKEN_FILE=/a", "PET_RDZV_TOKEN_FILE=/b");
    ck_assert_int_eq(BUILD("--nnodes=1"), 0);
    ck_assert_str_eq(R.token_file, "/b");
    ck_assert_int_eq(BUILD("--rdzv-token-file=/c"), 0);
    ck_assert_str_eq(R.token_file, "/c");
}
END_TEST

START_TEST(stream_masks) {
    ck_assert_int_eq(BUILD("--nproc-per-node=12", "-r", "3", "-t", "0:1,11:2,99:3"), 0);
    for (int i = 0; i < 12; i++) ck_assert_uint_eq(job.agent.redirects[i], 3);
    ck_assert_uint_eq(job.agent.tee[0], 1);
    ck_assert_uint_eq(job.agent.tee[1], 0);
    ck_assert_uint_eq(job.agent.tee[11], 2); /* a rank of two digits; torchrun accepts only one
                                              * digit */
    static const char *const wrong[] = {"4",    "",    "-1",      "33",
                                        "0:4",  "0:",  ":1",      "0:1,",
                                        "0 :1", "a:1", "0:1;1:1", "99999999999999999999:1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        FAILS("--redirects: '", "--redirects", wrong[i]);
    }
}
END_TEST

START_TEST(local_ranks_filter) {
    ck_assert_int_eq(BUILD("--nproc-per-node=3", "--local-ranks-filter= 0 ,2,77"), 0);
    ck_assert_uint_eq(job.agent.console[0], 1);
    ck_assert_uint_eq(job.agent.console[1], 0);
    ck_assert_uint_eq(job.agent.console[2], 1);
    /* an empty list is no filter */
    ck_assert_int_eq(BUILD("--nproc-per-node=3", "--local-ranks-filter="), 0);
    ck_assert_ptr_null(job.agent.console);
    FAILS("--local-ranks-filter: 'a'", "--local-ranks-filter=a");
    FAILS("--local-ranks-filter", "--local-ranks-filter=0,");
}
END_TEST

START_TEST(timer_watchdog) {
    ck_assert_int_eq(BUILD("--nproc-per-node=1"), 0);
    ck_assert_ptr_null(job.agent.timer_file);
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=0", "TORCHELASTIC_TIMER_FILE=/t");
    ck_assert_int_eq(BUILD("--nproc-per-node=1"), 0);
    ck_assert_ptr_null(job.agent.timer_file);
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_TIMER_FILE=/t");
    ck_assert_int_eq(BUILD("--nproc-per-node=1"), 0);
    ck_assert_str_eq(job.agent.timer_file, "/t");
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=1");
    ck_assert_int_eq(BUILD("--nproc-per-node=1"), 0);
    ck_assert_str_eq(job.agent.timer_file,
                     "/tmp/watchdog_timer_00112233-4455-4677-8899-aabbccddeeff");
    WITH_ENV("TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_TIMER_FILE=", "TMPDIR=/scratch");
    ck_assert_int_eq(BUILD("--nproc-per-node=1"), 0);
    ck_assert_str_eq(job.agent.timer_file,
                     "/scratch/watchdog_timer_00112233-4455-4677-8899-aabbccddeeff");
}
END_TEST

START_TEST(duplicate_filters) {
    ck_assert_int_eq(BUILD("--duplicate-stdout-filters=apple,a,,b", "--duplicate-stderr-filters="),
                     0);
    ck_assert_str_eq(job.agent.duplicate_stdout_filters[0], "apple");
    ck_assert_str_eq(job.agent.duplicate_stdout_filters[1], "a,b");
    ck_assert_ptr_null(job.agent.duplicate_stdout_filters[2]);
    /* the empty text is in every line */
    ck_assert_str_eq(job.agent.duplicate_stderr_filters[0], "");
    ck_assert_ptr_null(job.agent.duplicate_stderr_filters[1]);
    ck_assert_int_eq(BUILD("--duplicate-stdout-filters=,,,a,"), 0);
    ck_assert_str_eq(job.agent.duplicate_stdout_filters[0], ",");
    ck_assert_str_eq(job.agent.duplicate_stdout_filters[1], "a");
    ck_assert_str_eq(job.agent.duplicate_stdout_filters[2], "");
    ck_assert_ptr_null(job.agent.duplicate_stdout_filters[3]);
}
END_TEST

START_TEST(ending) {
    ck_assert_int_eq(
        BUILD("--shutdown-timeout=0", "--max-restarts=2", "--signals-to-handle= SIGUSR1 ,SIGNOPE"),
        0);
    ck_assert_int_eq(job.agent.shutdown_timeout_ms, 0);
    ck_assert_uint_eq(job.agent.max_restarts, 2);
    ck_assert_uint_eq(R.max_restarts, 2);
    ck_assert_int_eq(sigismember(&job.signals, SIGUSR1), 1);
    ck_assert_int_eq(sigismember(&job.signals, SIGTERM), 0);
    ck_assert(warned("SIGNOPE"));
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=5");
    ck_assert_int_eq(BUILD("--role=a"), 0);
    ck_assert_int_eq(job.agent.shutdown_timeout_ms, 5000);
    WITH_ENV("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon");
    FAILS("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: 'soon'", "--role=a");
    FAILS("--shutdown-timeout: '-1'", "--shutdown-timeout=-1");
    FAILS("--max-restarts: '-1'", "--max-restarts=-1", "--shutdown-timeout=1");
    FAILS("--max-restarts: 'x'", "--max-restarts=x", "--shutdown-timeout=1");
    FAILS("--monitor-interval: '0'", "--monitor-interval=0", "--shutdown-timeout=1");
    FAILS("--start-method: 'foo'", "--start-method=foo", "--shutdown-timeout=1");
    FAILS("'SIGKILL' cannot be handled", "--signals-to-handle=SIGTERM,SIGKILL",
          "--shutdown-timeout=1");
    FAILS("--event-log-handler: 'syslog'", "--event-log-handler=syslog", "--shutdown-timeout=1");
}
END_TEST

START_TEST(texts_from_the_environment) {
    WITH_ENV("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[${rank}]",
             "TORCHELASTIC_ERROR_FILE=/x/e.json");
    ck_assert_int_eq(BUILD("--log-dir=/dev/null", "--event-log-handler=console"), 0);
    ck_assert_str_eq(job.agent.log_line_prefix_template, "[${rank}]");
    ck_assert_str_eq(job.agent.own_error_file, "/x/e.json");
    ck_assert_int_eq(
        BUILD("--log-line-prefix-template=", "--log-dir=/dev/null", "--event-log-handler=console"),
        0);
    ck_assert_str_eq(job.agent.log_line_prefix_template, "[${rank}]");
    ck_assert_int_eq(
        BUILD("--log-line-prefix-template=x", "--log-dir=/dev/null", "--event-log-handler=console"),
        0);
    ck_assert_str_eq(job.agent.log_line_prefix_template, "x");
    ck_assert_str_eq(job.agent.log_dir, "/dev/null");
    ck_assert_int_eq(job.agent.console_events, 1);
    WITH_ENV("TORCHELASTIC_ERROR_FILE=");
    ck_assert_int_eq(BUILD("--log-dir="), 0);
    ck_assert_ptr_null(job.agent.own_error_file);
    ck_assert_ptr_null(job.agent.log_dir);
    char role[200];
    memset(role, 'r', sizeof(role));
    role[199] = '\0';
    FAILS("--role: the name is too long", "--role", role);
}
END_TEST

int main(void) {
    Suite *s = suite_create("job");
    TCase *t = tcase_create("build");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_asked_for_is_one_worker_on_a_free_port);
    tcase_add_test(t, where_to_meet);
    tcase_add_test(t, several_nodes_at_localhost);
    tcase_add_test(t, a_default_node_rank_is_not_a_given_one);
    tcase_add_test(t, job_ids);
    tcase_add_test(t, worker_counts);
    tcase_add_test(t, accelerators_of_other_vendors);
    tcase_add_test(t, virtual_local_rank_by_other_variables);
    tcase_add_test(t, threads_rule);
    tcase_add_test(t, virtual_local_rank_needs_a_gpu_for_each);
    tcase_add_test(t, nodes);
    tcase_add_test(t, workers_are_bound_near_their_gpus);
    tcase_add_test(t, what_is_not_available_is_refused_by_name);
    tcase_add_test(t, endpoints);
    tcase_add_test(t, rdzv_conf);
    tcase_add_test(t, the_token_file);
    tcase_add_test(t, etcd_endpoints);
    tcase_add_test(t, etcd_conf);
    tcase_add_test(t, stream_masks);
    tcase_add_test(t, local_ranks_filter);
    tcase_add_test(t, timer_watchdog);
    tcase_add_test(t, duplicate_filters);
    tcase_add_test(t, ending);
    tcase_add_test(t, texts_from_the_environment);
    suite_add_tcase(s, t);
    return run_suite(s);
}
