/* Memory that the processes of one communicator share.
 *
 * The process that made the unique id owns the memory, and the other processes open it through
 * /proc/<pid>/fd. So a unique id cannot be used after its process has ended. In NCCL this is the
 * same, because that process has the listening socket of the bootstrap root (2.28.9, bootstrap.cc,
 * bootstrapGetUniqueId). If HOST_NCCL_NET is "socket", the other ranks notice the death of a rank,
 * as over a network (ncclRemoteError). Otherwise they do not, as with NVLink or shared memory. */
#include "tests/host_nccl/peers.h"

#include "tests/host_nccl/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

struct head {
    _Atomic uint64_t magic;
    _Atomic int size;
};

#define PAGE ((size_t) 4096)

static size_t rounded_up(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }

static size_t ranks_bytes(int size) {
    return rounded_up((size_t) size * sizeof(struct peers_rank));
}

static size_t total_bytes(int size) {
    size_t n = (size_t) size;
    return PAGE + ranks_bytes(size) + n * 2 * PEERS_CHUNK + n * n * sizeof(struct peers_ring);
}

int peers_make(struct peers_address *out) {
    struct peers_address a = {.pid = (int32_t) getpid()};
    if (getrandom(&a.magic, sizeof(a.magic), 0) != sizeof(a.magic)) return -EIO;
    a.magic |= 1;
    a.fd = memfd_create("host-nccl-peers", MFD_CLOEXEC);
    if (a.fd < 0) return -errno;
    if (ftruncate(a.fd, (off_t) PAGE) < 0 || pwrite(a.fd, &a.magic, sizeof(a.magic), 0) < 0) {
        (void) close(a.fd);
        return -EIO;
    }
    *out = a;
    return 0;
}

void peers_forget(const struct peers_address *a) {
    if (a->pid == (int32_t) getpid()) (void) close(a->fd);
}

/* Maps the memory for a communicator of `size` ranks, and stores its address in *memory. The first
 * rank that calls this stores its `size` in the memory. Returns 0; -EINVAL if another rank has
 * stored a different size; -ECONNREFUSED if the memory is not that of the address `a`; or another
 * negative errno. */
static int agree_on_size(int fd, const struct peers_address *a, int size, void **memory) {
    int none = 0;
    if (ftruncate(fd, (off_t) total_bytes(size)) < 0) return -errno;
    *memory = mmap(NULL, total_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*memory == MAP_FAILED) return -errno;
    struct head *h = *memory;
    if (atomic_load(&h->magic) != a->magic) return -ECONNREFUSED;
    if (!atomic_compare_exchange_strong(&h->size, &none, size) && none != size) return -EINVAL;
    return 0;
}

static void watch_deaths(struct peers *p) {
    const char *net = getenv("HOST_NCCL_NET");
    if (net == NULL || strcmp(net, "socket") != 0) return;
    p->pidfds = malloc((size_t) p->size * sizeof(*p->pidfds));
    for (int r = 0; p->pidfds != NULL && r < p->size; r++) p->pidfds[r] = -1;
}

int peers_attach(const struct peers_address *a, int rank, int size, struct peers **out) {
    char path[64];
    void *memory = MAP_FAILED;
    (void) snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) a->pid, (int) a->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -ECONNREFUSED;
    int rc = agree_on_size(fd, a, size, &memory);
    (void) close(fd);
    struct peers *p = rc == 0 ? calloc(1, sizeof(*p)) : NULL;
    if (p == NULL) {
        if (memory != MAP_FAILED) (void) munmap(memory, total_bytes(size));
        return rc < 0 ? rc : -ENOMEM;
    }
    p->rank = rank;
    p->size = size;
    p->bytes = total_bytes(size);
    p->ranks = (struct peers_rank *) (void *) ((char *) memory + PAGE);
    p->chunks = (char *) p->ranks + ranks_bytes(size);
    p->rings = (struct peers_ring *) (void *) (p->chunks + (size_t) size * 2 * PEERS_CHUNK);
    watch_deaths(p);
    if (atomic_exchange(&p->ranks[rank].attached, 1) != 0) {
        peers_detach(p);
        return -EINVAL;
    }
    atomic_store(&p->ranks[rank].pid, (int) getpid());
    *out = p;
    return 0;
}

void peers_detach(struct peers *p) {
    if (p == NULL) return;
    for (int r = 0; p->pidfds != NULL && r < p->size; r++)
        if (p->pidfds[r] >= 0) (void) close(p->pidfds[r]);
    free(p->pidfds);
    (void) munmap((char *) p->ranks - PAGE, p->bytes);
    free(p);
}

bool peers_wait(struct peers *p, size_t offset, uint64_t value, const bool *members,
                peers_give_up give_up, void *arg) {
    for (int r = 0; r < p->size; r++) {
        const _Atomic uint64_t *counter =
            (const _Atomic uint64_t *) (const void *) ((const char *) &p->ranks[r] + offset);
        if (members != NULL && !members[r]) continue;
        for (unsigned turn = 0; atomic_load(counter) < value; turn++) {
            if (give_up(arg)) return false;
            host_pause(turn);
        }
    }
    return true;
}

char *peers_chunk(struct peers *p, int rank, uint64_t step) {
    return p->chunks + ((size_t) rank * 2 + (size_t) (step & 1)) * PEERS_CHUNK;
}

struct peers_ring *peers_ring(struct peers *p, int from, int to) {
    return &p->rings[(size_t) from * (size_t) p->size + (size_t) to];
}

int peers_dead(struct peers *p) {
    for (int r = 0; p->pidfds != NULL && r < p->size; r++) {
        int pid = atomic_load(&p->ranks[r].pid);
        if (r == p->rank || pid == 0) continue;
        if (p->pidfds[r] < 0) p->pidfds[r] = (int) syscall(SYS_pidfd_open, pid, 0);
        struct pollfd poller = {p->pidfds[r], POLLIN, 0};
        if (p->pidfds[r] < 0 || poll(&poller, 1, 0) > 0) return r;
    }
    return -1;
}
