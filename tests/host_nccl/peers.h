/* Memory that the processes of one communicator share. It replaces what connects GPUs (NVLink or a
 * network) and NCCL's bootstrap network. No wait has a timeout, so every wait takes a function that
 * is polled and ends the wait by returning true. */
#ifndef HOST_NCCL_PEERS_H
#define HOST_NCCL_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEERS_CHUNK ((size_t) 64 << 10) /* most bytes that a rank publishes in one exchange */
#define PEERS_RING  ((size_t) 64 << 10) /* most bytes under way from one rank to another */

/* Names the shared memory. It must fit into an ncclUniqueId. */
struct peers_address {
    uint64_t magic;
    int32_t pid, fd;
};

/* A collective that a rank has called. The ranks compare these records, because all ranks must call
 * the same collectives in the same order. */
struct peers_call {
    uint32_t kind, type, op, root;
    uint64_t count;
};

struct peers_rank {
    _Atomic int attached, pid;
    int device;
    uint64_t host;
    _Atomic uint64_t phase;     /* barriers of init and split that this rank has reached */
    _Atomic uint64_t shrink;    /* barriers of shrink that this rank has reached */
    _Atomic uint64_t connected; /* 1 when this rank has connected for its first collective */
    _Atomic uint64_t step;      /* exchanges of data that this rank's kernels have reached */
    struct peers_call call[2];  /* the current collective and the one before it */
    int color, key;             /* arguments of the current split */
    struct peers_address child; /* the memory that this rank made for a child communicator */
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
    int *pidfds; /* by rank; if it is NULL, the death of a rank is not noticed, as with NVLink */
};

/* Makes shared memory and stores its address in *out. Ranks can attach to it until this process
 * ends or calls peers_forget(). Returns 0 or a negative errno. */
int peers_make(struct peers_address *out);
void peers_forget(const struct peers_address *address);

/* Attaches to the memory as one rank. Returns 0; -ECONNREFUSED if the process that made the memory
 * has ended or forgotten it; -EINVAL if another rank gave another size or has the same number. */
int peers_attach(const struct peers_address *address, int rank, int size, struct peers **out);
void peers_detach(struct peers *p);

typedef bool (*peers_give_up)(void *arg);

/* Waits until the counter that lies `offset` bytes into struct peers_rank has reached `value` for
 * each rank r for which members[r] is true; if `members` is NULL, for all ranks. Returns false if
 * give_up(arg) returned true first. */
bool peers_wait(struct peers *p, size_t offset, uint64_t value, const bool *members,
                peers_give_up give_up, void *arg);

/* A barrier: increases this rank's counter and waits until the other ranks have done the same. */
#define PEERS_BARRIER(p, counter, members, give_up, arg)                                           \
    peers_wait(p, offsetof(struct peers_rank, counter),                                            \
               atomic_fetch_add(&(p)->ranks[(p)->rank].counter, 1) + 1, members, give_up, arg)

/* Returns where `rank` publishes its data in the exchange number `step`. */
char *peers_chunk(struct peers *p, int rank, uint64_t step);

/* Returns the ring for messages from rank `from` to rank `to`. */
struct peers_ring *peers_ring(struct peers *p, int from, int to);

/* Returns a rank whose process has ended, or -1. Returns -1 always unless HOST_NCCL_NET=socket. */
int peers_dead(struct peers *p);

#endif
