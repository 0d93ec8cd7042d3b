/* One call to etcd's JSON gateway (v3): an HTTP POST over a connection of its own. etcd answers
 * with one JSON object or with a stream of objects. */
#ifndef RENDEZVOUS_ETCD_CALL_INTERNAL_H
#define RENDEZVOUS_ETCD_CALL_INTERNAL_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>
#include <uv.h>

struct etcd_call;

struct etcd_call_events {
    /* Called for each object of the answer; `answer` is valid until the callback returns.
     * `own_addr` is the numeric address of this end of the connection. The callback may cancel the
     * call. */
    void (*on_answer)(void *arg, const json_t *answer, const char *own_addr);
    /* The call is over, and its etcd_call must not be used any more. `why` is NULL if the answer
     * was complete, else the error. */
    void (*on_done)(void *arg, const char *why);
};

/* Starts a call; the callbacks run later, on the loop. `path` is the URL's path, "/v3/lease/grant"
 * for example; `body` need not live longer than this call. Returns NULL when memory is short. */
struct etcd_call *etcd_call_start(uv_loop_t *loop, const char *host, uint16_t port,
                                  const char *path, const json_t *body,
                                  const struct etcd_call_events *events, void *arg);

/* Ends the call early. No callback follows; the call is freed when its libuv handles are closed. */
void etcd_call_cancel(struct etcd_call *call);

#endif
