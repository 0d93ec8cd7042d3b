/* The servers that tests/bench/store.c compares. Each is a process of its own, pinned to one core,
 * that listens on a free port. */
#ifndef BENCH_STORE_PEERS_H
#define BENCH_STORE_PEERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum peer_kind { PEER_OURS, PEER_TORCH, PEER_REDIS, PEER_ECHO, PEER_COUNT };

struct peer {
    enum peer_kind kind;
    const char *name;
    pid_t pid; /* 0 if the server could not be started */
    uint16_t port;
};

/* Starts a server. Returns pid 0 if the program is not installed. */
struct peer peer_start(enum peer_kind kind);
void peer_stop(struct peer *p);

/* Returns whether a client sends VALIDATE and PING first, as torch 2.4 and later do. Crun's store
 * understands clients of both protocol generations; the benchmark uses the newer one for it. The
 * answer for PEER_TORCH depends on the installed version, which is known after peer_start(). */
bool peer_is_greeted(enum peer_kind kind);

int64_t peer_cpu_ns(const struct peer *p); /* user and system time of all threads of the server */
long peer_resident_kib(const struct peer *p);
void pin_to_core(int core);

/* When the echo server receives this byte, it sends one byte to each connection but the first. The
 * time that this takes is a lower bound for the time in which a store wakes all waiting clients. */
#define ECHO_BROADCAST 0xbb

#endif
