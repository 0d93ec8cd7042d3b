/* One end of an authenticated connection: see secure.h. Pure. The functions come in this order: the
 * change of state, the handshake at the coordinator's end and at the other one, records, the
 * owner's calls. */
#include "rendezvous/secure/noise_internal.h"
#include "rendezvous/secure/secure.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC       SECURE_MAGIC
#define PLAIN_MAGIC "CRUNrdzv" /* RDZV_MAGIC of rendezvous/protocol: a connection without secret */
#define MAGIC_LEN   ((size_t) 8)
#define VERSION     1
#define HEAD_LEN    (MAGIC_LEN + 4) /* magic number, version, role, length of the run id */
#define ANSWER      "CRUN"          /* how an answer of the coordinator begins */
#define ANSWER_LEN  ((size_t) 4)
#define SEALED_MAX  (SECURE_PLAIN_MAX + PRIMITIVE_TAG)

_Static_assert(SECURE_KEY == PRIMITIVE_KEY, "a key of a token file is a key of the handshake");

struct secure_tunnel {
    enum secure_state state;
    enum secure_failure failure;
    enum secure_role role;
    char *run_id;
    const struct secure_keys *keys;   /* coordinator: the secrets; NULL = it has none */
    uint8_t private_key[SECURE_KEY];  /* of this connection; wiped after its use */
    struct noise noise;               /* node, operator: the handshake, until the answer has come */
    struct noise_cipher sends, receives;
    struct cr_buffer out, in;
    struct cr_buffer raw;             /* received bytes that are not handled yet */
};

const char *secure_state_name(enum secure_state s) {
    switch (s) {
#define S(name)                                                                                    \
    case SECURE_##name: return #name;
        SECURE_STATES(S)
#undef S
    }
    return "?";
}

const char *secure_failure_text(enum secure_failure f, bool is_host) {
    switch (f) {
    case SECURE_WRONG_KEY:
        return is_host ? "it has another secret than this coordinator"
                       : "it has another secret";
    case SECURE_NO_SECRET:
        return is_host ? "it has a secret, but this coordinator has none; give the coordinator "
                         "--rdzv-token-file"
                       : "it has no secret, but this end has one";
    case SECURE_VERSION: return "it has another version of the authenticated protocol";
    case SECURE_IS_PLAIN: return "it has no secret; give it --rdzv-token-file";
    case SECURE_REPLAY: return "it repeats the recorded handshake of another connection";
    case SECURE_CHANGED: return "its bytes were changed on their way";
    case SECURE_STRANGE: return "it speaks another protocol";
    case SECURE_MEMORY: return "out of memory";
    case SECURE_NO_FAILURE: break;
    }
    return "no failure";
}

/* ---- the change of state ---- */

/* Enters the state `next`. Only the two functions that make a tunnel write `state`, too. */
static void enter(struct secure_tunnel *c, enum secure_state next) {
    CR_ASSERT(c->state != SECURE_FAILED);
    c->state = next;
}

static void fail(struct secure_tunnel *c, enum secure_failure why) {
    c->failure = why;
    enter(c, SECURE_FAILED);
}

/* Queues an answer that refuses the connection, and enters FAILED. This answer is not
 * authenticated, so the other end uses it for a log line only. */
static void refuse(struct secure_tunnel *c, enum secure_failure why) {
    uint8_t answer[ANSWER_LEN + 2] = {'C', 'R', 'U', 'N', 'A', (uint8_t) why};
    (void) cr_buffer_append(&c->out, answer, sizeof(answer));
    fail(c, why);
}

/* ---- the handshake at the coordinator's end ---- */

