/* A signpost: a TCPStore at the endpoint that somebody else runs, which cannot host a coordinator.
 * One key of it says which node hosts the job's coordinator (signpost_value_internal.h). The first
 * node that claims the key hosts. While that node hosts, it writes the key again every few seconds,
 * in case the store has lost it. */
#ifndef RENDEZVOUS_SIGNPOST_INTERNAL_H
#define RENDEZVOUS_SIGNPOST_INTERNAL_H

#include "rendezvous/way/signpost_value_internal.h"

#include <uv.h>

struct signpost;

/* Called on the loop's thread, never from inside a function of this header. */
struct signpost_events {
    /* The key names this node: the claim of signpost_look() has won. */
    void (*on_won)(void *arg, const struct signpost_value *value);
    /* The key names another node. Also called, at any time, when a newer value has replaced the one
     * that signpost_publish() writes; in that case this node writes no value any more. */
    void (*on_named)(void *arg, const struct signpost_value *value);
    /* Returns whether the value of signpost_publish() may be written now. */
    bool (*may_publish)(void *arg);
    /* The key names no node, or the store cannot be asked. */
    void (*on_unknown)(void *arg, const char *why);
};

/* Creates a signpost for the store at `host`, a numeric address. is_old: it speaks the protocol of
 * torch 2.0 and earlier. Copies `host` and `run_id`. Returns NULL when memory is short. */
struct signpost *signpost_new(uv_loop_t *loop, const char *host, uint16_t port, bool is_old,
                              const char *run_id, const struct signpost_events *events, void *arg);

/* Reads the key once; one of the events follows. If `mine` is not NULL, first claims the key:
 * writes `mine` if there is no value, or if the value is `stale`, which may be NULL. A question
 * that is under way is dropped. */
void signpost_look(struct signpost *s, const struct signpost_value *mine,
                   const struct signpost_value *stale);
/* Drops the question of signpost_look(). No event follows. */
void signpost_hang_up(struct signpost *s);

/* From now on, writes `mine` every few seconds, unless the key has a newer value. */
void signpost_publish(struct signpost *s, const struct signpost_value *mine);
/* Stops writing. */
void signpost_fall_silent(struct signpost *s);

/* Frees the signpost when its libuv handles are closed, and calls on_close. No event follows. If
 * `is_over` is true and this node publishes, first empties the key, which takes a second at most.
 */
void signpost_close(struct signpost *s, bool is_over, void (*on_close)(void *arg), void *arg);

#endif
