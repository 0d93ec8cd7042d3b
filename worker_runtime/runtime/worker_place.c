/* Reads the worker's place. Rank and world size come from the first launcher in the table
 * launchers[] of which both variables are set. The store's address comes from MASTER_ADDR and
 * MASTER_PORT.
 *
 * The table begins with torchrun's variables RANK and WORLD_SIZE, which crun sets in every worker.
 * If crun itself runs inside an MPI job or a Slurm step, the variables of MPI or Slurm are set,
 * too, but they describe the process of crun and not the worker. */
#include "worker_runtime/runtime/worker_place.h"

#include "base/memory.h"
#include "base/network/endpoint.h"
#include "base/text/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct launcher_names {
    const char *launcher, *rank, *size, *local_rank, *local_size;
    /* for an error text: how a user of this launcher sets a variable in all processes */
    const char *pass_on;
};

static const struct launcher_names launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "in the environment"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "srun --export=ALL,MASTER_ADDR=HOST,MASTER_PORT=29500"},
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

/* Returns the number in a variable that a launcher may leave unset. Returns -1 if the variable is
 * not set, is below `min`, or is no plain number, such as Slurm's "4(x2)". */
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

/* Returns -EINVAL, and sets err to a text that says of each launcher's two variables whether they
 * are set, for example "RANK unset, WORLD_SIZE set; OMPI_COMM_WORLD_RANK unset, …". */
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
        const struct launcher_names *l = find_launcher(env);
        return cr_fail(err, -EINVAL,
                       "find the store: %s%s%s not set in the environment (rank %d of %d came from "
                       "%s); start the program with crun, or set both to the host of rank 0 and a "
                       "free port: %s",
                       addr == NULL ? "MASTER_ADDR" : "",
                       addr == NULL && port == NULL ? " and MASTER_PORT are"
                       : addr == NULL               ? " is"
                                                    : "",
                       addr != NULL ? "MASTER_PORT is" : "", out->rank, out->world_size,
                       out->source, l != NULL ? l->pass_on : "in the environment");
    }
    if (strlen(addr) >= sizeof(out->master_addr)) {
        return cr_fail(err, -EINVAL, "find the store: MASTER_ADDR is longer than %zu bytes",
                       sizeof(out->master_addr) - 1);
    }
    int number = 0;
    int rc = read_number(env, "MASTER_PORT", 1, 65535, &number, err);
    if (rc < 0) return rc;
    (void) stpcpy(out->master_addr, addr); /* fits: the length was checked above */
    out->master_port = (uint16_t) number;
    return 0;
}

/* ---- tcp://host:port?rank=R&world_size=N ---- */

static int read_query_number(const char *value, const char *method, int min, int *out,
                             struct cr_error *err) {
    char digits[16];
    size_t len = strcspn(value, "&");
    int64_t n = 0;
    (void) snprintf(digits, sizeof(digits), "%.*s", (int) len, value);
    if (len >= sizeof(digits) || cr_parse_i64(digits, min, INT_MAX, &n) < 0) {
        return cr_fail(err, -EINVAL, "initialise by '%s': '%.*s' is not a number of at least %d",
                       method, (int) len, value, min);
    }
    if (*out >= 0 && *out != (int) n) {
        return cr_fail(err, -EINVAL, "initialise by '%s': the options have %d and the query has %d",
                       method, *out, (int) n);
    }
    *out = (int) n;
    return 0;
}

static int read_query(const char *query, const char *method, int *rank, int *world_size,
                      struct cr_error *err) {
    int rc = 0;
    while (rc == 0 && *query != '\0') {
        if (strncmp(query, "rank=", 5) == 0) {
            rc = read_query_number(query + 5, method, 0, rank, err);
        } else if (strncmp(query, "world_size=", 11) == 0) {
            rc = read_query_number(query + 11, method, 1, world_size, err);
        } else {
            rc = cr_fail(err, -EINVAL,
                         "initialise by '%s': the query may hold rank=R and world_size=N", method);
        }
        query += strcspn(query, "&");
        if (*query == '&') query++;
    }
    return rc;
}

static int read_tcp(const char *method, struct worker_place *out, int *rank, int *world_size,
                    struct cr_error *err) {
    const char *address = method + strlen("tcp://");
    size_t len = strcspn(address, "?");
    char text[CR_HOST_MAX + 16];
    struct cr_endpoint endpoint;
    if (len == 0 || len >= sizeof(text)) {
        return cr_fail(err, -EINVAL, "initialise by '%s': write tcp://HOST:PORT", method);
    }
    (void) snprintf(text, sizeof(text), "%.*s", (int) len, address);
    int rc = cr_endpoint_parse(text, 0, &endpoint, err);
    if (rc < 0) return cr_wrap(err, "initialise by '%s'", method);
    if (endpoint.port == 0) {
        return cr_fail(err, -EINVAL,
                       "initialise by '%s': the port is missing; write tcp://HOST:PORT", method);
    }
    _Static_assert(sizeof(endpoint.host) <= sizeof(out->master_addr), "every host fits");
    (void) stpcpy(out->master_addr, endpoint.host);
    out->master_port = endpoint.port;
    return address[len] == '?' ? read_query(address + len + 1, method, rank, world_size, err) : 0;
}