static void got_first(struct secure_tunnel *c) {
    if (c->raw.len < MAGIC_LEN) return;
    bool has_keys = c->keys != NULL && c->keys->count > 0;
    if (memcmp(c->raw.data, MAGIC, MAGIC_LEN) == 0) {
        if (has_keys) enter(c, SECURE_OFFERED);
        else refuse(c, SECURE_NO_SECRET);
    } else if (!has_keys) {
        enter(c, SECURE_PLAIN);
    } else {
        bool is_plain = memcmp(c->raw.data, PLAIN_MAGIC, MAGIC_LEN) == 0;
        fail(c, is_plain ? SECURE_IS_PLAIN : SECURE_STRANGE);
    }
}

/* Answers a first handshake message that one of the keys could read. */
static void answer(struct secure_tunnel *c, struct noise *n) {
    uint8_t text[ANSWER_LEN + 1 + NOISE_OVERHEAD] = {'C', 'R', 'U', 'N', 'K'};
    if (!noise_write_second(n, NULL, 0, text + ANSWER_LEN + 1)) {
        refuse(c, SECURE_WRONG_KEY);
        return;
    }
    noise_split(n, &c->receives, &c->sends);
    primitive_wipe(c->private_key, sizeof(c->private_key));
    if (cr_buffer_append(&c->out, text, sizeof(text)) < 0) fail(c, SECURE_MEMORY);
    else enter(c, SECURE_CONFIRM);
}

/* Tries the keys that the role has for the job, the newest first, on the first handshake message.
 * The tag of the message shows which key the sender has. An observer learns from the time that this
 * takes at most which key that is: there are few keys, and all are tried in the same way. */
static void try_keys(struct secure_tunnel *c, size_t head_len) {
    uint8_t keys[SECURE_KEYS_MAX][SECURE_KEY], payload[1];
    const uint8_t *message = (const uint8_t *) c->raw.data + head_len;
    uint32_t count = secure_keys_for(c->keys, c->role, c->run_id, keys);
    bool is_read = false;
    struct noise n;
    for (uint32_t i = 0; i < count && !is_read; i++) {
        noise_begin(&n, c->raw.data, head_len, keys[i], c->private_key);
        is_read = noise_read_first(&n, message, NOISE_OVERHEAD, payload);
    }
    cr_buffer_consume(&c->raw, head_len + NOISE_OVERHEAD);
    if (is_read) answer(c, &n);
    else refuse(c, SECURE_WRONG_KEY);
    primitive_wipe(keys, sizeof(keys));
    primitive_wipe(&n, sizeof(n));
}

static void got_offer(struct secure_tunnel *c) {
    const uint8_t *head = (const uint8_t *) c->raw.data;
    if (c->raw.len < HEAD_LEN) return;
    size_t id_len = (size_t) head[MAGIC_LEN + 2] << 8 | head[MAGIC_LEN + 3];
    const char *id = c->raw.data + HEAD_LEN;
    if (head[MAGIC_LEN] != VERSION) {
        refuse(c, SECURE_VERSION);
        return;
    }
    bool has_role = head[MAGIC_LEN + 1] == SECURE_MEMBER || head[MAGIC_LEN + 1] == SECURE_OPERATOR;
    if (!has_role || id_len >= SECURE_ID_MAX) {
        fail(c, SECURE_STRANGE);
        return;
    }
    if (c->raw.len < HEAD_LEN + id_len + NOISE_OVERHEAD) return;
    if (memchr(id, '\0', id_len) != NULL) {
        fail(c, SECURE_STRANGE);
        return;
    }
    c->role = (enum secure_role) head[MAGIC_LEN + 1];
    c->run_id = strndup(id, id_len);
    if (c->run_id == NULL) fail(c, SECURE_MEMORY);
    else try_keys(c, HEAD_LEN + id_len);
}

/* ---- the handshake at the other end ---- */

