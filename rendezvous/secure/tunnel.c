/* One end of an authenticated connection: see secure.h. Pure. The functions come in this order: the
 * change of state, the handshake at the coordinator's end and at the other one, records, the
 * owner's calls. */
#include "rendezvous/secure/noise_internal.h"
#include "rendezvous/secure/secure.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC       SECURE_MAGIC
#define PLAIN_MAGIC "CRUNrdzv" /* RDZV_MAGIC of rendezvous/protocol: a connection without secret */
#define MAGIC_LEN   ((size_t) 8)
#define VERSION     1 /* the key follows from a secret of the token file */
#define VERSION_VOUCHED 2 /* the key follows from the credential in the first bytes */
#define HEAD_LEN    (MAGIC_LEN + 4) /* bytes of magic number, version, role, length of the run id */
#define ANSWER      "CRUN"          /* how an answer of the coordinator begins */
#define ANSWER_LEN  ((size_t) 4)
/* A tunnel in the state AGREE fails if the peer sends more bytes than this: a node or an operator
 * sends nothing before it has the answer to its first message. */
#define AGREE_MAX   ((size_t) 1024)
#define SEALED_MAX  (SECURE_PLAIN_MAX + PRIMITIVE_TAG)
#define DETAIL_MAX  160 /* bytes of the reason why a credential is not accepted, NUL included */

_Static_assert(SECURE_KEY == PRIMITIVE_KEY, "a key of a token file is a key of the handshake");

struct secure_tunnel {
    enum secure_state state;
    enum secure_failure failure;
    enum secure_role role;
    char *run_id;
    const struct secure_keys *keys;   /* coordinator: the secrets; NULL = it has none */
    uint8_t private_key[SECURE_KEY];  /* of this connection; wiped after its use */
    /* State of the handshake. Node, operator: valid until the answer has come. Coordinator: valid
     * only during secure_tunnel_agree(). */
    struct noise noise;
    struct offer *offer; /* coordinator, in the state AGREE: the first message; else NULL */
    bool is_deferred; /* true: secure_tunnel_defer() was called */
    uint8_t answer[ANSWER_LEN + 1 + NOISE_OVERHEAD];
    struct noise_cipher sends, receives;
    struct cr_buffer out, in;
    struct cr_buffer raw;             /* received bytes that are not handled yet */
    struct cr_trace trace;
    char detail[DETAIL_MAX]; /* why the voucher has not accepted a credential */
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
    case SECURE_NO_MUNGE:
        return is_host ? "it uses MUNGE, this coordinator does not; start both as tasks of Slurm, "
                         "or give both one --rdzv-token-file"
                       : "it does not use MUNGE, this end does; start both as tasks of Slurm, or "
                         "give both one --rdzv-token-file";
    case SECURE_ONLY_MUNGE:
        return is_host ? "it has a token file, this coordinator uses MUNGE; give the file to both "
                         "or to neither"
                       : "it uses MUNGE, this end has a token file; give the file to both or to "
                         "neither";
    case SECURE_BAD_CREDENTIAL:
        return is_host ? "MUNGE does not accept its credential"
                       : "the MUNGE of its host refuses the credential: it is of another user or "
                         "MUNGE key, or the clocks differ";
    case SECURE_NO_FAILURE: break;
    }
    return "no failure";
}

/* ---- the change of state ---- */

/* Enters the state `next`, and logs that. Besides this function, only secure_tunnel_accept() and
 * secure_tunnel_connect() write `state`. */
