/* The servers that the store bench compares, each a process on a free port, pinned to one core. */
#ifndef BENCH_STORE_PEERS_H
#define BENCH_STORE_PEERS_H

#include <stdint.h>
#include <sys/types.h>

enum peer_kind { PEER_OURS, PEER_TORCH, PEER_REDIS, PEER_ECHO, PEER_COUNT };

struct peer {
    enum peer_kind kind;
    const char *name;
    pid_t pid; /* 0: not here */
    uint16_t port;
};

/* A fresh one; pid 0 where the program is not installed. */
struct peer peer_start(enum peer_kind kind);
void peer_stop(struct peer *p);

int64_t peer_cpu_ns(const struct peer *p); /* user and system time of all its threads */
long peer_resident_kib(const struct peer *p);
void pin_to_core(int core);

/* The echo peer sends this many one-byte messages, one to every other connection, when it receives
 * this byte: the floor of a wake-up. */
#define ECHO_BROADCAST 0xbb

#endif