/* Queues the head and the first handshake message. Returns 0 or -ENOMEM. */
static int offer(struct secure_tunnel *c, const uint8_t key[SECURE_KEY]) {
    size_t id_len = strlen(c->run_id);
    uint8_t fixed[] = {VERSION, (uint8_t) c->role, (uint8_t) (id_len >> 8), (uint8_t) id_len};
    uint8_t message[NOISE_OVERHEAD];
    int rc = cr_buffer_append(&c->out, MAGIC, MAGIC_LEN);
    if (rc == 0) rc = cr_buffer_append(&c->out, fixed, sizeof(fixed));
    if (rc == 0) rc = cr_buffer_append(&c->out, c->run_id, id_len);
    if (rc < 0) return rc;
    noise_begin(&c->noise, c->out.data, c->out.len, key, c->private_key);
    primitive_wipe(c->private_key, sizeof(c->private_key));
    noise_write_first(&c->noise, NULL, 0, message);
    return cr_buffer_append(&c->out, message, sizeof(message));
}

static void got_refusal(struct secure_tunnel *c) {
    if (c->raw.len < ANSWER_LEN + 2) return;
    uint8_t why = (uint8_t) c->raw.data[ANSWER_LEN + 1];
    fail(c, why >= SECURE_WRONG_KEY && why <= SECURE_VERSION ? (enum secure_failure) why
                                                             : SECURE_STRANGE);
}

static void got_answer(struct secure_tunnel *c) {
    size_t known = c->raw.len < ANSWER_LEN ? c->raw.len : ANSWER_LEN, head = ANSWER_LEN + 1;
    uint8_t payload[1];
    if (memcmp(c->raw.data, ANSWER, known) != 0) {
        fail(c, SECURE_STRANGE);
        return;
    }
    if (c->raw.len < head) return;
    if (c->raw.data[ANSWER_LEN] == 'A') {
        got_refusal(c);
    } else if (c->raw.data[ANSWER_LEN] != 'K') {
        fail(c, SECURE_STRANGE);
    } else if (c->raw.len >= head + NOISE_OVERHEAD) {
        const uint8_t *message = (const uint8_t *) c->raw.data + head;
        if (!noise_read_second(&c->noise, message, NOISE_OVERHEAD, payload)) {
            fail(c, SECURE_WRONG_KEY);
            return;
        }
        noise_split(&c->noise, &c->sends, &c->receives);
        cr_buffer_consume(&c->raw, head + NOISE_OVERHEAD);
        enter(c, SECURE_OPEN);
    }
}

/* ---- records ---- */

/* Unseals the record at the start of `data`, and appends its plain text to c->in. Returns the
 * length of the record; 0 if the record is not complete yet; -1 after a failure. */
static int64_t open_record(struct secure_tunnel *c, const char *data, size_t len) {
    if (len < 2) return 0;
    size_t sealed = (size_t) (uint8_t) data[0] << 8 | (uint8_t) data[1];
    enum secure_failure why = c->state == SECURE_CONFIRM ? SECURE_REPLAY : SECURE_CHANGED;
    if (sealed <= PRIMITIVE_TAG || sealed > SEALED_MAX) return fail(c, why), -1;
    if (len < 2 + sealed) return 0;
    if (cr_buffer_reserve(&c->in, sealed - PRIMITIVE_TAG) < 0) return fail(c, SECURE_MEMORY), -1;
    uint8_t *to = (uint8_t *) c->in.data + c->in.len;
    if (!noise_unseal(&c->receives, data + 2, sealed, to)) return fail(c, why), -1;
    c->in.len += sealed - PRIMITIVE_TAG;
    if (c->state == SECURE_CONFIRM) enter(c, SECURE_OPEN);
    return (int64_t) (2 + sealed);
}

static void got_records(struct secure_tunnel *c) {
    size_t at = 0;
    for (int64_t n = 1; n > 0 && at < c->raw.len; at += (size_t) n) {
        n = open_record(c, c->raw.data + at, c->raw.len - at);
        if (n < 0) return;
    }
    cr_buffer_consume(&c->raw, at);
}

