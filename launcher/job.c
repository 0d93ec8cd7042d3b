/* Converts the texts of the options into a job. The parts of this file are: the workers, the
 * rendezvous, the logs, restarting and ending. The table simple_values converts the options whose
 * value is only a number, a time or a word. Each other option has a function. Each error text
 * begins with the name of the option. */
#include "launcher/job.h"

#include "agent/health/health.h"
#include "agent/watchdog/log_rules.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text/parse.h"
#include "launcher/options/options.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define C10D_PORT      29400
#define STOP_MS        30000
#define DEATH_MS       5000   /* longest time in ms from SIGKILL until all processes have ended */
#define LAST_CALL_MS   30000
#define HANG_NOTICE_MS 600000 /* time in ms after which workers that do nothing are reported */
#define TRAINJOB_INTERVAL_MS 30000 /* time in ms from one report to TrainJob to the next */
#define STATIC_JOIN_MS 900000 /* torchrun's default join timeout for the static backend */

/* The parameters of job_build(), which it passes to the functions that build parts of the job. */
struct builder {
    const struct options *options;
    const struct job_world *world;
    struct job *job;
    struct cr_error *err; /* never NULL */
};

struct job_block {
    struct job_block *next;
    char bytes[];
};

/* ---- helpers ---- */

static const char *text_of(const struct builder *b, enum option_id id) {
    return b->options->value[id];
}

static int is_on(const struct builder *b, enum option_id id) { return text_of(b, id) != NULL; }

static int is_given(const struct builder *b, enum option_id id) {
    return b->options->source[id] != CR_FROM_DEFAULT;
}

static const char *variable(const struct builder *b, const char *name) {
    return b->world->lookup(b->world->arg, name);
}

/* If `rc` is negative, puts the name of the option in front of the error text; or the name of the
 * environment variable, if the option's value came from there. Returns `rc`. */
static int name_option(const struct builder *b, enum option_id id, int rc) {
    char label[CR_OPTION_LABEL_MAX];
    if (rc < 0) (void) cr_wrap(b->err, "%s", option_label(b->options, id, label));
    return rc;
}

/* Returns zeroed memory of `size` bytes, which job_done() frees; or NULL, and sets the error. */
static void *allocate(struct builder *b, size_t size) {
    struct job_block *block = calloc(1, sizeof(*block) + size);
    if (block == NULL) {
        (void) cr_fail(b->err, -ENOMEM, "no memory left to describe the job");
        return NULL;
    }
    block->next = b->job->memory;
    b->job->memory = block;
    return block->bytes;
}

__attribute__((format(printf, 2, 3))) static void warn(struct builder *b, const char *fmt, ...) {
    if (b->job->warning_count == JOB_WARNINGS_MAX) return;
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) >= 0) b->job->warnings[b->job->warning_count++] = text;
    va_end(ap);
}

/* ---- refusing options of torchrun that crun does not have ---- */

static int refuse(struct builder *b, enum option_id id, const char *why) {
    return name_option(b, id, cr_fail(b->err, -ENOTSUP, "'%.100s' %s", text_of(b, id), why));
}

static int refuse_unavailable(struct builder *b) {
    if (text_of(b, OPTION_LOGS_SPECS) != NULL) {
        return refuse(b, OPTION_LOGS_SPECS,
                      "names a Python plug-in, which a native launcher cannot load; use --log-dir, "
                      "--redirects and --tee");
    }
    return 0;
}

/* ---- options that are only a number, a time or a word ---- */

enum grammar { COUNT, SECONDS, SECONDS_OR_ZERO, WORD };

/* INTO_JOB(field) is the offset of the field of struct job that receives an option's value. With
 * NOWHERE instead of an offset, read_simple_values() checks the value but does not store it,
 * because crun does not need the value, or because another function reads its text. */
#define INTO_JOB(field) offsetof(struct job, field)
#define NOWHERE         SIZE_MAX

static const struct simple_value {
    enum option_id id;
    enum grammar grammar;
    /* INTO_JOB() or NOWHERE. For COUNT the field is a uint32_t; for SECONDS and SECONDS_OR_ZERO an
     * int64_t, in milliseconds. */
    size_t offset;
    /* For WORD: the words that the option accepts, separated by blanks. For COUNT: what an error
     * text calls the value, for example "a port". */
    const char *text;
} simple_values[] = {
    {OPTION_MAX_RESTARTS, COUNT, INTO_JOB(agent.max_restarts), "a number of restarts"},
    {OPTION_MONITOR_INTERVAL, SECONDS, NOWHERE, NULL},
    {OPTION_SHUTDOWN_TIMEOUT, SECONDS_OR_ZERO, INTO_JOB(agent.shutdown_timeout_ms), NULL},
    {OPTION_PREEMPTION_NOTICE, SECONDS_OR_ZERO, INTO_JOB(preemption_notice_ms), NULL},
    {OPTION_STEP_TIMEOUT, SECONDS_OR_ZERO, INTO_JOB(agent.step_timeout_ms), NULL},
    {OPTION_HANG_TIMEOUT, SECONDS_OR_ZERO, INTO_JOB(agent.hang_timeout_ms), NULL},
    {OPTION_HEALTH_TIMEOUT, SECONDS, INTO_JOB(agent.health_timeout_ms), NULL},
    {OPTION_PAIR_TIMEOUT, SECONDS, INTO_JOB(agent.pair_timeout_ms), NULL},
    {OPTION_LEFTOVERS, WORD, NOWHERE, "detached end keep"},
    {OPTION_HANG_WHEN, WORD, NOWHERE, "idle silent"},
    {OPTION_EXIT_CODES, WORD, NOWHERE, "torchrun distinct"},
    {OPTION_START_METHOD, WORD, NOWHERE, "spawn fork forkserver"},
    {OPTION_RDZV_BACKEND, WORD, NOWHERE, "c10d static etcd-v2 etcd"},
    {OPTION_EVENT_LOG_HANDLER, WORD, NOWHERE, "null console"},
    {OPTION_NUMA_BINDING, WORD, NOWHERE, NUMA_MODES},
    {OPTION_SCHEDULER, WORD, NOWHERE, "auto none show"},
};

