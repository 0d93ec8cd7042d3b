/* One call to etcd's JSON gateway (v3): a POST over a connection of its own, answered by one
 * JSON object or by a stream of them. */
#ifndef RENDEZVOUS_ETCD_CALL_INTERNAL_H
#define RENDEZVOUS_ETCD_CALL_INTERNAL_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>
#include <uv.h>

struct etcd_call;

struct etcd_call_events {
    /* One object of the answer, borrowed. `own_addr` is the numeric address of our end. The call
     * may be cancelled from inside. */
    void (*on_answer)(void *arg, const json_t *answer, const char *own_addr);
    /* The call is over and the object is gone. `why` is NULL after a complete answer. */
    void (*on_done)(void *arg, const char *why);
};

/* Starts the call; the events come later, on the loop. `path` is "/v3/…", `body` is borrowed.
 * Returns NULL when memory is short. */
struct etcd_call *etcd_call_start(uv_loop_t *loop, const char *host, uint16_t port,
                                  const char *path, const json_t *body,
                                  const struct etcd_call_events *events, void *arg);

/* No event follows; the call is freed once its handles are closed. */
void etcd_call_cancel(struct etcd_call *call);

#endif
