/* env://: rank and size from the first launcher whose variables are there, the address from
 * MASTER_ADDR and MASTER_PORT.
 *
 * The precedence is the order of the table: torchrun's names first, because crun sets them in every
 * worker, even when crun itself runs inside an MPI job or a Slurm step. */
#include "worker_runtime/worker_place_internal.h"

#include "base/cleanup.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct launcher_names {
    const char *launcher, *rank, *size, *local_rank, *local_size;
};

static const struct launcher_names launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

struct environment {
    worker_place_get_fn get;
    void *arg;
};

static const char *look_up(const struct environment *env, const char *name) {
    const char *value = env->get(env->arg, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int read_number(const struct environment *env, const char *name, int64_t min, int64_t max,
                       int *out, struct cr_error *err) {
    int64_t n = 0;
    const char *value = look_up(env, name);
    int rc = cr_parse_i64(value, min, max, &n);
    if (rc < 0) {
        return cr_fail(err, -EINVAL,
                       "read %s='%s' from the environment: not a number from %lld to %lld", name,
                       value != NULL ? value : "", (long long) min, (long long) max);
    }
    *out = (int) n;
    return 0;
}

/* Hints only: a launcher may leave them out or write them in a form of its own (Slurm's
 * "4(x2)"). */
static int read_hint(const struct environment *env, const char *name, int64_t min) {
    int64_t n = 0;
    return cr_parse_i64(look_up(env, name), min, INT_MAX, &n) == 0 ? (int) n : -1;
}

static const struct launcher_names *find_launcher(const struct environment *env) {
    for (size_t i = 0; i < CR_ARRAY_LEN(launchers); i++) {
        const struct launcher_names *l = &launchers[i];
        if (look_up(env, l->rank) != NULL && look_up(env, l->size) != NULL) return l;
    }
    return NULL;
}

/* "RANK=(unset) WORLD_SIZE=4; OMPI_…": what was looked for and what was there. */
static int fail_without_launcher(const struct environment *env, struct cr_error *err) {
    char seen[512] = "";
    size_t len = 0;
    for (size_t i = 0; i < CR_ARRAY_LEN(launchers) && len < sizeof(seen); i++) {
        const char *rank = look_up(env, launchers[i].rank), *size = look_up(env, launchers[i].size);
        int n = snprintf(seen + len, sizeof(seen) - len, "%s%s %s, %s %s", len > 0 ? "; " : "",
                         launchers[i].rank, rank != NULL ? "set" : "unset", launchers[i].size,
                         size != NULL ? "set" : "unset");
        if (n > 0) len += (size_t) n;
    }
    return cr_fail(err, -EINVAL,
                   "find rank and world size in the environment: no complete pair (%s); start the "
                   "program with crun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                   seen);
}

static int read_ranks(const struct environment *env, int rank, int world_size,
                      struct worker_place *out, struct cr_error *err) {
    const struct launcher_names *l = find_launcher(env);
    out->source = l != NULL ? l->launcher : "options";
    out->rank = rank;
    out->world_size = world_size;
    if (l == NULL && (rank < 0 || world_size < 0)) return fail_without_launcher(env, err);
    int rc = 0;
    if (world_size < 0) rc = read_number(env, l->size, 1, INT_MAX, &out->world_size, err);
    if (rc == 0 && rank < 0) rc = read_number(env, l->rank, 0, INT_MAX, &out->rank, err);
    if (rc < 0) return rc;
    if (out->world_size < 1 || out->rank >= out->world_size) {
        return cr_fail(err, -EINVAL,
                       "take part as rank %d: the world size is %d, ranks are 0 to %d", out->rank,
                       out->world_size, out->world_size - 1);
    }
    out->local_rank = l != NULL ? read_hint(env, l->local_rank, 0) : -1;
    out->local_world_size = l != NULL ? read_hint(env, l->local_size, 1) : -1;
    return 0;
}

static int read_address(const struct environment *env, struct worker_place *out,
                        struct cr_error *err) {
    const char *addr = look_up(env, "MASTER_ADDR"), *port = look_up(env, "MASTER_PORT");
    if (addr == NULL || port == NULL) {
        return cr_fail(err, -EINVAL,
                       "find the store: %s%s%s not set in the environment (rank %d of %d came from "
                       "%s); start the program with crun, or set MASTER_ADDR and MASTER_PORT",
                       addr == NULL ? "MASTER_ADDR" : "",
                       addr == NULL && port == NULL ? " and MASTER_PORT are"
                       : addr == NULL               ? " is"
                                                    : "",
                       addr != NULL ? "MASTER_PORT is" : "", out->rank, out->world_size,
                       out->source);
    }
    if (strlen(addr) >= sizeof(out->master_addr)) {
        return cr_fail(err, -EINVAL, "find the store: MASTER_ADDR is longer than %zu bytes",
                       sizeof(out->master_addr) - 1);
    }
    int number = 0;
    int rc = read_number(env, "MASTER_PORT", 0, 65535, &number, err);
    if (rc < 0) return rc;
    strcpy(out->master_addr, addr); /* fits: checked above */
    out->master_port = (uint16_t) number;
    return 0;
}

int worker_place_read(worker_place_get_fn get, void *arg, int rank, int world_size,
                      struct worker_place *out, struct cr_error *err) {
    struct environment env = {get, arg};
    struct worker_place place = {.restart_count = 0};
    int rc = read_ranks(&env, rank, world_size, &place, err);
    if (rc == 0) rc = read_address(&env, &place, err);
    if (rc < 0) return rc;
    int restarts = read_hint(&env, "TORCHELASTIC_RESTART_COUNT", 0);
    place.restart_count = restarts > 0 ? restarts : 0;
    const char *agent = look_up(&env, "TORCHELASTIC_USE_AGENT_STORE");
    place.agent_hosts_store = agent != NULL && strcmp(agent, "True") == 0;
    *out = place;
    return 0;
}