static int read_simple_value(struct builder *b, const struct simple_value *v) {
    const char *text = text_of(b, v->id);
    int64_t nowhere = 0;
    void *to = v->offset == NOWHERE ? &nowhere : (void *) ((char *) b->job + v->offset);
    if (text == NULL) return 0;
    switch (v->grammar) {
    case COUNT: return value_count(text, v->text, 0, INT32_MAX, to, b->err);
    case SECONDS: return value_seconds(text, 0, to, b->err);
    case SECONDS_OR_ZERO: return value_seconds(text, 1, to, b->err);
    case WORD: return value_word(text, v->text, b->err);
    }
    return 0;
}

static int read_simple_values(struct builder *b) {
    for (size_t i = 0; i < CR_ARRAY_LEN(simple_values); i++) {
        int rc = read_simple_value(b, &simple_values[i]);
        if (rc < 0) return name_option(b, simple_values[i].id, rc);
    }
    return 0;
}

/* ---- workers ---- */

static int fail_nproc(struct builder *b, const char *text) {
    return cr_fail(b->err, -EINVAL,
                   "'%.200s' is not a number of workers; give 1 to %d, or cpu, gpu, xpu, npu, auto",
                   text,
                   AGENT_WORKERS_MAX);
}

static int count_gpus(struct builder *b, uint32_t *count) {
    return b->world->gpu_count(b->world->arg, variable(b, "CUDA_VISIBLE_DEVICES"), count, b->err);
}

static uint32_t count_accelerators(const struct builder *b, enum accelerator kind) {
    const struct job_world *world = b->world;
    return world->accelerator_count == NULL ? 0 : world->accelerator_count(world->arg, kind);
}

static int fail_no_gpu(struct builder *b) {
    const char *list = variable(b, "CUDA_VISIBLE_DEVICES");
    if (list != NULL) {
        return cr_fail(b->err, -ENODEV,
                       "'gpu': CUDA is not available: CUDA_VISIBLE_DEVICES='%.200s' leaves no GPU; "
                       "correct it, or give a number or cpu",
                       list);
    }
    return cr_fail(b->err, -ENODEV,
                   "'gpu': CUDA is not available: no NVIDIA GPU found by NVML, in /dev or in "
                   "/proc/driver/nvidia, and no AMD GPU in /sys/class/kfd that is visible; give a "
                   "number or cpu");
}

/* Stores in *out the number of devices that `text`, the value of --nproc-per-node, means. "gpu"
 * means the devices that torch.cuda counts: NVIDIA's GPUs or, if there are none, AMD's GPUs. "auto"
 * means the first of these kinds that the machine has: NVIDIA's GPUs, AMD's GPUs, Intel's GPUs,
 * Ascend's NPUs, CPUs. Returns 0; or a negative errno, and sets the error. */
static int count_devices(struct builder *b, const char *text, uint32_t *out) {
    bool is_auto = strcmp(text, "auto") == 0, is_gpu = strcmp(text, "gpu") == 0;
    int rc = is_auto || is_gpu ? count_gpus(b, out) : 0;
    if (rc < 0 || *out > 0) return rc;
    if (is_auto || is_gpu) *out = count_accelerators(b, ACCELERATOR_AMD);
    if (is_gpu) return *out > 0 ? 0 : fail_no_gpu(b);
    if (*out == 0 && strcmp(text, "npu") != 0) *out = count_accelerators(b, ACCELERATOR_INTEL);
    if (*out == 0 && strcmp(text, "xpu") != 0) *out = count_accelerators(b, ACCELERATOR_ASCEND);
    if (*out == 0 && is_auto) *out = b->world->cpu_count(b->world->arg);
    if (*out > 0) return 0;
    int is_npu = text[0] == 'n';
    return cr_fail(b->err, -ENODEV,
                   "'%s': no %s found: there is no %s that %s leaves visible; give a number or cpu",
                   text, is_npu ? "NPU" : "XPU",
                   is_npu ? "/dev/davinci*" : "Intel GPU with a render node in /dev/dri",
                   is_npu ? "ASCEND_RT_VISIBLE_DEVICES" : "ZE_AFFINITY_MASK");
}

static int count_workers(struct builder *b, const char *text, uint32_t *out) {
    *out = 0;
    if (strcmp(text, "cpu") == 0) return *out = b->world->cpu_count(b->world->arg), 0;
    if (value_word(text, "gpu auto xpu npu", NULL) == 0) return count_devices(b, text, out);
    if (value_count(text, "", 1, AGENT_WORKERS_MAX, out, b->err) < 0) return fail_nproc(b, text);
    return 0;
}

static void decide_threads(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    uint32_t n = a->rendezvous.local_world_size;
    if (n <= 1 || variable(b, "OMP_NUM_THREADS") != NULL) return;
    a->set_omp_num_threads = 1;
    warn(b,
         "OMP_NUM_THREADS is not set: setting it to 1 for each of the %u workers, so that they "
         "do not fight for CPUs; set it yourself for the best speed",
         n);
}

/* Checks that the list in the variable `name` has at least one entry for each worker. Returns 0; or
 * -EINVAL, and sets the error. */
static int check_visible(struct builder *b, const char *name) {
    const char *list = variable(b, name);
    uint32_t n = b->job->agent.rendezvous.local_world_size, entries = 1;
    for (const char *at = list; *at != '\0'; at++) entries += *at == ',';
    if (entries >= n) return 0;
    return name_option(b, OPTION_VIRTUAL_LOCAL_RANK,
                       cr_fail(b->err, -EINVAL,
                               "%s='%.200s' has %u entries for %u workers; list one GPU for each, "
                               "or lower --nproc-per-node",
                               name, list, entries, n));
}

/* Stores whether --virtual-local-rank is given. With this option, worker i gets only entry i of
 * each variable that lists the visible devices, such as CUDA_VISIBLE_DEVICES. So, if the option is
 * given, the function checks that each such variable that is set has an entry for each worker.
 * CUDA_VISIBLE_DEVICES is not checked if HIP_VISIBLE_DEVICES is set, which replaces it, as in
 * torchrun. */
