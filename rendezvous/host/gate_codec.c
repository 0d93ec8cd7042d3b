/* The tunnel between a store and a gateway of another node: the coordinator's end of
 * rendezvous/secure, as a codec of the store's server. All functions but host_gate_codec_new() and
 * host_gate_codec_free() run on the store's thread, except work(): with MUNGE, it waits for munged
 * on a thread of libuv's pool, so that the store serves its other clients meanwhile. */
#include "rendezvous/host/host_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the connections of one store have in common. */
struct gate_keys {
    struct secure_keys keys; /* a copy, because the ring belongs to another thread */
    char run_id[SECURE_ID_MAX];
};

struct gate_tunnel {
    const struct gate_keys *common;
    struct secure_tunnel *tunnel;
};

static void *open_tunnel(void *arg) {
    const struct gate_keys *common = arg;
    struct gate_tunnel *t = calloc(1, sizeof(*t));
    if (t == NULL) return NULL;
    t->common = common;
    if (secure_accept(&common->keys, &t->tunnel, NULL) < 0) {
        free(t);
        return NULL;
    }
    if (common->keys.voucher != NULL) secure_tunnel_defer(t->tunnel);
    return t;
}

static void close_tunnel(void *codec) {
    struct gate_tunnel *t = codec;
    secure_tunnel_free(t->tunnel);
    free(t);
}

static int move(struct cr_buffer *from, struct cr_buffer *to) {
    int rc = cr_buffer_append(to, from->data, from->len);
    cr_buffer_clear(from);
    return rc;
}

/* Returns whether the gateway has the key of a member of this job. */
static bool is_member(const struct gate_tunnel *t) {
    return secure_tunnel_role(t->tunnel) == SECURE_MEMBER &&
           strcmp(secure_tunnel_run_id(t->tunnel), t->common->run_id) == 0;
}

static int take(const struct gate_tunnel *t, struct cr_buffer *in, struct cr_buffer *out) {
    int rc = move(secure_tunnel_out(t->tunnel), out);
    if (rc == 0 && secure_tunnel_is_open(t->tunnel) && !is_member(t)) rc = -EACCES;
    if (rc == 0) rc = move(secure_tunnel_in(t->tunnel), in);
    bool has_failed = secure_tunnel_state(t->tunnel) == SECURE_FAILED;
    return rc == 0 && has_failed ? -EACCES : rc;
}

static int receive(void *codec, const void *data, size_t len, struct cr_buffer *in,
                   struct cr_buffer *out) {
    struct gate_tunnel *t = codec;
    secure_tunnel_receive(t->tunnel, data, len);
    return take(t, in, out);
}

static bool needs_work(const void *codec) {
    const struct gate_tunnel *t = codec;
    return secure_tunnel_state(t->tunnel) == SECURE_AGREE;
}

static void work(void *codec) {
    struct gate_tunnel *t = codec;
    secure_tunnel_agree(t->tunnel);
}

static int worked(void *codec, struct cr_buffer *in, struct cr_buffer *out) {
    struct gate_tunnel *t = codec;
    secure_tunnel_agreed(t->tunnel);
    return take(t, in, out);
}

static int seal(void *codec, const void *data, size_t len, struct cr_buffer *out) {
    struct gate_tunnel *t = codec;
    int rc = secure_tunnel_send(t->tunnel, data, len);
    return rc < 0 ? rc : move(secure_tunnel_out(t->tunnel), out);
}

int host_gate_codec_new(struct secure_ring *ring, const char *run_id, struct store_codec *out) {
    *out = (struct store_codec){.open = NULL};
    if (ring == NULL) return 0;
    struct gate_keys *common = calloc(1, sizeof(*common));
    if (common == NULL) return -ENOMEM;
    common->keys = *secure_ring_keys(ring);
    strncpy(common->run_id, run_id, sizeof(common->run_id) - 1);
    *out = (struct store_codec){.open = open_tunnel, .receive = receive, .send = seal,
                                .needs_work = needs_work, .work = work, .worked = worked,
                                .close = close_tunnel, .arg = common};
    return 0;
}

void host_gate_codec_free(struct store_codec *codec) {
    if (codec->arg != NULL) explicit_bzero(codec->arg, sizeof(struct gate_keys));
    free(codec->arg);
    codec->arg = NULL;
}
