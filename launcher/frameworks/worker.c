/* Sets the variables of JAX and TensorFlow and executes a worker's program: implements
 * frameworks.h. */
#include "launcher/frameworks/frameworks.h"

#include "base/cleanup.h"
#include "base/memory.h"
#include "base/network/bind_port.h"
#include "base/text/parse.h"
#include "store/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFIX      "crun/frameworks/" /* of the keys in the job's store */
#define CONNECT_MS  60000
#define EXCHANGE_MS 300000 /* longest wait in ms for the address of another worker */
#define ADDRESS_MAX (INET6_ADDRSTRLEN + 16)
#define WORLD_MAX   65536

/* What the process knows about itself and the job. */
struct place {
    uint32_t rank, world_size, local_rank;
    struct store *store;
    struct cr_port_range ports;
    int fd; /* socket that is bound to a free port, so that no other worker of the host gets this
             * port; closed when all addresses are known; -1 if no port is needed */
    char address[ADDRESS_MAX]; /* "HOST:PORT" of this free port, with [] around an IPv6 address */
};

static int read_number(const char *name, uint32_t *out, struct cr_error *err) {
    int64_t number = 0;
    if (cr_parse_i64(getenv(name), 0, WORLD_MAX, &number) < 0) {
        return cr_fail(err, -EINVAL, "%s is not the environment of a worker: crun "
                       "--framework-worker is not meant to be called by hand; see crun --jax and "
                       "--tf-config", name);
    }
    *out = (uint32_t) number;
    return 0;
}

static int read_place(struct place *p, struct cr_error *err) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct store_client *client;
    int64_t number = 0;
    int rc = read_number("RANK", &p->rank, err);
    if (rc == 0) rc = read_number("WORLD_SIZE", &p->world_size, err);
    if (rc == 0) rc = read_number("LOCAL_RANK", &p->local_rank, err);
    if (rc < 0) return rc;
    if (host == NULL || cr_parse_i64(port, 1, UINT16_MAX, &number) < 0) {
        return cr_fail(err, -EINVAL, "MASTER_ADDR and MASTER_PORT do not say where the store is");
    }
    rc = store_client_connect(host, (uint16_t) number, STORE_PROTOCOL_PROBE, CONNECT_MS, &client,
                              err);
    if (rc == 0) p->store = store_client_store(client);
    return rc;
}

/* ---- a free port ---- */

/* Stores in *out the address from which this host sends packets to the store, with any port. For
 * this, it connects a UDP socket to the store's address, which sends nothing, and reads the
 * socket's own address. */
static int own_address(struct sockaddr_storage *out, socklen_t *len, struct cr_error *err) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_DGRAM};
    int code = getaddrinfo(host, port, &hints, &list);
    if (code != 0) {
        return cr_fail(err, -EHOSTUNREACH, "cannot look up '%.200s': %s", host, gai_strerror(code));
    }
    int rc = -EHOSTUNREACH;
    for (struct addrinfo *at = list; at != NULL && rc < 0; at = at->ai_next) {
        CR_AUTO_FD int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        *len = sizeof(*out);
        if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen) < 0) continue;
        if (getsockname(fd, (struct sockaddr *) out, len) == 0) rc = 0;
    }
    freeaddrinfo(list);
    if (rc < 0) return cr_fail(err, rc, "this host has no address that reaches '%.200s'", host);
    return 0;
}

/* Binds a socket to a free port of p->ports at this host. Stores the socket in p->fd, and its
 * address in p->address. */
static int find_port(struct place *p, struct cr_error *err) {
    struct sockaddr_storage own;
    char host[INET6_ADDRSTRLEN], port[8];
    socklen_t len;
    int rc = own_address(&own, &len, err);
    if (rc < 0) return rc;
    p->fd = socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rc = p->fd < 0 ? -errno : cr_bind_port(p->fd, &own, len, p->ports);
    if (rc < 0) return cr_fail(err, rc, "cannot find a free port: %s", strerror(-rc));
    rc = getnameinfo((struct sockaddr *) &own, len, host, sizeof(host), port, sizeof(port),
                     NI_NUMERICHOST | NI_NUMERICSERV);
    if (rc != 0) return cr_fail(err, -EINVAL, "cannot write an address: %s", gai_strerror(rc));
    (void) snprintf(p->address, sizeof(p->address), own.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
                    host, port);
    return 0;
}