static int check_virtual(struct builder *b) {
    static const char *const names[] = AGENT_VISIBLE_VARIABLES;
    b->job->agent.virtual_local_rank = is_on(b, OPTION_VIRTUAL_LOCAL_RANK);
    if (!b->job->agent.virtual_local_rank) return 0;
    const char *hip = variable(b, names[AGENT_VISIBLE_HIP]);
    for (int i = 0; i < AGENT_VISIBLE_COUNT; i++) {
        const char *list = variable(b, names[i]);
        bool is_cuda = i == AGENT_VISIBLE_CUDA;
        if (list == NULL || (list[0] == '\0' && !is_cuda)) continue;
        if (is_cuda && hip != NULL && hip[0] != '\0') continue;
        int rc = check_visible(b, names[i]);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Chooses the CPUs of each worker if --numa-binding is given. job_build() calls this last, because
 * it reads hundreds of files of sysfs: a mistake in another option is reported before that
 * delay. */
static int build_binding(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    const char *name = text_of(b, OPTION_NUMA_BINDING);
    enum numa_mode mode = NUMA_NODE;
    if (name == NULL) return 0;
    if (strcmp(name, "socket") == 0) mode = NUMA_SOCKET;
    if (strcmp(name, "exclusive") == 0) mode = NUMA_EXCLUSIVE;
    if (strcmp(name, "core-complex") == 0) mode = NUMA_CORE_COMPLEX;
    uint32_t n = a->rendezvous.local_world_size;
    struct cr_cpu_mask *masks = allocate(b, n * sizeof(*masks));
    if (masks == NULL) return -ENOMEM;
    const char *visible = variable(b, "CUDA_VISIBLE_DEVICES");
    int rc = b->world->bind(b->world->arg, mode, visible, n, masks, b->err);
    a->cpus = masks;
    return rc < 0 ? name_option(b, OPTION_NUMA_BINDING, rc) : 0;
}

static int check_role(struct builder *b, const char *role) {
    if (strlen(role) < RENDEZVOUS_ROLE_MAX) return 0;
    return cr_fail(b->err, -ENAMETOOLONG, "the name is too long; give at most %d bytes",
                   RENDEZVOUS_ROLE_MAX - 1);
}

static int read_on_failure(struct builder *b, const char *text, struct agent_program *out) {
    out->restarts = 3;
    if (strncmp(text, "alone:", 6) == 0) {
        out->on_failure = AGENT_RESTARTS_ALONE;
        return value_count(text + 6, "a number of restarts", 1, INT32_MAX, &out->restarts, b->err);
    }
    if (strcmp(text, "alone") == 0) out->on_failure = AGENT_RESTARTS_ALONE;
    else if (strcmp(text, "end") == 0) out->on_failure = AGENT_ENDS_JOB;
    else if (strcmp(text, "all") != 0) {
        return cr_fail(b->err, -EINVAL, "'%.200s' is none of all, alone, alone:N, end", text);
    }
    return 0;
}

/* Reads the options of a program behind a ":". `number` is its index in the job's programs; the
 * program before the first ":" has the index 0. */
static int build_further(struct builder *b, unsigned number) {
    const struct program_line *line = &b->job->lines[number];
    struct agent_program *p = &b->job->programs[number];
    *p = (struct agent_program){.role = line->role, .is_service = line->is_service};
    int rc = count_workers(b, line->nproc, &p->workers);
    if (rc < 0) (void) cr_wrap(b->err, "--nproc-per-node");
    if (rc == 0 && (rc = check_role(b, line->role)) < 0) (void) cr_wrap(b->err, "--role");
    if (rc == 0 && (rc = read_on_failure(b, line->on_failure, p)) < 0) {
        (void) cr_wrap(b->err, "--on-failure");
    }
    return rc < 0 ? cr_wrap(b->err, "program %u, behind ':'", number + 1) : 0;
}

/* Sets the role of the node in the rendezvous to a text of the roles of all programs and their
 * numbers of workers, such as "default*2:rollout*6". */
static int name_node(struct builder *b) {
    const struct agent_job *a = &b->job->agent;
    char *name = allocate(b, RENDEZVOUS_ROLE_MAX);
    size_t n = 0;
    if (name == NULL) return -ENOMEM;
    for (uint32_t i = 0; i < a->program_count && n < RENDEZVOUS_ROLE_MAX; i++) {
        n += (size_t) snprintf(name + n, RENDEZVOUS_ROLE_MAX - n, "%s%s*%u", i > 0 ? ":" : "",
                               a->programs[i].role, a->programs[i].workers);
    }
    b->job->agent.rendezvous.role = name;
    if (n < RENDEZVOUS_ROLE_MAX) return 0;
    return cr_fail(b->err, -ENAMETOOLONG,
                   "--role: the roles of all programs are too long; give shorter names");
}

/* Adds the programs behind a ":" to the job, and their workers to the node's number of workers. */
static int add_further(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    char **words = b->options->more;
    int rc = 0;
    while (rc == 0 && words != NULL) {
        if (a->program_count == PROGRAMS_MAX) {
            return cr_fail(b->err, -E2BIG, "a job has at most %d programs", PROGRAMS_MAX);
        }
        unsigned number = a->program_count++;
        rc = programs_parse(words, number + 1, &b->job->lines[number], &words, b->err);
        if (rc == 0) rc = build_further(b, number);
        if (rc == 0) a->rendezvous.local_world_size += b->job->programs[number].workers;
    }
    if (rc < 0 || a->rendezvous.local_world_size <= AGENT_WORKERS_MAX) return rc;
    return cr_fail(b->err, -EINVAL, "--nproc-per-node: the programs have %u workers together; a "
                   "node has at most %d", a->rendezvous.local_world_size, AGENT_WORKERS_MAX);
}

/* Lists the programs of the job in agent.programs. The list stays empty for a single program
 * without --service and with --on-failure=all, because the agent treats such a program as torchrun
 * does. */
static int build_programs(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    bool is_service = is_on(b, OPTION_SERVICE), all_serve = true;
    const char *on_failure = text_of(b, OPTION_ON_FAILURE);
    if (b->options->more == NULL && !is_service && strcmp(on_failure, "all") == 0) return 0;
    b->job->programs = allocate(b, PROGRAMS_MAX * sizeof(*b->job->programs));
    b->job->lines = allocate(b, PROGRAMS_MAX * sizeof(*b->job->lines));
    if (b->job->programs == NULL || b->job->lines == NULL) return -ENOMEM;
    a->programs = b->job->programs;
    a->program_count = 1;
    b->job->programs[0] = (struct agent_program){.role = a->rendezvous.role,
                                                 .workers = a->rendezvous.local_world_size,
                                                 .is_service = is_service};
    int rc = read_on_failure(b, on_failure, &b->job->programs[0]);
    if (rc < 0) return name_option(b, OPTION_ON_FAILURE, rc);
    rc = add_further(b);
    if (rc == 0 && a->program_count > 1) rc = name_node(b);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < a->program_count; i++) all_serve &= a->programs[i].is_service;
    if (!all_serve) return 0;
    return cr_fail(b->err, -EINVAL, "--service: the job has no other program, so nothing would end "
                   "it; leave --service away for one program");
}

static int build_workers(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    int rc = count_workers(b, text_of(b, OPTION_NPROC), &r->local_world_size);
    if (rc == 0 && r->local_world_size > AGENT_WORKERS_MAX) {
        r->local_world_size = AGENT_WORKERS_MAX;
    }
    if (rc < 0) return name_option(b, OPTION_NPROC, rc);
    r->role = text_of(b, OPTION_ROLE);
    rc = name_option(b, OPTION_ROLE, check_role(b, r->role));
    if (rc == 0) rc = build_programs(b);
    if (rc == 0) rc = check_virtual(b);
    if (rc == 0) decide_threads(b);
    return rc;
}

/* ---- rendezvous ---- */

/* Returns a random UUID of version 4 as text; or NULL, and sets the error. If `as_number` is 1, the
 * text is a decimal number, as torchrun's is if --rdzv-id is empty. */
static const char *random_id(struct builder *b, int as_number) {
    unsigned char u[16];
    char *text = allocate(b, 48);
    if (text == NULL) return NULL;
    int rc = b->world->random(b->world->arg, u);
    if (rc < 0) {
        (void) cr_fail(b->err, rc, "cannot draw a random job id: %s; give --rdzv-id",
                       strerror(-rc));
        return NULL;
    }
    u[6] = (unsigned char) ((u[6] & 0x0f) | 0x40);
    u[8] = (unsigned char) ((u[8] & 0x3f) | 0x80);
    if (!as_number) {
        (void) snprintf(text, 48,
                        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                        u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
                        u[12], u[13], u[14], u[15]);
        return text;
    }
    unsigned __int128 number = 0;
    for (int i = 0; i < 16; i++) number = number << 8 | u[i];
    char *at = text + 47;
    do {
        *--at = (char) ('0' + (int) (number % 10));
        number /= 10;
    } while (number != 0);
    return at;
}

/* Returns 1 if the job is standalone, else 0. It is if --standalone is given; or, as in torchrun
 * 2.10 and later, if the job has one node and no option says where its nodes meet. */
static int is_standalone(const struct builder *b) {
    if (is_on(b, OPTION_STANDALONE)) return 1;
    return strcmp(text_of(b, OPTION_RDZV_BACKEND), "static") == 0 &&
           text_of(b, OPTION_RDZV_ENDPOINT)[0] == '\0' && !is_given(b, OPTION_MASTER_PORT) &&
           b->job->agent.rendezvous.max_nodes == 1;
}

static int build_run_id(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    r->run_id = text_of(b, OPTION_RDZV_ID);
    if (r->run_id[0] == '\0') {
        r->run_id = random_id(b, 1);
        if (r->run_id == NULL) return -ENOMEM;
        warn(b, "--rdzv-id is empty: using the random id %s", r->run_id);
    }
    return 0;
}

static void warn_of_overridden(struct builder *b) {
    static const enum option_id overridden[] = {OPTION_RDZV_BACKEND, OPTION_RDZV_ENDPOINT,
                                                OPTION_RDZV_ID};
    for (size_t i = 0; i < CR_ARRAY_LEN(overridden); i++) {
        char label[CR_OPTION_LABEL_MAX];
        if (!is_given(b, overridden[i])) continue;
        warn(b, "%s='%.200s' has no effect: --standalone chooses a free port and a random id",
             option_label(b->options, overridden[i], label), text_of(b, overridden[i]));
    }
}

/* Sets up a job of one node on a free port. Its run id is random; but if --rdzv-id is given without
 * --standalone, that id is used, as in torchrun before 2.10. */
static int build_standalone(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    int asked_for = is_on(b, OPTION_STANDALONE);
    r->standalone = 1;
    r->loopback_only = asked_for;
    r->backend = "c10d";
    (void) snprintf(r->endpoint.host, sizeof(r->endpoint.host), "localhost");
    if (asked_for) warn_of_overridden(b);
    if (!asked_for && is_given(b, OPTION_RDZV_ID)) return build_run_id(b);
    r->run_id = random_id(b, 0);
    return r->run_id == NULL ? -ENOMEM : 0;
}

/* Sets the endpoint of the static backend from --master-addr and --master-port. These options are
 * used only if --rdzv-endpoint is not given, as in torchrun. */
static int build_master(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    uint32_t port = 0;
    int rc = value_count(text_of(b, OPTION_MASTER_PORT), "a port", 0, UINT16_MAX, &port, b->err);
    if (rc < 0) return name_option(b, OPTION_MASTER_PORT, rc);
    CR_AUTO_FREE char *text = cr_asprintf("%.300s:%u", text_of(b, OPTION_MASTER_ADDR), port);
    if (text == NULL) return cr_fail(b->err, -ENOMEM, "no memory left");
    rc = cr_endpoint_parse(text, 0, &r->endpoint, b->err);
    return name_option(b, OPTION_MASTER_ADDR, rc);
}

static int is_loopback(const char *host) {
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* Returns the number of machines that Slurm has given to this job step; if srun has not started
 * crun, the number of machines of the whole Slurm job; or 0 if crun does not run under Slurm. */
static int64_t slurm_machines(const struct builder *b) {
    int64_t n = 0;
    if (cr_parse_i64(variable(b, "SLURM_STEP_NUM_NODES"), 1, INT32_MAX, &n) == 0) return n;
    return cr_parse_i64(variable(b, "SLURM_NNODES"), 1, INT32_MAX, &n) == 0 ? n : 0;
}

/* Checks the endpoint of a job with several nodes. A loopback address means, on each machine, that
 * machine itself, so nodes on different machines cannot meet there. If Slurm has given the job
 * several machines, such an endpoint is an error. Otherwise all nodes may run on this machine, so
 * there is only a warning, and only for "localhost". */
static int check_loopback(struct builder *b) {
    const struct rendezvous_options *r = &b->job->agent.rendezvous;
    int64_t machines = slurm_machines(b);
    if (r->max_nodes == 1 || !is_loopback(r->endpoint.host)) return 0;
    if (machines > 1) {
        return cr_fail(b->err, -EINVAL,
                       "the %u nodes cannot meet at '%.100s', which is each machine itself: Slurm "
                       "has given this job %lld machines; give --rdzv-endpoint=HOST:PORT of one "
                       "of them", r->max_nodes, r->endpoint.host, (long long) machines);
    }
    if (strcasecmp(r->endpoint.host, "localhost") == 0) {
        warn(b,
             "the nodes meet at '%s', so all of them must run on this machine; for several "
             "machines, give --rdzv-endpoint=HOST:PORT", r->endpoint.host);
    }
    return 0;
}

static int build_endpoint(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    const char *text = text_of(b, OPTION_RDZV_ENDPOINT);
    int is_static = strcmp(r->backend, "static") == 0;
    r->endpoint_given = text[0] != '\0';
    if (is_static && text[0] == '\0') return build_master(b);

    struct cr_endpoint other;
    if (strncmp(r->backend, "etcd", 4) == 0) {
        int rc = value_etcd_endpoints(text, &r->etcd, b->err);
        r->endpoint = r->etcd.endpoints[0];
        return name_option(b, OPTION_RDZV_ENDPOINT, rc);
    }
    int rc = cr_endpoint_parse(text, C10D_PORT, &r->endpoint, b->err);
    if (rc < 0) return name_option(b, OPTION_RDZV_ENDPOINT, rc);
    /* Find out whether the text has a port. If it has none, this second call stores another port
     * than the first call, because each call stores its own default port. */
    (void) cr_endpoint_parse(text, 0, &other, NULL);
    if (is_static && other.port != r->endpoint.port) {
        return name_option(b, OPTION_RDZV_ENDPOINT,
                     cr_fail(b->err, -EINVAL,
                             "port is missing in endpoint: '%.200s'; write HOST:PORT, or use "
                             "--master-addr and --master-port",
                             text));
    }
    return 0;
}

static int build_rdzv_conf(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    char unknown[VALUE_NAME_MAX];
    r->last_call_timeout_ms = -1;
    int rc = value_rdzv_conf(text_of(b, OPTION_RDZV_CONF), r, unknown, b->err);
    if (rc < 0) return name_option(b, OPTION_RDZV_CONF, rc);
    r->skips_last_call = r->last_call_timeout_ms < 0; /* --rdzv-conf has no last_call_timeout */
    if (r->skips_last_call) r->last_call_timeout_ms = LAST_CALL_MS;
    if (unknown[0] != '\0')
        warn(b, "--rdzv-conf: the key '%s' is not known and has no effect", unknown);
    return 0;
}

static int build_listening(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    const char *ports = text_of(b, OPTION_PORT_RANGE), *allow = text_of(b, OPTION_STORE_ALLOW);
    if (ports != NULL && ports[0] != '\0') {
        int rc = cr_port_range_parse(ports, &r->ports, b->err);
        if (rc < 0) return name_option(b, OPTION_PORT_RANGE, rc);
    }
    r->store_gateway = is_on(b, OPTION_STORE_GATEWAY);
    if (allow == NULL || allow[0] == '\0') return 0;
    return name_option(b, OPTION_STORE_ALLOW,
                       rendezvous_store_guard_parse(allow, &r->store_guard, b->err));
}

static int build_node(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    uint32_t rank = 0;
    int is_static = strcmp(text_of(b, OPTION_RDZV_BACKEND), "static") == 0;
    int rc = value_nnodes(text_of(b, OPTION_NNODES), &r->min_nodes, &r->max_nodes, b->err);
    if (rc < 0) return name_option(b, OPTION_NNODES, rc);
    rc = value_count(text_of(b, OPTION_NODE_RANK), "a node rank", 0, UINT16_MAX, &rank, b->err);
    if (rc < 0) return name_option(b, OPTION_NODE_RANK, rc);
    r->node_rank_given = is_given(b, OPTION_NODE_RANK);
    r->node_rank = is_static || r->node_rank_given ? (int64_t) rank : -1;
    /* The static backend waits for all nodes, so its minimum is its maximum. */
    if (is_static) r->min_nodes = r->max_nodes;
    if (r->node_rank >= (int64_t) r->max_nodes) {
        return name_option(b, OPTION_NODE_RANK,
                     cr_fail(b->err, -EINVAL,
                             "%u is not below the number of nodes; --nnodes=%u has "
                             "ranks 0 to %u",
                             rank, r->max_nodes, r->max_nodes - 1));
    }
    r->local_addr = text_of(b, OPTION_LOCAL_ADDR);
    if (r->local_addr != NULL && r->local_addr[0] == '\0') r->local_addr = NULL;
    return build_listening(b);
}

static int build_rendezvous(struct builder *b) {
    struct rendezvous_options *r = &b->job->agent.rendezvous;
    int rc = build_node(b);
    if (rc < 0) return rc;
    r->backend = text_of(b, OPTION_RDZV_BACKEND);
    int is_static = strcmp(r->backend, "static") == 0;
    r->token_file = text_of(b, OPTION_RDZV_TOKEN_FILE);
    if (r->token_file == NULL || r->token_file[0] == '\0') {
        r->token_file = variable(b, "CRUN_RDZV_TOKEN_FILE");
    }
    r->is_host = is_static ? r->node_rank == 0 : -1;
    if (is_static) r->join_timeout_ms = STATIC_JOIN_MS;
    rc = build_rdzv_conf(b);
    if (rc < 0) return rc;
    if (is_standalone(b)) return build_standalone(b);
    rc = build_run_id(b);
    if (rc == 0) rc = build_endpoint(b);
    return rc == 0 && strncmp(r->backend, "etcd", 4) != 0 ? check_loopback(b) : rc;
}

/* ---- logs ---- */

static int build_masks(struct builder *b, enum option_id id, const uint8_t **out) {
    uint32_t n = b->job->agent.rendezvous.local_world_size;
    uint8_t *masks = allocate(b, n);
    if (masks == NULL) return -ENOMEM;
    *out = masks;
    return name_option(b, id, value_stream_masks(text_of(b, id), masks, n, b->err));
}

static int build_console(struct builder *b) {
    uint32_t n = b->job->agent.rendezvous.local_world_size;
    const char *text = text_of(b, OPTION_LOCAL_RANKS_FILTER);
    if (text[0] == '\0') return 0;
    uint8_t *shown = allocate(b, n);
    if (shown == NULL) return -ENOMEM;
    b->job->agent.console = shown;
    return name_option(b, OPTION_LOCAL_RANKS_FILTER, value_local_ranks(text, shown, n, b->err));
}

/* Stores the list of filters that the option gives in *out. If the option is not given, *out stays
 * NULL, and no lines are copied to a filtered log. If the option is given with an empty value, the
 * list consists of one empty text, which matches every line, as in torchrun. */
static int build_filters(struct builder *b, enum option_id id, char *const **out) {
    const char *text = text_of(b, id);
    if (text == NULL) return 0;
    size_t count = 1;
    for (const char *at = text; *at != '\0'; at++) count += *at == ',';
    char **items = allocate(b, (count + 1) * sizeof(*items));
    char *store = allocate(b, strlen(text) + 1);
    if (items == NULL || store == NULL) return -ENOMEM;
    value_filters(text, store, items, &count);
    *out = items;
    return 0;
}

/* If the user has set TORCHELASTIC_ENABLE_FILE_TIMER=1, chooses the path of torch's timer file,
 * which the watchdog serves. crun.c exports this path, so that the workers inherit it. */
static int build_timer_file(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    const char *wanted = variable(b, "TORCHELASTIC_ENABLE_FILE_TIMER");
    if (wanted == NULL || strcmp(wanted, "1") != 0) return 0;
    a->timer_file = variable(b, "TORCHELASTIC_TIMER_FILE");
    if (a->timer_file != NULL && a->timer_file[0] != '\0') return 0;
    const char *id = random_id(b, 0), *folder = variable(b, "TMPDIR");
    char *path = id != NULL ? allocate(b, 4096) : NULL;
    if (path == NULL) return -ENOMEM;
    (void) snprintf(path, 4096, "%s/watchdog_timer_%s",
                    folder != NULL && folder[0] != '\0' ? folder : "/tmp", id);
    a->timer_file = path;
    return 0;
}

/* Reads --event-log, --summary, --log-format and --status-addr. In torchrun, --event-log is an
 * abbreviation of --event-log-handler, whose values are "console" and "null". So crun does not use
 * these two words as names of files. */
static int build_history(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    static const char *const words[] = {"auto", "always", "never"};
    const char *summary = text_of(b, OPTION_SUMMARY), *file = text_of(b, OPTION_EVENT_LOG);
    bool is_handler = file != NULL && (strcmp(file, "console") == 0 || strcmp(file, "null") == 0);
    if (is_handler) a->console_events = file[0] == 'c';
    else if (file != NULL && file[0] != '\0') a->event_log = file;
    const char *format = text_of(b, OPTION_LOG_FORMAT);
    a->is_log_json = strcmp(format, "json") == 0;
    if (!a->is_log_json && strcmp(format, "text") != 0) {
        int wrong = cr_fail(b->err, -EINVAL, "'%.200s' is neither text nor json", format);
        return name_option(b, OPTION_LOG_FORMAT, wrong);
    }
    if (a->is_log_json && a->folds_lines) {
        int wrong = cr_fail(b->err, -EINVAL, "lines cannot be folded with --log-format=json");
        return name_option(b, OPTION_FOLD, wrong);
    }
    a->cycle_info_dir = text_of(b, OPTION_CYCLE_INFO_DIR);
    if (a->cycle_info_dir != NULL && a->cycle_info_dir[0] == '\0') a->cycle_info_dir = NULL;
    a->status_addr = text_of(b, OPTION_STATUS_ADDR);
    if (a->status_addr != NULL && a->status_addr[0] == '\0') a->status_addr = NULL;
    for (unsigned i = 0; i < CR_ARRAY_LEN(words); i++) {
        if (strcmp(summary, words[i]) != 0) continue;
        a->summary = (enum agent_summary) i;
        return 0;
    }
    int rc = cr_fail(b->err, -EINVAL, "'%.200s' is none of auto, always, never", summary);
    return name_option(b, OPTION_SUMMARY, rc);
}

/* Returns true if no mask selects a stream. */
static bool is_empty(const uint8_t *masks, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (masks[i] != 0) return false;
    }
    return true;
}

/* Reads --fold. Only teed streams can be folded, because crun does not cut other streams into
 * lines. So if the user has chosen no streams to redirect or to tee, all streams are teed. */
static int build_fold(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    uint32_t n = a->rendezvous.local_world_size;
    if (!is_on(b, OPTION_FOLD)) return 0;
    a->folds_lines = true;
    if (!is_empty(a->redirects, n) || !is_empty(a->tee, n)) return 0;
    uint8_t *masks = allocate(b, n);
    if (masks == NULL) return -ENOMEM;
    memset(masks, AGENT_STREAM_OUT | AGENT_STREAM_ERR, n);
    a->tee = masks;
    return 0;
}

static int build_logs(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    const char *events = text_of(b, OPTION_EVENT_LOG_HANDLER);
    int rc = build_masks(b, OPTION_REDIRECTS, &a->redirects);
    if (rc == 0) rc = build_masks(b, OPTION_TEE, &a->tee);
    if (rc == 0) rc = build_fold(b);
    if (rc == 0) {
        rc = value_size(text_of(b, OPTION_LOG_MAX_SIZE), &a->log_max_size, b->err);
        if (rc < 0) return name_option(b, OPTION_LOG_MAX_SIZE, rc);
    }
    if (rc == 0) rc = build_console(b);
    if (rc == 0) rc = build_filters(b, OPTION_STDOUT_FILTERS, &a->duplicate_stdout_filters);
    if (rc == 0) rc = build_filters(b, OPTION_STDERR_FILTERS, &a->duplicate_stderr_filters);
    if (rc < 0) return rc;
    rc = build_history(b);
    if (rc < 0) return rc;
    if (strcmp(events, "console") == 0) a->console_events = 1;
    a->log_dir = text_of(b, OPTION_LOG_DIR);
    if (a->log_dir != NULL && a->log_dir[0] == '\0') a->log_dir = NULL;
    a->log_line_prefix_template = text_of(b, OPTION_LINE_PREFIX);
    if (a->log_line_prefix_template == NULL || a->log_line_prefix_template[0] == '\0') {
        a->log_line_prefix_template = variable(b, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    }
    a->own_error_file = variable(b, "TORCHELASTIC_ERROR_FILE");
    if (a->own_error_file != NULL && a->own_error_file[0] == '\0') a->own_error_file = NULL;
    a->failures_file = variable(b, "CRUN_FAILURES_FILE");
    if (a->failures_file != NULL && a->failures_file[0] == '\0') a->failures_file = NULL;
    return build_timer_file(b);
}

/* ---- reports to TrainJob ---- */

/* Returns the value of the variable `name`, or NULL if it is not set or empty. */
static const char *given_variable(const struct builder *b, const char *name) {
    const char *value = variable(b, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Reads CRUN_TRAINJOB_STEPS and CRUN_TRAINJOB_INTERVAL. Returns 0; or -EINVAL, and sets the error
 * to a text that names the variable. */
static int build_trainjob_numbers(struct builder *b, struct agent_trainjob *t) {
    const char *steps = given_variable(b, "CRUN_TRAINJOB_STEPS");
    const char *interval = given_variable(b, "CRUN_TRAINJOB_INTERVAL");
    t->interval_ms = TRAINJOB_INTERVAL_MS;
    if (steps != NULL) {
        int rc = value_count(steps, "a number of steps", 1, INT32_MAX, &t->steps, b->err);
        if (rc < 0) return cr_wrap(b->err, "CRUN_TRAINJOB_STEPS"), rc;
    }
    int rc = interval != NULL ? value_seconds(interval, 0, &t->interval_ms, b->err) : 0;
    if (rc < 0) (void) cr_wrap(b->err, "CRUN_TRAINJOB_INTERVAL");
    return rc;
}

/* Fills in agent.trainjob from the variables that TrainJob gives to its pods, if the user has set
 * CRUN_TRAINJOB_STATUS=1. A launcher inside a worker reports nothing, because the launcher that has
 * started the worker reports for the whole job. */
static int build_trainjob(struct builder *b) {
    struct agent_trainjob *t = &b->job->agent.trainjob;
    const char *text = given_variable(b, "CRUN_TRAINJOB_STATUS");
    if (text == NULL || variable(b, "TORCHELASTIC_RUN_ID") != NULL) return 0;
    int rc = value_word(text, "0 1", b->err);
    if (rc < 0) return cr_wrap(b->err, "CRUN_TRAINJOB_STATUS"), rc;
    rc = build_trainjob_numbers(b, t);
    if (rc < 0 || text[0] == '0') return rc;
    const char *ca_cert = given_variable(b, "KUBEFLOW_TRAINER_SERVER_CA_CERT");
    t->url = given_variable(b, "KUBEFLOW_TRAINER_SERVER_URL");
    t->ca_cert = ca_cert != NULL ? ca_cert : "";
    t->token_file = given_variable(b, "KUBEFLOW_TRAINER_SERVER_TOKEN");
    if (t->url != NULL && t->token_file != NULL) return 0;
    warn(b, "CRUN_TRAINJOB_STATUS=1 has no effect: %s is not set; TrainJob sets it if its "
            "controller runs with the feature gate TrainJobStatus",
         t->url == NULL ? "KUBEFLOW_TRAINER_SERVER_URL" : "KUBEFLOW_TRAINER_SERVER_TOKEN");
    t->url = NULL;
    return 0;
}

/* ---- restarting and ending ---- */

static int build_shutdown_timeout(struct builder *b) {
    int64_t *out = &b->job->agent.shutdown_timeout_ms;
    const char *text = text_of(b, OPTION_SHUTDOWN_TIMEOUT);
    if (text != NULL) return 0; /* read_simple_values() has stored the option's value */
    text = variable(b, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    *out = STOP_MS;
    if (text == NULL) return 0;
    int rc = value_seconds(text, 1, out, b->err);
    if (rc < 0) (void) cr_wrap(b->err, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    return rc;
}

static int build_signal_set(struct builder *b, enum option_id id, sigset_t *out) {
    char unknown[VALUE_NAME_MAX];
    int rc = value_signals(text_of(b, id), out, unknown, b->err);
    if (rc < 0) return name_option(b, id, rc);
    if (unknown[0] != '\0') {
        warn(b, "--%s: the signal %s is not known and has no effect; names look like SIGTERM",
             crun_command.options[id].name, unknown);
    }
    return 0;
}

/* Reads --signals-to-handle and --preemption-signals. A signal that is in both lists stays in one
 * of them: in --preemption-signals if the user has given this option, otherwise in
 * --signals-to-handle. */
static int build_signals(struct builder *b) {
    struct job *job = b->job;
    job->signals_text = text_of(b, OPTION_SIGNALS);
    int rc = build_signal_set(b, OPTION_SIGNALS, &job->signals);
    (void) sigemptyset(&job->preemption_signals);
    if (rc == 0 && text_of(b, OPTION_PREEMPTION_SIGNALS)[0] != '\0') {
        rc = build_signal_set(b, OPTION_PREEMPTION_SIGNALS, &job->preemption_signals);
    }
    int by_default = b->options->source[OPTION_PREEMPTION_SIGNALS] == CR_FROM_DEFAULT;
    for (int signum = 1; rc == 0 && signum < NSIG; signum++) {
        if (sigismember(&job->preemption_signals, signum) != 1) continue;
        if (sigismember(&job->signals, signum) != 1) continue;
        (void) sigdelset(by_default ? &job->preemption_signals : &job->signals, signum);
    }
    return rc;
}

/* Sets the longest time that the agent may take to stop its workers, unless --rdzv-conf sets it.
 * This time is the longer of the two graces, stop_timeout_ms and shutdown_timeout_ms, plus
 * DEATH_MS. DEATH_MS is enough because a process dies within a moment of SIGKILL, unless it hangs
 * in the kernel. */
static void set_stop_limit(struct agent_job *a) {
    int64_t grace_ms = a->stop_timeout_ms > a->shutdown_timeout_ms ? a->stop_timeout_ms
                                                                    : a->shutdown_timeout_ms;
    if (a->rendezvous.stop_limit_ms != 0) return;
    a->rendezvous.stop_limit_ms = grace_ms + DEATH_MS;
    /* stop_limit_ms includes the time of the health check, because a node joins the next round only
     * after the check. */
    bool checks = a->health_command != NULL || a->health_builtin != 0;
    if (checks) a->rendezvous.stop_limit_ms += a->health_timeout_ms;
}

static int build_health(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    a->health_command = text_of(b, OPTION_HEALTH_CHECK);
    if (a->health_command != NULL && a->health_command[0] == '\0') a->health_command = NULL;
    a->pair_command = text_of(b, OPTION_PAIR_CHECK);
    if (a->pair_command != NULL && a->pair_command[0] == '\0') a->pair_command = NULL;
    a->health_segments = text_of(b, OPTION_HEALTH_SEGMENT_DIR);
    int rc = health_read_checks(text_of(b, OPTION_HEALTH_BUILTIN), &a->health_builtin, b->err);
    if (a->health_segments != NULL && a->health_segments[0] != '\0') {
        a->health_builtin |= 1u << HEALTH_SEGMENT;
    }
    a->health_service = text_of(b, OPTION_HEALTH_SERVICE);
    if (a->health_service != NULL && a->health_service[0] != '\0') {
        a->health_builtin |= 1u << HEALTH_SERVICE;
    }
    return rc < 0 ? name_option(b, OPTION_HEALTH_BUILTIN, rc) : 0;
}

/* Stores the texts of an option that can be given several times, --hang-rule or --value-rule, in
 * *out, a NULL-terminated list, and checks each of them. If the option is not given, *out stays
 * NULL. */
static int build_rules(struct builder *b, enum option_id id, char *const **out) {
    const struct options *o = b->options;
    const char *all = "";
    size_t n = 0;
    if (!is_given(b, id)) return 0;
    const char **texts = allocate(b, (OPTIONS_REPEATED_MAX + 2) * sizeof(*texts));
    if (texts == NULL) return -ENOMEM;
    for (size_t i = 0; i < o->repeated_count; i++) {
        if (o->repeated_of[i] == (int) id) texts[n++] = o->repeated[i];
    }
    if (n == 0) texts[n++] = text_of(b, id); /* the value comes from the variable */
    for (size_t i = 0; i < n; i++) {
        int rc = log_rules_check(id == OPTION_VALUE_RULE, texts[i], b->err);
        if (rc < 0) return name_option(b, id, rc);
        if (texts[i][0] != '\0') all = texts[i];
    }
    if (all[0] != '\0') *out = (char *const *) texts;
    return 0;
}

/* Reads CRUN_HANG_NOTICE. A job with --hang-timeout, also with --hang-timeout=0, gets no notice. */
static int build_hang_notice(struct builder *b) {
    int64_t *out = &b->job->agent.hang_notice_ms;
    const char *text = variable(b, "CRUN_HANG_NOTICE");
    *out = is_given(b, OPTION_HANG_TIMEOUT) ? 0 : HANG_NOTICE_MS;
    if (*out == 0 || text == NULL || text[0] == '\0') return 0;
    int rc = value_seconds(text, 1, out, b->err);
    if (rc < 0) (void) cr_wrap(b->err, "CRUN_HANG_NOTICE");
    return rc;
}

static int build_all_rules(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    int rc = build_rules(b, OPTION_HANG_RULE, &a->hang_rules);
    return rc < 0 ? rc : build_rules(b, OPTION_VALUE_RULE, &a->value_rules);
}

static int build_ending(struct builder *b) {
    struct agent_job *a = &b->job->agent;
    a->rendezvous.max_restarts = a->max_restarts;
    a->stop_timeout_ms = STOP_MS;
    const char *leftovers = text_of(b, OPTION_LEFTOVERS);
    a->hang_when_silent = strcmp(text_of(b, OPTION_HANG_WHEN), "silent") == 0;
    b->job->distinct_exit_codes = strcmp(text_of(b, OPTION_EXIT_CODES), "distinct") == 0;
    if (strcmp(leftovers, "end") == 0) a->leftovers = AGENT_LEFTOVERS_END;
    if (strcmp(leftovers, "keep") == 0) a->leftovers = AGENT_LEFTOVERS_KEEP;
    int rc = build_shutdown_timeout(b);
    if (rc == 0) rc = build_health(b);
    if (rc == 0) rc = build_all_rules(b);
    if (rc == 0) rc = build_hang_notice(b);
    if (rc == 0) rc = build_filters(b, OPTION_PRELOAD, &a->preload);
    if (rc == 0) set_stop_limit(a);
    return rc < 0 ? rc : build_signals(b);
}

/* ---- job_build() and job_done() ---- */

static const struct rendezvous_options rendezvous_defaults = {
    .min_nodes = 1,
    .max_nodes = 1,
    .node_rank = -1,
    .join_timeout_ms = 600000,
    .last_call_timeout_ms = LAST_CALL_MS,
    .close_timeout_ms = 30000,
    .heartbeat_timeout_ms = 5000,
    .keep_alive_interval_ms = 5000,
    .keep_alive_max_attempt = 3,
    .etcd = {.is_candidate = -1, .prefix = "crun/rendezvous/"},
    .read_timeout_ms = 60000,
    .change_notice_ms = 30000,
    .flap_limit = 3,
    .flap_window_ms = 60000,
    .flap_refusal_ms = 300000,
    .aside_after = 3,
    .aside_ms = 600000,
    .slow_ms = 60000,
    .coordinator_wait_ms = -1,
    .is_host = -1,
};

int job_build(const struct options *options, const struct job_world *world, struct job *out,
              struct cr_error *err) {
    struct cr_error reason = {0};
    struct builder b = {.options = options, .world = world, .job = out, .err = &reason};
    *out = (struct job){.agent.rendezvous = rendezvous_defaults};

    int rc = build_workers(&b);
    if (rc == 0) rc = read_simple_values(&b);
    if (rc == 0) rc = build_rendezvous(&b);
    if (rc == 0) rc = build_ending(&b);
    if (rc == 0) rc = build_logs(&b);
    if (rc == 0) rc = build_trainjob(&b);
    if (rc == 0) rc = refuse_unavailable(&b);
    if (rc == 0) rc = rendezvous_check(&out->agent.rendezvous, &reason);
    if (rc == 0) rc = build_binding(&b);
    return rc < 0 ? cr_fail(err, rc, "%s", reason.text) : 0;
}

void job_done(struct job *job) {
    for (unsigned i = 0; i < job->warning_count; i++) free(job->warnings[i]);
    for (struct job_block *block = job->memory, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    *job = (struct job){0};
}
