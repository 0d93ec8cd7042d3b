/* The frames of a trunk, the connection between a relay and a coordinator's host that carries the
 * sessions of several members. A frame of a member's session follows a VIA frame, which names the
 * member; every other frame is between the relay and the host. Pure. */
#ifndef RENDEZVOUS_TRUNK_H
#define RENDEZVOUS_TRUNK_H

#include "rendezvous/protocol/message.h"

#include <stdbool.h>

/* The received part of a trunk. The owner embeds this struct and sets all its bytes to 0 before the
 * first use; the fields are private. */
struct rdzv_trunk {
    struct cr_buffer in; /* bytes received but not handled yet */
    bool has_via;        /* true: the last frame was VIA, so the next one is a member's */
    uint32_t via;        /* place of this member, less than RDZV_RELAY_PLACES */
};

/* Handles what a trunk carries. Texts, messages and frames are valid until the function returns.
 * Both functions return 0, or a negative errno and a text in err, after which the trunk has to be
 * closed. */
struct rdzv_trunk_actions {
    /* A frame of the session of the member at `place` has come, with its length field. */
    int (*on_frame)(void *arg, uint32_t place, const char *frame, size_t len, struct cr_error *err);
    /* A message between the relay and the host has come. */
    int (*on_message)(void *arg, const struct rdzv_message *m, struct cr_error *err);
};

void rdzv_trunk_done(struct rdzv_trunk *t);
/* Handles received bytes, in pieces of any size. Returns 0; -EPROTO and a text in err if the length
 * of a frame is out of range, a message between relay and host cannot be decoded, or a VIA names a
 * place that does not exist; -ENOMEM and a text in err; or the error of an action. */
int rdzv_trunk_receive(struct rdzv_trunk *t, const char *data, size_t len,
                       const struct rdzv_trunk_actions *actions, void *arg, struct cr_error *err);
/* Appends to `out` the complete frames in `frames`, each after a VIA that names `place`, and
 * empties `frames`. Returns 0 or -ENOMEM. */
int rdzv_trunk_wrap(uint32_t place, struct cr_buffer *frames, struct cr_buffer *out);

#endif
