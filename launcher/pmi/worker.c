/* Starts a worker's program with a helper that answers its PMI requests: see pmi.h. */
#include "launcher/pmi/pmi.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/text/parse.h"
#include "base/time/clock.h"
#include "launcher/pmi/elf_internal.h"
#include "launcher/pmi/request_internal.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX     "crun/pmi/" /* of the keys in the job's store */
#define NODE_MS    300000 /* longest wait in ms until another node has stored its number of
                           * workers */
#define CONNECT_MS 60000
#define NODES_MAX  65536

enum mpi_family pmi_family_of_file(const char *path) {
    struct stat st;
    enum mpi_family family = MPI_NONE;
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return MPI_NONE;
    size_t len = (size_t) st.st_size;
    void *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) {
        family = elf_mpi_family(data, len);
        (void) munmap(data, len);
    }
    return family;
}

/* ---- the helper ---- */

struct helper {
    int fd; /* socket to the program */
    struct pmi_place place;
    uint32_t local_rank, local_size, node, nodes;
    struct store *store; /* NULL before the first request */
    uint32_t barriers;   /* number of barriers so far */
    bool was_used;       /* true once the program has sent its first request */
};

static struct store_bytes key_of(char out[PMI_KEY_MAX + 32], const char *kind, const char *name) {
    int n = snprintf(out, PMI_KEY_MAX + 32, PREFIX "%s/%s", kind, name);
    return (struct store_bytes){out, (size_t) n};
}

/* Connects to the store. The helper of the worker with local rank 0 also stores the number of
 * workers of its node. Returns 0; or a negative errno, and sets err. */
static int open_store(struct helper *h, struct cr_error *err) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    char node[16], count[16], key[PMI_KEY_MAX + 32];
    int64_t number = 0;
    if (host == NULL || cr_parse_i64(port, 1, UINT16_MAX, &number) < 0) {
        return cr_fail(err, -EINVAL, "MASTER_ADDR and MASTER_PORT do not say where the store is");
    }
    struct store_client *client;
    int rc = store_client_connect(host, (uint16_t) number, STORE_PROTOCOL_PROBE, CONNECT_MS,
                                  &client, err);
    if (rc == 0) h->store = store_client_store(client);
    if (rc < 0 || h->local_rank != 0) return rc;
    (void) snprintf(node, sizeof(node), "%u", h->node);
    (void) snprintf(count, sizeof(count), "%u", h->local_size);
    return store_set(h->store, key_of(key, "node", node), STORE_BYTES(count), NODE_MS, err);
}

/* Appends the value of PMI_process_mapping. Waits for the number of workers of each node, which
 * another helper stores. Returns 0; or a negative errno, and sets err. */
static int find_mapping(struct helper *h, struct cr_buffer *out, struct cr_error *err) {
    char node[16], key[PMI_KEY_MAX + 32];
    CR_AUTO_FREE uint32_t *workers = calloc(h->nodes, sizeof(*workers));
    int rc = workers == NULL ? cr_fail(err, -ENOMEM, "no memory left") : 0;
    for (uint32_t i = 0; i < h->nodes && rc == 0; i++) {
        CR_AUTO_FREE void *value = NULL;
        size_t len;
        int64_t count = 0;
        (void) snprintf(node, sizeof(node), "%u", i);
        rc = store_get(h->store, key_of(key, "node", node), NODE_MS, &value, &len, err);
        if (rc == 0 && cr_parse_i64(value, 1, UINT32_MAX, &count) < 0) {
            rc = cr_fail(err, -EPROTO, "the store has no number of workers for node %u", i);
        }
        workers[i] = (uint32_t) count;
    }
    return rc == 0 ? pmi_write_mapping(workers, h->nodes, out) : rc;
}

