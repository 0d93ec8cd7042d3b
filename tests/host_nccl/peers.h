/* Memory that the processes of one communicator share. It replaces NVLink, the network between
 * GPUs, and NCCL's bootstrap network. Waits have no timeout. Instead, a wait polls a function that
 * the caller gives; the wait ends without success when this function returns true. */
#ifndef HOST_NCCL_PEERS_H
#define HOST_NCCL_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEERS_CHUNK ((size_t) 64 << 10) /* limit in bytes of one rank's data in one exchange */
#define PEERS_RING  ((size_t) 64 << 10) /* limit in bytes of data on its way from rank to rank */

/* The address of the shared memory: file descriptor `fd` of the process `pid`. It is sent in an
 * ncclUniqueId, so it must not be larger than one. */
struct peers_address {
    uint64_t magic;
    int32_t pid, fd;
};

/* A collective that a rank has called. The ranks compare these records, because all ranks of a
 * communicator must call the same collectives in the same order. */
struct peers_call {
    uint32_t kind, type, op, root;
    uint64_t count;
};

struct peers_rank {
    _Atomic int attached, pid;
    int device;
    uint64_t host;
    _Atomic uint64_t phase;     /* number of barriers of init and split that this rank has
                                 * reached */
    _Atomic uint64_t shrink;    /* number of barriers of shrink that this rank has reached */
    _Atomic uint64_t connected; /* 1 once this rank has connected for its first collective */
    _Atomic uint64_t step;      /* number of data exchanges that this rank's kernels have begun */
    struct peers_call call[2];  /* the current collective and the one before it */
    int color, key;             /* arguments of the current split */
    /* address of the shared memory of a child communicator, if this rank has made that memory */
    struct peers_address child;
};

struct peers_ring {
    _Atomic uint64_t written, read; /* total bytes since the ring was made */
    _Atomic int sender, receiver;   /* 1 when that side has connected */
    char data[PEERS_RING];
};

struct peers {
    int rank, size;
    size_t bytes;
    struct peers_rank *ranks;
    char *chunks;
    struct peers_ring *rings;
    /* pidfds[r]: a pidfd of the process of rank r, or -1 if there is none yet. `pidfds` is NULL if
     * HOST_NCCL_NET is not "socket": in that case a rank's death must not be noticed. */
    int *pidfds;
};

/* Makes shared memory and stores its address in *out. Ranks can attach to the memory until this
 * process ends or calls peers_forget(). Returns 0 or a negative errno. */
int peers_make(struct peers_address *out);
void peers_forget(const struct peers_address *address);

/* Attaches this process to the memory as rank `rank` of `size`, and stores the result in *out.
 * Returns 0. Returns -ECONNREFUSED if the process that made the memory has ended or has called
 * peers_forget(), and -EINVAL if another rank gave another size or the same rank; other failures
 * return a negative errno, too. */
int peers_attach(const struct peers_address *address, int rank, int size, struct peers **out);
void peers_detach(struct peers *p);

typedef bool (*peers_give_up)(void *arg);

/* Waits for a counter that each rank has: the member of struct peers_rank at `offset`, in bytes.
 * Waits until this counter is at least `value` on each rank r for which members[r] is true; if
 * `members` is NULL, on all ranks. Polls give_up(arg) during the wait, and returns false when
 * give_up(arg) returns true. Returns true when the counters have the value. */
bool peers_wait(struct peers *p, size_t offset, uint64_t value, const bool *members,
                peers_give_up give_up, void *arg);

/* A barrier: adds 1 to this rank's counter and waits until the other ranks have done the same. Its
 * value is false if give_up(arg) has ended the wait. */
#define PEERS_BARRIER(p, counter, members, give_up, arg)                                           \
    peers_wait(p, offsetof(struct peers_rank, counter),                                            \
               atomic_fetch_add(&(p)->ranks[(p)->rank].counter, 1) + 1, members, give_up, arg)

/* Returns the memory in which `rank` publishes its data for the exchange number `step`. */
char *peers_chunk(struct peers *p, int rank, uint64_t step);

/* Returns the ring buffer for messages from rank `from` to rank `to`. */
struct peers_ring *peers_ring(struct peers *p, int from, int to);

/* Returns a rank whose process has ended, or -1 if there is none. If HOST_NCCL_NET is not "socket",
 * it always returns -1. */
int peers_dead(struct peers *p);

#endif
