/* Builds the environment and the arguments of workers. The variables that crun sets are listed in
 * tables; some of the tables are X-macros. The tables are used to write the variables, and to leave
 * out the launcher's variables that they replace. */
#include "agent/attempt/environment.h"

#include "agent/attempt/role.h"
#include "base/text/template.h"
#include "contract/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Variables that have the same value for all workers of a node in an attempt: V(name, format,
 * value). */
#define SHARED_VARIABLES(V)                                                                        \
    V("WORLD_SIZE", "%u", e->round->world_size)                                                    \
    V("LOCAL_WORLD_SIZE", "%u", e->job->rendezvous.local_world_size)                               \
    V("GROUP_RANK", "%u", e->round->group_rank)                                                    \
    V("GROUP_WORLD_SIZE", "%u", e->round->group_world_size)                                        \
    V("MASTER_ADDR", "%s", master_host(e->round))                                                  \
    V("MASTER_PORT", "%u", (unsigned) e->round->master_port)                                       \
    V("TORCHELASTIC_RESTART_COUNT", "%u", e->round->restart_count)                                 \
    V("TORCHELASTIC_MAX_RESTARTS", "%u", e->round->max_restarts)                                   \
    V("TORCHELASTIC_RUN_ID", "%s", e->job->rendezvous.run_id)                                      \
    V("TORCHELASTIC_USE_AGENT_STORE", "%s", "True")

/* Variables that are set only if the launcher's environment does not have them: V(name, value,
 * condition). The old name NCCL_ASYNC_ERROR_HANDLING, which torch read before 2.2, is not set:
 * later versions warn of it in each rank. */