static int get(struct helper *h, const char *name, struct cr_buffer *answer, struct cr_error *err) {
    char key[PMI_KEY_MAX + 32];
    CR_AUTO_FREE void *value = NULL;
    size_t len;
    int present = 0;
    if (strcmp(name, "PMI_process_mapping") == 0) {
        struct cr_buffer mapping = {0};
        int rc = find_mapping(h, &mapping, err);
        if (rc == 0) rc = pmi_write_value(name, mapping.data, answer);
        cr_buffer_done(&mapping);
        return rc;
    }
    struct store_bytes bytes = key_of(key, "key", name);
    int rc = store_check(h->store, &bytes, 1, CR_FOREVER, &present, err);
    if (rc == 0 && present) rc = store_get(h->store, bytes, CR_FOREVER, &value, &len, err);
    return rc == 0 ? pmi_write_value(name, value, answer) : rc;
}

static int carry_out(struct helper *h, const struct pmi_request *r, struct cr_buffer *answer,
                     struct cr_error *err) {
    char key[PMI_KEY_MAX + 32], number[16];
    switch (r->action) {
    case PMI_PUT:
        return store_set(h->store, key_of(key, "key", r->key), STORE_BYTES(r->value), CR_FOREVER,
                         err);
    case PMI_GET: return get(h, r->key, answer, err);
    case PMI_BARRIER:
        (void) snprintf(number, sizeof(number), "%u", h->barriers++);
        return store_barrier(h->store, key_of(key, "barrier", number), h->place.size, CR_FOREVER,
                             err);
    case PMI_ANSWER:
    case PMI_END:
    case PMI_ABORT: break;
    }
    return 0;
}

static int send_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -errno;
        data += n;
        len -= (size_t) n;
    }
    return 0;
}

/* Carries out the request in `line`. Returns 0 if more requests may follow; 1 if this was the last
 * one; or a negative errno, and sets err. */
static int serve_line(struct helper *h, const char *line, struct cr_error *err) {
    struct pmi_request request;
    struct cr_buffer answer = {0};
    int rc = pmi_read_request(line, &h->place, &request, &answer);
    if (!h->was_used) {
        h->was_used = true;
        /* From now on this process may have to wait for the store. The default action of SIGTERM
         * ends such a wait by ending the process. */
        (void) signal(SIGTERM, SIG_DFL);
        if (rc == 0) rc = open_store(h, err);
    }
    if (rc == 0) rc = carry_out(h, &request, &answer, err);
    if (rc == 0 && answer.len > 0) rc = send_all(h->fd, answer.data, answer.len) < 0;
    cr_buffer_done(&answer);
    bool is_end = request.action == PMI_END || request.action == PMI_ABORT;
    return rc == 0 && is_end ? 1 : rc;
}

/* Carries out the requests of all complete lines in data[0..*len), and moves an incomplete last
 * line to the front. Returns as serve_line(). */
static int serve_lines(struct helper *h, char *data, size_t *len, struct cr_error *err) {
    char *at = data, *newline;
    size_t left = *len;
    int rc = 0;
    while (rc == 0 && (newline = memchr(at, '\n', left)) != NULL) {
        *newline = '\0';
        rc = serve_line(h, at, err);
        left -= (size_t) (newline + 1 - at);
        at = newline + 1;
    }
    memmove(data, at, left);
    *len = left;
    return rc == 0 && left == PMI_LINE_MAX ? cr_fail(err, -EMSGSIZE, "a request is too long") : rc;
}

/* Answers the program's requests until the program ends. Returns 0; or a negative errno, and sets
 * err. */
