/* Sends LEADS to the host at a job's endpoint, every few seconds: it says that another host leads
 * the job. A node that has taken over runs a knocker while it leads. Usually nobody listens at the
 * endpoint, because its host was lost. But the launcher that was lost may come back, or be
 * started again, and new nodes connect to the endpoint. */
#ifndef RENDEZVOUS_KNOCKER_INTERNAL_H
#define RENDEZVOUS_KNOCKER_INTERNAL_H

#include "rendezvous/host/host.h"

#include <stdint.h>
#include <uv.h>

struct knocker;
struct secure_ring;

struct knocker_settings {
    const char *host;   /* the endpoint; copied */
    uint16_t port;
    const char *run_id; /* copied */
    struct secure_ring *ring;      /* secrets of the job; NULL = none; must live until on_close */
    const struct coordinator_host *leader; /* knocks are made only while this host leads */
};

/* Creates a knocker. Returns NULL when memory is short. */
struct knocker *knocker_new(uv_loop_t *loop, const struct knocker_settings *settings);
/* Begins to knock every few seconds. addr and port are those of the leader. */
void knocker_start(struct knocker *k, const char *addr, uint16_t port);
void knocker_stop(struct knocker *k);
/* Frees the knocker when its libuv handles are closed, and calls on_close. */
void knocker_close(struct knocker *k, void (*on_close)(void *arg), void *arg);

#endif