static int seal_record(struct secure_tunnel *c, const void *data, size_t len) {
    size_t sealed = len + PRIMITIVE_TAG;
    int rc = cr_buffer_reserve(&c->out, 2 + sealed);
    if (rc < 0) return rc;
    uint8_t *to = (uint8_t *) c->out.data + c->out.len;
    to[0] = (uint8_t) (sealed >> 8);
    to[1] = (uint8_t) sealed;
    noise_seal(&c->sends, data, len, to + 2);
    c->out.len += 2 + sealed;
    return 0;
}

/* ---- the owner's calls ---- */

void secure_tunnel_receive(struct secure_tunnel *c, const void *data, size_t len) {
    if (c->state == SECURE_FAILED || len == 0) return;
    if (cr_buffer_append(&c->raw, data, len) < 0) {
        fail(c, SECURE_MEMORY);
        return;
    }
    if (c->state == SECURE_FIRST) got_first(c);
    if (c->state == SECURE_OFFERED) got_offer(c);
    if (c->state == SECURE_ANSWER) got_answer(c);
    if (c->state == SECURE_CONFIRM || c->state == SECURE_OPEN) got_records(c);
    if (c->state == SECURE_PLAIN) {
        if (cr_buffer_append(&c->in, c->raw.data, c->raw.len) < 0) fail(c, SECURE_MEMORY);
        cr_buffer_clear(&c->raw);
    }
}

int secure_tunnel_send(struct secure_tunnel *c, const void *data, size_t len) {
    CR_ASSERT(c->state == SECURE_OPEN);
    for (size_t at = 0; at < len;) {
        size_t piece = len - at < SECURE_PLAIN_MAX ? len - at : SECURE_PLAIN_MAX;
        int rc = seal_record(c, (const char *) data + at, piece);
        if (rc < 0) return rc;
        at += piece;
    }
    return 0;
}

struct secure_tunnel *secure_tunnel_accept(const struct secure_keys *keys,
                                             const uint8_t random[SECURE_KEY]) {
    struct secure_tunnel *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->state = SECURE_FIRST;
    c->keys = keys;
    if (keys != NULL) memcpy(c->private_key, random, sizeof(c->private_key));
    return c;
}

struct secure_tunnel *secure_tunnel_connect(enum secure_role role, const char *run_id,
                                              const uint8_t key[SECURE_KEY],
                                              const uint8_t random[SECURE_KEY]) {
    struct secure_tunnel *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->state = SECURE_ANSWER;
    c->role = role;
    c->run_id = strndup(run_id, SECURE_ID_MAX - 1);
    memcpy(c->private_key, random, sizeof(c->private_key));
    if (c->run_id != NULL && offer(c, key) == 0) return c;
    secure_tunnel_free(c);
    return NULL;
}

void secure_tunnel_free(struct secure_tunnel *c) {
    if (c == NULL) return;
    cr_buffer_done(&c->out);
    cr_buffer_done(&c->in);
    cr_buffer_done(&c->raw);
    free(c->run_id);
    /* no primitive_wipe(): builds without libsodium free plain tunnels */
    explicit_bzero(c, sizeof(*c));
    free(c);
}

struct cr_buffer *secure_tunnel_out(struct secure_tunnel *c) { return &c->out; }
struct cr_buffer *secure_tunnel_in(struct secure_tunnel *c) { return &c->in; }
enum secure_state secure_tunnel_state(const struct secure_tunnel *c) { return c->state; }
enum secure_failure secure_tunnel_failure(const struct secure_tunnel *c) { return c->failure; }
bool secure_tunnel_is_open(const struct secure_tunnel *c) { return c->state == SECURE_OPEN; }
enum secure_role secure_tunnel_role(const struct secure_tunnel *c) { return c->role; }

const char *secure_tunnel_run_id(const struct secure_tunnel *c) {
    return c->run_id != NULL ? c->run_id : "";
}

const struct cr_buffer *secure_tunnel_raw(const struct secure_tunnel *c) { return &c->raw; }