static int serve(struct helper *h, struct cr_error *err) {
    static char data[PMI_LINE_MAX];
    size_t len = 0;
    for (;;) {
        ssize_t n = read(h->fd, data + len, sizeof(data) - len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        len += (size_t) n;
        int rc = serve_lines(h, data, &len, err);
        if (rc != 0) return rc < 0 ? rc : 0;
    }
}

/* Runs the helper: answers the program's requests, and ends this process. `mask` is the signal mask
 * of the program. */
static _Noreturn void run_helper(struct helper *h, const sigset_t *mask) {
    struct cr_error err = {0};
    (void) prctl(PR_SET_NAME, "crun-pmi");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) (void) !(dup2(null, 0) + dup2(null, 1));
    /* The agent sends SIGTERM to this helper when the program has ended. The helper ignores it as
     * long as there was no request, because it must first warn that the program has not used PMI.
     * The signals are blocked since the fork, because a short program may end before this line. */
    (void) signal(SIGTERM, SIG_IGN);
    (void) signal(SIGINT, SIG_IGN);
    (void) signal(SIGHUP, SIG_IGN);
    (void) sigprocmask(SIG_SETMASK, mask, NULL);
    int rc = serve(h, &err);
    if (rc < 0) {
        cr_warn("rank %u: a request by PMI could not be served: %s", h->place.rank, err.text);
    } else if (!h->was_used && h->place.rank == 0 && h->place.size > 1) {
        cr_warn("rank 0 has ended without a request by PMI: if it is an MPI program, its MPI is "
                "not of the MPICH family (Open MPI, for example), and each of the %u ranks ran "
                "alone; use MPICH, or start it by that MPI's mpirun", h->place.size);
    }
    _exit(0);
}

/* ---- the worker ---- */

static int read_number(const char *name, int64_t max, uint32_t *out, struct cr_error *err) {
    int64_t number = 0;
    if (cr_parse_i64(getenv(name), 0, max, &number) < 0) {
        return cr_fail(err, -EINVAL, "%s is not the environment of a worker: crun --pmi-worker is "
                       "not meant to be called by hand; see crun --pmi", name);
    }
    *out = (uint32_t) number;
    return 0;
}

static int read_place(struct helper *h, struct cr_error *err) {
    int rc = read_number("RANK", UINT32_MAX, &h->place.rank, err);
    if (rc == 0) rc = read_number("WORLD_SIZE", UINT32_MAX, &h->place.size, err);
    if (rc == 0) rc = read_number("LOCAL_RANK", UINT32_MAX, &h->local_rank, err);
    if (rc == 0) rc = read_number("LOCAL_WORLD_SIZE", UINT32_MAX, &h->local_size, err);
    if (rc == 0) rc = read_number("GROUP_RANK", NODES_MAX, &h->node, err);
    return rc == 0 ? read_number("GROUP_WORLD_SIZE", NODES_MAX, &h->nodes, err) : rc;
}

/* Sets the variables by which a program of the MPICH family learns its rank and its socket. */
static void set_variables(const struct helper *h, int fd) {
    const struct {
        const char *name;
        uint32_t value;
    } variables[] = {{"PMI_FD", (uint32_t) fd},
                     {"PMI_RANK", h->place.rank},
                     {"PMI_SIZE", h->place.size},
                     {"MPI_LOCALRANKID", h->local_rank},
                     {"MPI_LOCALNRANKS", h->local_size}};
    for (size_t i = 0; i < CR_ARRAY_LEN(variables); i++) {
        char text[16];
        (void) snprintf(text, sizeof(text), "%u", variables[i].value);
        (void) setenv(variables[i].name, text, 1);
    }
}

int pmi_run_worker(char *const *argv, struct cr_error *err) {
    struct helper h = {0};
    sigset_t stops, mask;
    int ends[2];
    if (argv[0] == NULL) return cr_fail(err, -EINVAL, "no program given");
    int rc = read_place(&h, err);
    if (rc < 0) return rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return cr_fail_errno(err, "cannot make a socket for PMI");
    }
    (void) sigemptyset(&stops);
    (void) sigaddset(&stops, SIGTERM);
    (void) sigaddset(&stops, SIGINT);
    (void) sigaddset(&stops, SIGHUP);
    (void) sigprocmask(SIG_BLOCK, &stops, &mask);
    pid_t pid = fork();
    if (pid < 0) return cr_fail_errno(err, "cannot start a process that answers PMI");
    if (pid == 0) {
        (void) close(ends[0]);
        h.fd = ends[1];
        run_helper(&h, &mask);
    }
    (void) sigprocmask(SIG_SETMASK, &mask, NULL);
    (void) close(ends[1]);
    (void) fcntl(ends[0], F_SETFD, 0);
    set_variables(&h, ends[0]);
    (void) execv(argv[0], argv);
    return cr_fail_errno(err, "cannot execute '%.300s'", argv[0]);
}