/* ---- exchanging addresses ---- */

static struct store_bytes key_of(char out[64], uint32_t rank) {
    int n = snprintf(out, 64, PREFIX "%u", rank);
    return (struct store_bytes){out, (size_t) n};
}

static int publish(struct place *p, struct cr_error *err) {
    char key[64];
    int rc = find_port(p, err);
    if (rc < 0) return rc;
    return store_set(p->store, key_of(key, p->rank), STORE_BYTES(p->address), EXCHANGE_MS, err);
}

/* Waits until the worker `rank` has stored its address, and stores a malloc'ed copy of it in *out.
 * Returns 0; or a negative errno, and sets err. */
static int learn(struct place *p, uint32_t rank, char **out, struct cr_error *err) {
    char key[64];
    void *value = NULL;
    size_t len = 0;
    int rc = store_get(p->store, key_of(key, rank), EXCHANGE_MS, &value, &len, err);
    if (rc < 0) return cr_wrap(err, "cannot learn the address of rank %u", rank);
    *out = strndup(value, len);
    free(value);
    return *out != NULL ? 0 : cr_fail(err, -ENOMEM, "no memory left");
}

/* ---- the variables ---- */

static void set_number(const char *name, uint32_t value) {
    char text[16];
    (void) snprintf(text, sizeof(text), "%u", value);
    (void) setenv(name, text, 1);
}

/* Sets the variables from which jax.distributed.initialize() learns about the job. JAX has a
 * variable of its own for the address of its coordinator, but none for the number of processes and
 * the rank: it reads these only from the variables of launchers that it knows. crun sets those of
 * Open MPI, because JAX reads them first; so the variables of a Slurm job around this job have no
 * effect. */
static int set_jax(struct place *p, struct cr_error *err) {
    CR_AUTO_FREE char *coordinator = NULL;
    int rc = learn(p, 0, &coordinator, err);
    if (rc < 0) return rc;
    (void) setenv("JAX_COORDINATOR_ADDRESS", coordinator, 1);
    (void) setenv("OMPI_MCA_orte_hnp_uri", "crun", 1);
    set_number("OMPI_COMM_WORLD_SIZE", p->world_size);
    set_number("OMPI_COMM_WORLD_RANK", p->rank);
    set_number("OMPI_COMM_WORLD_LOCAL_RANK", p->local_rank);
    return 0;
}

static int set_tensorflow(struct place *p, struct cr_error *err) {
    struct cr_buffer config = {0};
    char **addresses = calloc(p->world_size + 1, sizeof(*addresses));
    int rc = addresses == NULL ? cr_fail(err, -ENOMEM, "no memory left") : 0;
    for (uint32_t i = 0; i < p->world_size && rc == 0; i++) rc = learn(p, i, &addresses[i], err);
    if (rc == 0) {
        rc = frameworks_write_tf_config((const char *const *) addresses, p->world_size, p->rank,
                                        &config);
        if (rc < 0 || setenv("TF_CONFIG", config.data, 1) < 0) {
            rc = cr_fail(err, -ENOMEM, "no memory left for TF_CONFIG");
        }
    }
    for (uint32_t i = 0; addresses != NULL && i < p->world_size; i++) free(addresses[i]);
    free(addresses);
    cr_buffer_done(&config);
    return rc;
}

int frameworks_run_worker(char *const *argv, struct cr_error *err) {
    struct place p = {.fd = -1};
    if (argv[0] == NULL || argv[1] == NULL) return cr_fail(err, -EINVAL, "no program given");
    bool jax = strstr(argv[0], "jax") != NULL, tf = strstr(argv[0], "tf") != NULL;
    const char *range = strchr(argv[0], '@');
    int rc = range != NULL ? cr_port_range_parse(range + 1, &p.ports, err) : 0;
    if (rc == 0) rc = read_place(&p, err);
    if (rc == 0 && (tf || p.rank == 0)) rc = publish(&p, err);
    if (rc == 0 && jax) rc = set_jax(&p, err);
    if (rc == 0 && tf) rc = set_tensorflow(&p, err);
    cr_close_fd(&p.fd);
    if (rc < 0) return rc;
    (void) execv(argv[1], argv + 1);
    return cr_fail_errno(err, "cannot execute '%.300s'", argv[1]);
}
