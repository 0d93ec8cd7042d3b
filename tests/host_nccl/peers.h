/* The ranks of one communicator: memory that their processes share.
 *
 * It stands for what connects GPUs (NVLink, or a network) and for NCCL's bootstrap network. Every
 * wait takes a function that says whether to give up, since nothing here ever times out. */
#ifndef HOST_NCCL_PEERS_H
#define HOST_NCCL_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEERS_CHUNK ((size_t) 64 << 10) /* bytes that a rank publishes at a time */
#define PEERS_RING  ((size_t) 64 << 10) /* bytes on their way between two ranks */

struct peers_address { /* fits into an ncclUniqueId */
    uint64_t magic;
    int32_t pid, fd;
};

struct peers_call { /* what a rank has called, for comparison */
    uint32_t kind, type, op, root;
    uint64_t count;
};

struct peers_rank {
    _Atomic int attached, pid;
    int device;
    uint64_t host;
    _Atomic uint64_t phase;     /* of the bootstrap's barriers */
    _Atomic uint64_t shrink;    /* likewise, among survivors */
    _Atomic uint64_t connected; /* first uses of a collective */
    _Atomic uint64_t step;      /* of the kernels */
    struct peers_call call[2];
    int color, key;
    struct peers_address child;
};

struct peers_ring {
    _Atomic uint64_t written, read; /* bytes so far */
    _Atomic int sender, receiver;   /* have connected */
    char data[PEERS_RING];
};

struct peers {
    int rank, size;
    size_t bytes;
    struct peers_rank *ranks;
    char *chunks;
    struct peers_ring *rings;
    int *pidfds; /* NULL: the death of a peer is silent, as behind NVLink */
};

/* Makes the memory and its address; it lives as long as this process, or until peers_forget(). 0 or
 * a negative errno. */
int peers_make(struct peers_address *out);
void peers_forget(const struct peers_address *address);

/* Attaches to the memory as one rank. 0, -ECONNREFUSED if its maker is gone, -EINVAL if the ranks
 * differ about the size or the rank is taken. */
int peers_attach(const struct peers_address *address, int rank, int size, struct peers **out);
void peers_detach(struct peers *p);

typedef bool (*peers_give_up)(void *arg);

/* Waits until every rank's counter, `offset` bytes into its peers_rank, has reached `value`;
 * members limits that to some ranks (NULL: all). False if it gave up. */
bool peers_wait(struct peers *p, size_t offset, uint64_t value, const bool *members,
                peers_give_up give_up, void *arg);

/* This rank comes to the next barrier of the counter and waits for the others. */
#define PEERS_BARRIER(p, counter, members, give_up, arg)                                           \
    peers_wait(p, offsetof(struct peers_rank, counter),                                            \
               atomic_fetch_add(&(p)->ranks[(p)->rank].counter, 1) + 1, members, give_up, arg)

char *peers_chunk(struct peers *p, int rank, uint64_t step);
struct peers_ring *peers_ring(struct peers *p, int from, int to);

/* A rank whose process has ended, or -1; always -1 where death is silent. */
int peers_dead(struct peers *p);

#endif