static void enter(struct secure_tunnel *c, enum secure_state next) {
    CR_ASSERT(c->state != SECURE_FAILED);
    cr_trace(&c->trace, "tunnel: %s -> %s", secure_state_name(c->state), secure_state_name(next));
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

/* Returns why a coordinator without any secret refuses a node with this version. */
static enum secure_failure failure_without_keys(char version) {
    return version == VERSION_VOUCHED ? SECURE_NO_MUNGE : SECURE_NO_SECRET;
}

static void got_first(struct secure_tunnel *c) {
    if (c->raw.len < MAGIC_LEN) return;
    bool has_keys = c->keys != NULL && (c->keys->count > 0 || c->keys->voucher != NULL);
    if (memcmp(c->raw.data, MAGIC, MAGIC_LEN) == 0) {
        if (has_keys) enter(c, SECURE_OFFERED);
        else if (c->raw.len > MAGIC_LEN) refuse(c, failure_without_keys(c->raw.data[MAGIC_LEN]));
    } else if (!has_keys) {
        enter(c, SECURE_PLAIN);
    } else {
        bool is_plain = memcmp(c->raw.data, PLAIN_MAGIC, MAGIC_LEN) == 0;
        fail(c, is_plain ? SECURE_IS_PLAIN : SECURE_STRANGE);
    }
}

/* The first handshake message, and the keys that its sender may have. */
struct offer {
    /* reads the credential, which is the last `credential_len` bytes of the head; NULL = the sender
     * authenticates by one of `keys` */
    const struct secure_voucher *voucher;
    size_t credential_len;
    uint32_t count;
    uint8_t keys[SECURE_KEYS_MAX][SECURE_KEY];
    /* result of secure_tunnel_agree(): SECURE_NO_FAILURE = the ends have a common key */
    enum secure_failure failure;
    char detail[DETAIL_MAX]; /* why the voucher has not accepted the credential */
    size_t head_len;
    char bytes[]; /* the head, and after that the handshake message */
};

/* Tries to read the first handshake message with each key that the sender may have, the newest key
 * first. The tag of the message shows which key the sender has. All keys are tried in the same way,
 * so the time that this takes reveals only the place of that key in the list. Returns whether the
 * message could be read. */
static bool try_keys(struct secure_tunnel *c) {
    const struct offer *o = c->offer;
    const uint8_t *message = (const uint8_t *) o->bytes + o->head_len;
    uint8_t payload[1];
    for (uint32_t i = 0; i < o->count; i++) {
        noise_begin(&c->noise, o->bytes, o->head_len, o->keys[i], c->private_key);
        if (noise_read_first(&c->noise, message, NOISE_OVERHEAD, payload)) return true;
    }
    return false;
}

/* Reads the credential, and stores the key that follows from it as the only key of the offer. The
 * key follows from the role and the run id, too, so an attacker who changes these on the way makes
 * the handshake fail. Returns false if the voucher does not accept the credential. */
static bool read_credential(const struct secure_tunnel *c) {
    struct offer *o = c->offer;
    char credential[SECURE_CREDENTIAL_MAX];
    uint8_t secret[SECURE_KEY];
    struct cr_error err = {0};
    memcpy(credential, o->bytes + o->head_len - o->credential_len, o->credential_len);
    credential[o->credential_len] = '\0';
    if (o->voucher->read(credential, secret, &err) < 0) {
        (void) snprintf(o->detail, sizeof(o->detail), "%.*s", DETAIL_MAX - 1, err.text);
        return false;
    }
    secure_key_of_credential(secret, c->role, c->run_id, o->keys[0]);
    o->count = 1;
    primitive_wipe(secret, sizeof(secret));
    return true;
}

/* May run in parallel with the other calls, because it uses no field that secure_tunnel_receive()
 * and secure_tunnel_send() change in the state AGREE. */
void secure_tunnel_agree(struct secure_tunnel *c) {
    struct offer *o = c->offer;
    uint8_t *message = c->answer + ANSWER_LEN + 1;
    memcpy(c->answer, ANSWER "K", ANSWER_LEN + 1);
    o->failure = SECURE_NO_FAILURE;
    if (o->voucher != NULL && !read_credential(c)) o->failure = SECURE_BAD_CREDENTIAL;
    else if (!try_keys(c) || !noise_write_second(&c->noise, NULL, 0, message))
        o->failure = SECURE_WRONG_KEY;
    else noise_split(&c->noise, &c->receives, &c->sends);
}

static void free_offer(struct secure_tunnel *c) {
    if (c->offer != NULL) explicit_bzero(c->offer, sizeof(*c->offer));
    free(c->offer);
    c->offer = NULL;
}

static void got_records(struct secure_tunnel *c);

void secure_tunnel_agreed(struct secure_tunnel *c) {
    enum secure_failure failure = c->offer->failure;
    memcpy(c->detail, c->offer->detail, sizeof(c->detail));
    free_offer(c);
    primitive_wipe(&c->noise, sizeof(c->noise));
    primitive_wipe(c->private_key, sizeof(c->private_key));
    if (c->state != SECURE_AGREE) return; /* the tunnel has failed meanwhile */
    if (failure != SECURE_NO_FAILURE) {
        refuse(c, failure);
    } else if (cr_buffer_append(&c->out, c->answer, sizeof(c->answer)) < 0) {
        fail(c, SECURE_MEMORY);
    } else {
        enter(c, SECURE_CONFIRM);
        got_records(c); /* bytes that have come in the state AGREE */
    }
}

/* Takes the first message out of c->raw, and enters AGREE. The last `credential_len` bytes of the
 * head are a credential; if credential_len is 0, the sender may have one of this end's secrets. If
 * secure_tunnel_defer() was not called, answers the message at once. */
static void begin_agreement(struct secure_tunnel *c, size_t head_len, size_t credential_len) {
    size_t len = head_len + NOISE_OVERHEAD;
    struct offer *o = calloc(1, sizeof(*o) + len);
    if (o == NULL) {
        fail(c, SECURE_MEMORY);
        return;
    }
    o->credential_len = credential_len;
    if (credential_len > 0) o->voucher = c->keys->voucher;
    else o->count = secure_keys_for(c->keys, c->role, c->run_id, o->keys);
    o->head_len = head_len;
    memcpy(o->bytes, c->raw.data, len);
    cr_buffer_consume(&c->raw, len);
    c->offer = o;
    enter(c, SECURE_AGREE);
    if (c->is_deferred) return;
    secure_tunnel_agree(c);
    secure_tunnel_agreed(c);
}

/* Checks that a node with this version authenticates in the same way as this coordinator. Returns
 * false, and refuses the node, if it does not. */
static bool check_version(struct secure_tunnel *c, uint8_t version) {
    bool is_vouched = version == VERSION_VOUCHED, uses_voucher = c->keys->voucher != NULL;
    if (version != VERSION && !is_vouched) refuse(c, SECURE_VERSION);
    else if (is_vouched && !uses_voucher) refuse(c, SECURE_NO_MUNGE);
    else if (!is_vouched && uses_voucher) refuse(c, SECURE_ONLY_MUNGE);
    else return true;
    return false;
}

static size_t read_u16(const char *at) {
    return (size_t) (uint8_t) at[0] << 8 | (uint8_t) at[1];
}

/* Stores the length of the credential in *len: 0 if the version has none. Returns false if the
 * bytes have not come yet, or if the tunnel has failed because the length is too great. */
static bool read_credential_length(struct secure_tunnel *c, size_t at, size_t *len) {
    *len = 0;
    if (c->raw.data[MAGIC_LEN] != VERSION_VOUCHED) return true;
    if (c->raw.len < at + 2) return false;
    *len = read_u16(c->raw.data + at);
    if (*len > 0 && *len < SECURE_CREDENTIAL_MAX) return true;
    fail(c, SECURE_STRANGE);
    return false;
}

static void got_offer(struct secure_tunnel *c) {
    const uint8_t *head = (const uint8_t *) c->raw.data;
    if (c->raw.len < HEAD_LEN) return;
    size_t id_len = read_u16(c->raw.data + MAGIC_LEN + 2), credential_len;
    const char *id = c->raw.data + HEAD_LEN;
    if (!check_version(c, head[MAGIC_LEN])) return;
    bool has_role = head[MAGIC_LEN + 1] >= SECURE_MEMBER && head[MAGIC_LEN + 1] <= SECURE_USER;
    if (!has_role || id_len >= SECURE_ID_MAX) {
        fail(c, SECURE_STRANGE);
        return;
    }
    size_t head_len = HEAD_LEN + id_len;
    if (!read_credential_length(c, head_len, &credential_len)) return;
    if (credential_len > 0) head_len += 2 + credential_len;
    if (c->raw.len < head_len + NOISE_OVERHEAD) return;
    if (memchr(id, '\0', id_len) != NULL) {
        fail(c, SECURE_STRANGE);
        return;
    }
    c->role = (enum secure_role) head[MAGIC_LEN + 1];
    c->run_id = strndup(id, id_len);
    if (c->run_id == NULL) fail(c, SECURE_MEMORY);
    else begin_agreement(c, head_len, credential_len);
}

/* ---- the handshake at the end of a node or an operator ---- */

/* Appends the length of the credential and the credential to c->out. Returns 0 or -ENOMEM. */
static int offer_credential(struct secure_tunnel *c, const char *credential) {
    size_t len = strlen(credential);
    uint8_t length[] = {(uint8_t) (len >> 8), (uint8_t) len};
    int rc = cr_buffer_append(&c->out, length, sizeof(length));
    return rc < 0 ? rc : cr_buffer_append(&c->out, credential, len);
}

/* Queues the first bytes of the tunnel: the version, the role, the run id and the credential, which
 * may be NULL, in plain text; and after them the first handshake message. Returns 0 or -ENOMEM. */
static int offer(struct secure_tunnel *c, const uint8_t key[SECURE_KEY], const char *credential) {
    size_t id_len = strlen(c->run_id);
    uint8_t version = credential != NULL ? VERSION_VOUCHED : VERSION;
    uint8_t fixed[] = {version, (uint8_t) c->role, (uint8_t) (id_len >> 8), (uint8_t) id_len};
    uint8_t message[NOISE_OVERHEAD];
    int rc = cr_buffer_append(&c->out, MAGIC, MAGIC_LEN);
    if (rc == 0) rc = cr_buffer_append(&c->out, fixed, sizeof(fixed));
    if (rc == 0) rc = cr_buffer_append(&c->out, c->run_id, id_len);
    if (rc == 0 && credential != NULL) rc = offer_credential(c, credential);
    if (rc < 0) return rc;
    noise_begin(&c->noise, c->out.data, c->out.len, key, c->private_key);
    primitive_wipe(c->private_key, sizeof(c->private_key));
    noise_write_first(&c->noise, NULL, 0, message);
    return cr_buffer_append(&c->out, message, sizeof(message));
}

static void got_refusal(struct secure_tunnel *c) {
    if (c->raw.len < ANSWER_LEN + 2) return;
    uint8_t why = (uint8_t) c->raw.data[ANSWER_LEN + 1];
    bool is_known = (why >= SECURE_WRONG_KEY && why <= SECURE_VERSION) ||
                    (why >= SECURE_NO_MUNGE && why <= SECURE_BAD_CREDENTIAL);
    fail(c, is_known ? (enum secure_failure) why : SECURE_STRANGE);
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
 * length of the record; 0 if the record is not complete yet; -1 if the tunnel has failed. */
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

static void got_plain(struct secure_tunnel *c, const void *data, size_t len) {
    if (cr_buffer_append(&c->in, data, len) < 0) fail(c, SECURE_MEMORY);
}

void secure_tunnel_receive(struct secure_tunnel *c, const void *data, size_t len) {
    if (c->state == SECURE_FAILED || len == 0) return;
    if (c->state == SECURE_PLAIN) {
        got_plain(c, data, len);
        return;
    }
    if (cr_buffer_append(&c->raw, data, len) < 0) {
        fail(c, SECURE_MEMORY);
        return;
    }
    if (c->state == SECURE_FIRST) got_first(c);
    if (c->state == SECURE_OFFERED) got_offer(c);
    if (c->state == SECURE_ANSWER) got_answer(c);
    if (c->state == SECURE_CONFIRM || c->state == SECURE_OPEN) got_records(c);
    if (c->state == SECURE_AGREE && c->raw.len > AGREE_MAX) fail(c, SECURE_STRANGE);
    if (c->state == SECURE_PLAIN) {
        got_plain(c, c->raw.data, c->raw.len);
        cr_buffer_clear(&c->raw);
    }
    /* an idle connection has no memory for received bytes */
    if (c->raw.len == 0) cr_buffer_done(&c->raw);
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

static struct secure_tunnel *new_connecting(enum secure_role role, const char *run_id,
                                            const uint8_t key[SECURE_KEY], const char *credential,
                                            const uint8_t random[SECURE_KEY]) {
    struct secure_tunnel *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->state = SECURE_ANSWER;
    c->role = role;
    c->run_id = strndup(run_id, SECURE_ID_MAX - 1);
    memcpy(c->private_key, random, sizeof(c->private_key));
    if (c->run_id != NULL && offer(c, key, credential) == 0) return c;
    secure_tunnel_free(c);
    return NULL;
}

struct secure_tunnel *secure_tunnel_connect(enum secure_role role, const char *run_id,
                                              const uint8_t key[SECURE_KEY],
                                              const uint8_t random[SECURE_KEY]) {
    return new_connecting(role, run_id, key, NULL, random);
}

struct secure_tunnel *secure_tunnel_vouch(enum secure_role role, const char *run_id,
                                          const uint8_t secret[SECURE_KEY], const char *credential,
                                          const uint8_t random[SECURE_KEY]) {
    uint8_t key[SECURE_KEY];
    secure_key_of_credential(secret, role, run_id, key);
    struct secure_tunnel *c = new_connecting(role, run_id, key, credential, random);
    primitive_wipe(key, sizeof(key));
    return c;
}

void secure_tunnel_free(struct secure_tunnel *c) {
    if (c == NULL) return;
    cr_buffer_done(&c->out);
    cr_buffer_done(&c->in);
    cr_buffer_done(&c->raw);
    free(c->run_id);
    free_offer(c);
    /* not primitive_wipe(), because builds without libsodium call this function, too, for plain
     * tunnels */
    explicit_bzero(c, sizeof(*c));
    free(c);
}

void secure_tunnel_defer(struct secure_tunnel *c) { c->is_deferred = true; }

void secure_tunnel_trace(struct secure_tunnel *c, struct cr_trace trace) { c->trace = trace; }

struct cr_buffer *secure_tunnel_out(struct secure_tunnel *c) { return &c->out; }
struct cr_buffer *secure_tunnel_in(struct secure_tunnel *c) { return &c->in; }
enum secure_state secure_tunnel_state(const struct secure_tunnel *c) { return c->state; }
enum secure_failure secure_tunnel_failure(const struct secure_tunnel *c) { return c->failure; }
const char *secure_tunnel_detail(const struct secure_tunnel *c) { return c->detail; }
bool secure_tunnel_is_open(const struct secure_tunnel *c) { return c->state == SECURE_OPEN; }
enum secure_role secure_tunnel_role(const struct secure_tunnel *c) { return c->role; }

const char *secure_tunnel_run_id(const struct secure_tunnel *c) {
    return c->run_id != NULL ? c->run_id : "";
}

const struct cr_buffer *secure_tunnel_raw(const struct secure_tunnel *c) { return &c->raw; }