#define DEFAULT_VARIABLES(V)                                                                       \
    V("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 1)                                                   \
    V("OMP_NUM_THREADS", "1", e->job->set_omp_num_threads)

enum {
    OWN_LOCAL_RANK, OWN_RANK, OWN_ROLE_RANK, OWN_ROLE_NAME, OWN_ROLE_WORLD_SIZE, OWN_ERROR_FILE,
    OWN_CHANNEL, OWN_COUNT
};

static const char *const own_names[OWN_COUNT] = {
    "LOCAL_RANK", "RANK", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE",
    "TORCHELASTIC_ERROR_FILE", CHANNEL_VARIABLE};

/* Variables that let crun look into a worker with torch: V(id, name, file). The value is the path
 * of the file in the worker's log folder. The socket answers requests if the program uses torch's
 * worker_main(). A byte in the pipe makes ProcessGroupNCCL write its flight record; torch appends
 * the rank and ".pipe" to the pipe's path, and the rank to the record's path. */
#define TORCH_VARIABLES(V)                                                                         \
    V(SOCKET, "TORCH_WORKER_SERVER_SOCKET", ENVIRONMENT_TORCH_SOCKET)                              \
    V(PIPE, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "torch_dump_")                                      \
    V(RECORD, "TORCH_FR_DUMP_TEMP_FILE", "torch_flight_record_")

/* The older name of TORCH_FR_DUMP_TEMP_FILE. It is not set: releases of torch that know the newer
 * name warn of it. */
#define OLD_RECORD_VARIABLE "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"

enum {
#define V(id, name, file) TORCH_##id,
    TORCH_VARIABLES(V)
#undef V
    TORCH_COUNT
};

static const struct torch_variable {
    const char *name, *file;
} torch_variables[TORCH_COUNT] = {
#define V(id, name, file) {name, file},
    TORCH_VARIABLES(V)
#undef V
};

/* longest path of a Unix socket in bytes, without its NUL (struct sockaddr_un) */
#define SOCKET_PATH_MAX 107

/* Variables of the launcher that are not passed to workers: they name the file with the job's
 * secret, which workers do not need. */
static const char *const withheld_names[] = {"CRUN_RDZV_TOKEN_FILE", "PET_RDZV_TOKEN_FILE"};

static const char *const visible_names[] = AGENT_VISIBLE_VARIABLES;

static const char *const shared_names[] = {
#define V(name, format, value) name,
    SHARED_VARIABLES(V)
#undef V
};

static const char *master_host(const struct rendezvous_round *round) {
    return round->master_name[0] != '\0' ? round->master_name : round->master_addr;
}

/* ---- reading the launcher's environment ---- */

static int is_named(const char *entry, const char *name) {
    while (*name != '\0' && *entry == *name) entry++, name++;
    return *name == '\0' && *entry == '=';
}

static const char *inherited_value(char *const *inherited, const char *name) {
    for (; *inherited != NULL; inherited++) {
        if (is_named(*inherited, name)) return *inherited + strlen(name) + 1;
    }
    return NULL;
}

static int is_replaced(const struct environment *e, const char *entry) {
    for (size_t i = 0; i < OWN_COUNT; i++) {
        if (is_named(entry, own_names[i])) return 1;
    }
    /* if this launcher runs in a worker of an outer launcher, the variable names the socket of that
     * worker, which this launcher's workers must not use */
    if (is_named(entry, torch_variables[TORCH_SOCKET].name)) return 1;
    for (size_t i = 0; i < AGENT_VISIBLE_COUNT; i++) {
        if (e->narrows[i] && is_named(entry, visible_names[i])) return 1;
    }
    for (size_t i = 0; i < sizeof(shared_names) / sizeof(shared_names[0]); i++) {
        if (is_named(entry, shared_names[i])) return 1;
    }
    for (size_t i = 0; i < sizeof(withheld_names) / sizeof(withheld_names[0]); i++) {
        if (is_named(entry, withheld_names[i])) return 1;
    }
    return 0;
}

/* ---- the variables that all workers share ---- */

/* Writes the shared variables into one buffer, each ended by a NUL. Pointers to them are made
 * afterwards, because the buffer may move while it grows. */
static int write_shared(struct environment *e, char *const *inherited) {
    int rc = 0;
#define V(name, format, value)                                                                     \
    if (rc == 0) rc = cr_buffer_printf(&e->shared, name "=" format, (value));                      \
    if (rc == 0) rc = cr_buffer_append(&e->shared, "", 1);
    SHARED_VARIABLES(V)
#undef V
#define V(name, value, condition)                                                                  \
    if (rc == 0 && (condition) && inherited_value(inherited, name) == NULL)                        \
        rc = cr_buffer_append(&e->shared, name "=" value, sizeof(name "=" value));
    DEFAULT_VARIABLES(V)
#undef V
    return rc;
}

static size_t count_texts(const struct cr_buffer *b) {
    size_t count = 0;
    for (size_t i = 0; i < b->len; i++) count += b->data[i] == '\0';
    return count;
}

static size_t point_at_texts(char **to, struct cr_buffer *b) {
    size_t count = 0;
    for (size_t at = 0; at < b->len; at += strlen(b->data + at) + 1) to[count++] = b->data + at;
    return count;
}

static bool has_template_in(char *const *argv, size_t *argc) {
    bool found = false;
    size_t count = 0;
    for (; argv[count] != NULL; count++) found |= count > 0 && strchr(argv[count], '$') != NULL;
    if (count > *argc) *argc = count;
    return found;
}

/* Returns whether an argument of a program has a '$'. Sets *argc to the largest number of arguments
 * that a program has. */
static bool has_template(const struct agent_job *job, size_t *argc) {
    bool found = has_template_in(job->argv, argc);
    for (uint32_t i = 0; i < job->program_count; i++) {
        found |= has_template_in(job->programs[i].argv, argc);
    }
    return found;
}

static size_t own_count(const struct environment *e) {
    size_t count = OWN_COUNT + TORCH_COUNT;
    for (size_t i = 0; i < AGENT_VISIBLE_COUNT; i++) count += e->narrows[i] ? 1 : 0;
    return count;
}

/* Decides for which device variables (enum agent_visible) each worker gets only one entry of the
 * list in the launcher's environment. As in torchrun, if HIP_VISIBLE_DEVICES is set, its list is
 * also used for CUDA_VISIBLE_DEVICES. */
static void choose_visible(struct environment *e, char *const *inherited) {
    if (!e->job->virtual_local_rank) return;
    for (size_t i = 0; i < AGENT_VISIBLE_COUNT; i++) {
        e->visible[i] = inherited_value(inherited, visible_names[i]);
        bool is_set = e->visible[i] != NULL && e->visible[i][0] != '\0';
        e->narrows[i] = is_set || i == AGENT_VISIBLE_CUDA;
    }
    const char *hip = e->visible[AGENT_VISIBLE_HIP];
    if (e->narrows[AGENT_VISIBLE_HIP]) e->visible[AGENT_VISIBLE_CUDA] = hip;
}

int environment_init(struct environment *e, char *const *inherited, const struct agent_job *job,
                     const struct rendezvous_round *round) {
    *e = (struct environment){.job = job, .round = round};
    choose_visible(e, inherited);
    e->keeps_torch_files = inherited_value(inherited, torch_variables[TORCH_PIPE].name) != NULL ||
                           inherited_value(inherited, torch_variables[TORCH_RECORD].name) != NULL ||
                           inherited_value(inherited, OLD_RECORD_VARIABLE) != NULL;
    size_t count = 0, argc = 0;
    while (inherited[count] != NULL) count++;
    bool is_template = has_template(job, &argc);
    int rc = write_shared(e, inherited);
    if (rc == 0) {
        e->envp = malloc((own_count(e) + count_texts(&e->shared) + count + 1) * sizeof(*e->envp));
        if (is_template) e->argv = malloc((argc + 1) * sizeof(*e->argv));
    }
    if (rc < 0 || e->envp == NULL || (is_template && e->argv == NULL)) {
        environment_done(e);
        return -ENOMEM;
    }
    size_t to = own_count(e);
    to += point_at_texts(e->envp + to, &e->shared);
    for (size_t i = 0; i < count; i++) {
        if (!is_replaced(e, inherited[i])) e->envp[to++] = inherited[i];
    }
    e->envp[to] = NULL;
    e->env_count = to;
    e->argc = argc;
    return 0;
}

int environment_copy(const struct environment *from, struct environment *out) {
    *out = (struct environment){.job = from->job,
                                .round = from->round,
                                .has_torch_files = from->has_torch_files,
                                .keeps_torch_files = from->keeps_torch_files,
                                .env_count = from->env_count,
                                .argc = from->argc};
    memcpy(out->visible, from->visible, sizeof(out->visible));
    memcpy(out->narrows, from->narrows, sizeof(out->narrows));
    out->envp = malloc((from->env_count + 1) * sizeof(*out->envp));
    if (from->argv != NULL) out->argv = malloc((from->argc + 1) * sizeof(*out->argv));
    if (out->envp == NULL || (from->argv != NULL && out->argv == NULL)) {
        environment_done(out);
        return -ENOMEM;
    }
    memcpy(out->envp, from->envp, (from->env_count + 1) * sizeof(*out->envp));
    return 0;
}

void environment_done(struct environment *e) {
    cr_buffer_done(&e->shared);
    cr_buffer_done(&e->own);
    cr_buffer_done(&e->argv_text);
    free(e->envp);
    free(e->argv);
    *e = (struct environment){0};
}

/* ---- one worker's own variables and arguments ---- */

/* Writes a variable for a worker with a virtual local rank: the entry of the launcher's list at
 * index local_rank, without blanks around it; or local_rank itself if the launcher has no list. */
static int write_visible(struct environment *e, size_t which, uint32_t local_rank,
                         struct cr_error *err) {
    const char *at = e->visible[which], *name = visible_names[which];
    if (at == NULL) return cr_buffer_printf(&e->own, "%s=%u", name, local_rank);
    for (uint32_t i = 0; i < local_rank && at != NULL; i++) {
        at = strchr(at, ',');
        if (at != NULL) at++;
    }
    if (at == NULL) {
        return cr_fail(err, -EINVAL,
                       "%s='%.200s' has no entry for local rank %u; list one GPU for each worker, "
                       "or lower --nproc-per-node",
                       name, e->visible[which], local_rank);
    }
    at += strspn(at, " \t");
    size_t len = strcspn(at, ",");
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t')) len--;
    return cr_buffer_printf(&e->own, "%s=%.*s", name, (int) len, at);
}

static int end_text(struct environment *e, int rc) {
    return rc < 0 ? rc : cr_buffer_append(&e->own, "", 1);
}

/* If the worker has a log folder, writes the variables for torch. The log folder is the folder of
 * the worker's error file. */
static int write_torch(struct environment *e, const char *error_file) {
    const char *slash = strrchr(error_file, '/');
    int rc = 0, len = slash != NULL ? (int) (slash - error_file) : 0;
    if (!e->has_torch_files || slash == NULL) return 0;
    for (size_t i = 0; rc == 0 && i < TORCH_COUNT; i++) {
        const struct torch_variable *v = &torch_variables[i];
        size_t path_len = (size_t) len + 1 + strlen(v->file);
        if (i == TORCH_SOCKET ? path_len > SOCKET_PATH_MAX : e->keeps_torch_files) continue;
        rc = end_text(e, cr_buffer_printf(&e->own, "%s=%.*s/%s", v->name, len, error_file,
                                          v->file));
    }
    return rc;
}

static int write_own(struct environment *e, uint32_t local_rank, const char *error_file,
                     const char *channel, struct cr_error *err) {
    unsigned shown = e->job->virtual_local_rank ? 0 : local_rank;
    const char *const *name = own_names;
    struct cr_buffer *b = &e->own;
    int rc = end_text(e, cr_buffer_printf(b, "%s=%u", name[OWN_LOCAL_RANK], shown));
    if (rc == 0)
        rc = end_text(e, cr_buffer_printf(b, "%s=%u", name[OWN_RANK],
                                          e->round->first_rank + local_rank));
    struct agent_role role = agent_role_of(e->job, e->round, local_rank);
    if (rc == 0) rc = end_text(e, cr_buffer_printf(b, "%s=%u", name[OWN_ROLE_RANK], role.rank));
    if (rc == 0) rc = end_text(e, cr_buffer_printf(b, "%s=%s", name[OWN_ROLE_NAME], role.name));
    if (rc == 0) {
        rc = end_text(e, cr_buffer_printf(b, "%s=%u", name[OWN_ROLE_WORLD_SIZE],
                                          role.world_size));
    }
    if (rc == 0) rc = end_text(e, cr_buffer_printf(b, "%s=%s", name[OWN_ERROR_FILE], error_file));
    if (rc == 0) rc = end_text(e, cr_buffer_printf(b, "%s", channel));
    for (size_t i = 0; rc == 0 && i < AGENT_VISIBLE_COUNT; i++) {
        if (e->narrows[i]) rc = end_text(e, write_visible(e, i, local_rank, err));
    }
    return rc < 0 ? rc : write_torch(e, error_file);
}

int environment_for(struct environment *e, uint32_t local_rank, const char *error_file,
                    const char *channel, char *const **envp, struct cr_error *err) {
    cr_buffer_clear(&e->own);
    int rc = write_own(e, local_rank, error_file, channel, err);
    if (rc == -ENOMEM) return cr_fail(err, rc, "no memory left for a worker's environment");
    if (rc < 0) return rc;
    /* The worker's own variables must end just before the shared ones. If some variables for torch
     * are missing, the first places of envp stay empty, and *envp begins after them. */
    char **first = e->envp + own_count(e) - count_texts(&e->own);
    (void) point_at_texts(first, &e->own);
    *envp = first;
    return 0;
}

static int expand_arguments(struct environment *e, char *const *from, uint32_t local_rank) {
    char digits[16];
    (void) snprintf(digits, sizeof(digits), "%u", local_rank);
    const struct template_variable variable = {.name = "local_rank", .value = digits};
    cr_buffer_clear(&e->argv_text);
    int rc = 0;
    for (size_t i = 1; rc == 0 && from[i] != NULL; i++) {
        rc = template_expand(&e->argv_text, from[i], &variable, 1);
        if (rc == 0) rc = cr_buffer_append(&e->argv_text, "", 1);
    }
    return rc;
}

int environment_arguments(struct environment *e, uint32_t local_rank, char *const **argv,
                          struct cr_error *err) {
    char *const *from = agent_role_of(e->job, e->round, local_rank).argv;
    *argv = from;
    if (e->argv == NULL) return 0;
    int rc = expand_arguments(e, from, local_rank);
    if (rc < 0) return cr_fail(err, rc, "no memory left for a worker's arguments");
    e->argv[0] = from[0];
    e->argv[1 + point_at_texts(e->argv + 1, &e->argv_text)] = NULL;
    *argv = e->argv;
    return 0;
}