static int read_file(const char *method, struct worker_place *out, int *rank, int *world_size,
                     struct cr_error *err) {
    const char *path = method + strlen("file://");
    size_t len = strcspn(path, "?");
    if (path[0] != '/' || len < 2 || len >= sizeof(out->file)) {
        return cr_fail(err, -EINVAL, "initialise by '%.200s': write file:///ABSOLUTE/PATH", method);
    }
    memcpy(out->file, path, len);
    out->file[len] = '\0';
    return path[len] == '?' ? read_query(path + len + 1, method, rank, world_size, err) : 0;
}

/* Returns true if the agent hosts the store at the place's address: if TORCHELASTIC_USE_AGENT_STORE
 * is "True" and the address is MASTER_ADDR:MASTER_PORT. A program can give another address by
 * tcp://; at such an address, rank 0 hosts the store. */
static bool agent_hosts(const struct environment *env, const struct worker_place *place) {
    const char *agent = look_up(env, "TORCHELASTIC_USE_AGENT_STORE");
    const char *addr = look_up(env, "MASTER_ADDR"), *port = look_up(env, "MASTER_PORT");
    int64_t n = 0;
    return agent != NULL && strcmp(agent, "True") == 0 && addr != NULL &&
           strcmp(addr, place->master_addr) == 0 && cr_parse_i64(port, 0, 65535, &n) == 0 &&
           n == place->master_port;
}

int worker_place_read(worker_place_get_fn get, void *arg, const char *method, int rank,
                      int world_size, struct worker_place *out, struct cr_error *err) {
    struct environment env = {get, arg};
    struct worker_place place = {.restart_count = 0};
    bool by_environment = method == NULL || strcmp(method, "env://") == 0;
    int rc = 0;
    if (!by_environment && strncmp(method, "tcp://", 6) == 0) {
        rc = read_tcp(method, &place, &rank, &world_size, err);
    } else if (!by_environment && strncmp(method, "file://", 7) == 0) {
        rc = read_file(method, &place, &rank, &world_size, err);
    } else if (!by_environment) {
        rc = cr_fail(
            err, -ENOTSUP,
            "initialise by '%s': unknown method; use env://, tcp://HOST:PORT or file:///PATH",
            method);
    }
    if (rc == 0) rc = read_ranks(&env, rank, world_size, &place, err);
    if (rc == 0 && by_environment) rc = read_address(&env, &place, err);
    if (rc < 0) return rc;
    int restarts = read_hint(&env, "TORCHELASTIC_RESTART_COUNT", 0);
    place.restart_count = restarts > 0 ? restarts : 0;
    place.kept = -1;
    place.agent_hosts_store = agent_hosts(&env, &place);
    *out = place;
    return 0;
}

/* ---- worker_place_from_packet() ---- */

static bool is_consistent(const struct channel_packet *p) {
    return p->place.world_size > 0 && p->place.world_size <= INT_MAX &&
           p->place.rank < p->place.world_size && p->place.local_world_size <= INT_MAX &&
           p->place.local_rank < p->place.local_world_size && p->place.restart_count <= INT_MAX &&
           p->place.master_port <= UINT16_MAX &&
           memchr(p->place.master_addr, '\0', sizeof(p->place.master_addr)) != NULL;
}

int worker_place_from_packet(const struct channel_packet *p, struct worker_place *out,
                             struct cr_error *err) {
    if (!is_consistent(p)) {
        return cr_fail(err, -EPROTO, "rejoin: the agent sent a place that makes no sense");
    }
    out->rank = (int) p->place.rank;
    out->world_size = (int) p->place.world_size;
    out->local_rank = (int) p->place.local_rank;
    out->local_world_size = (int) p->place.local_world_size;
    out->restart_count = (int) p->place.restart_count;
    out->kept = p->place.kept <= p->place.world_size + 1 ? (int) p->place.kept - 1 : -1;
    out->master_port = (uint16_t) p->place.master_port;
    (void) stpcpy(out->master_addr, p->place.master_addr);
    /* An agent always hosts the store of a round that a worker joins by ROUND. */
    out->agent_hosts_store = true;
    out->file[0] = '\0';
    return 0;
}
