/* Decides which handshake the client tries next, by the server's answers to earlier handshakes.
 * probe.h has the diagram. Pure: no I/O. */
#include "store/client/probe.h"

#include "base/time/clock.h"

#include <errno.h>
#include <string.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MAX_MS   5000

/* ---- one handshake ---- */

const char *store_handshake_name(enum store_handshake how) {
    static const char *const names[] = {"modern", "modern without ping", "legacy"};
    return names[how];
}

enum store_dialect store_handshake_dialect(enum store_handshake how) {
    return how == STORE_SHAKE_LEGACY ? STORE_DIALECT_LEGACY : STORE_DIALECT_MODERN;
}

int store_handshake_encode(enum store_handshake how, uint32_t nonce, struct cr_buffer *out) {
    struct store_encoder e = {out, store_handshake_dialect(how), STORE_BYTES("/")};
    int rc = how == STORE_SHAKE_LEGACY ? 0 : store_encode_validate(out);
    if (rc < 0) return rc;
    if (how == STORE_SHAKE_PING) return store_encode_ping(out, nonce);
    return store_encode_plain(&e, STORE_OP_NUM_KEYS);
}

enum store_reply store_handshake_reply(enum store_handshake how) {
    return how == STORE_SHAKE_PING ? STORE_REPLY_NONCE : STORE_REPLY_NUMBER;
}

bool store_handshake_accepts(enum store_handshake how, uint32_t nonce, int64_t answer) {
    return how == STORE_SHAKE_PING ? answer == nonce : answer >= 0;
}

/* ---- choosing the next handshake ---- */

struct store_probe store_probe_new(enum store_protocol protocol) {
    return (struct store_probe){
        .protocol = protocol,
        .how = protocol == STORE_PROTOCOL_LEGACY ? STORE_SHAKE_LEGACY : STORE_SHAKE_PING,
    };
}

int64_t store_probe_limit_ms(const struct store_probe *p) {
    return p->protocol == STORE_PROTOCOL_PROBE && !p->is_old ? STORE_PROBE_MS : CR_FOREVER;
}

enum store_probe_next store_probe_shaken(struct store_probe *p) {
    bool doubtful =
        p->how == STORE_SHAKE_LEGACY && p->protocol == STORE_PROTOCOL_PROBE && !p->is_old;
    return doubtful ? STORE_PROBE_CONFIRM : STORE_PROBE_FOUND;
}

bool store_worth_retry(int code) {
    return code == -ECONNREFUSED || code == -ECONNRESET || code == -ETIMEDOUT || code == -ENOENT ||
           code == -EHOSTUNREACH || code == -ENETUNREACH || code == -EPIPE || code == -EAGAIN;
}

enum store_probe_next store_probe_failed(struct store_probe *p, int code, bool connected) {
    p->is_old = false;
    if (!store_worth_retry(code) && !(connected && code == -EPROTO)) return STORE_PROBE_STOP;
    if (!connected || p->protocol != STORE_PROTOCOL_PROBE) return STORE_PROBE_LATER;
    enum store_handshake tried = p->how;
    if (tried == STORE_SHAKE_LEGACY) {
        p->how = STORE_SHAKE_PING;
        return STORE_PROBE_LATER;
    }
    if (code == -ETIMEDOUT) {
        p->how = STORE_SHAKE_LEGACY;
        return STORE_PROBE_AGAIN;
    }
    p->how = tried == STORE_SHAKE_PING ? STORE_SHAKE_NOPING : STORE_SHAKE_PING;
    return tried == STORE_SHAKE_PING ? STORE_PROBE_AGAIN : STORE_PROBE_LATER;
}

enum store_probe_next store_probe_confirmed(struct store_probe *p, int code, uint8_t byte) {
    if (code == -ECONNRESET || code == -EPIPE) {
        p->is_old = true;
        return STORE_PROBE_AGAIN;
    }
    if (code == 0 && byte == STORE_WAIT_CANCELED) {
        p->protocol = STORE_PROTOCOL_MODERN;
        p->how = STORE_SHAKE_PING;
        return STORE_PROBE_AGAIN;
    }
    return store_probe_failed(p, code < 0 ? code : -EPROTO, true);
}

/* ---- back-off ---- */

struct store_backoff store_backoff_new(uint64_t seed) {
    /* the state of an xorshift generator must not be 0, because it would stay 0 forever */
    return (struct store_backoff){BACKOFF_FIRST_MS, seed | 1};
}

static uint64_t next_random(uint64_t *state) { /* a xorshift generator */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

int64_t store_backoff_next_ms(struct store_backoff *b) {
    uint64_t spread = next_random(&b->random) % (uint64_t) (b->interval_ms + 1);
    int64_t ms = b->interval_ms / 2 + (int64_t) spread;
    b->interval_ms += b->interval_ms / 2;
    if (b->interval_ms > BACKOFF_MAX_MS) b->interval_ms = BACKOFF_MAX_MS;
    return ms;
}

int64_t store_address_time_ms(int64_t time_left_ms, size_t addresses_left) {
    if (time_left_ms == CR_FOREVER) return addresses_left > 1 ? 10000 : 60000;
    return time_left_ms / (int64_t) addresses_left;
}

/* ---- error texts ---- */

const char *store_handshake_reason(int code) {
    if (code == -ECONNRESET) return "the server closed the connection in the handshake";
    if (code == -ETIMEDOUT) return "the server does not answer the handshake";
    if (code == -EPROTO) return "the server answered the handshake with unexpected bytes";
    return NULL;
}

int store_fail_connect(struct cr_error *err, int code, const char *host, uint16_t port,
                       int64_t timeout_ms, const char *why) {
    bool is_v6 = strchr(host, ':') != NULL;
    const char *open = is_v6 ? "[" : "", *end = is_v6 ? "]" : "";
    if (code != -ETIMEDOUT)
        return cr_fail(err, code, "connect to the store at %s%s%s:%u: %s", open, host, end, port,
                       why);
    return cr_fail(err, code,
                   "connect to the store at %s%s%s:%u: timed out after %lld ms (%s); is it "
                   "running there?",
                   open, host, end, port, (long long) timeout_ms, why);
}

/* ---- which operations the server has ---- */

enum store_op store_question(enum store_op op) {
    return op == STORE_OP_QUEUE_PUSH || op == STORE_OP_QUEUE_POP ? STORE_OP_QUEUE_LEN : op;
}

int store_server_has(enum store_handshake how, const int8_t known[STORE_OP_COUNT],
                     enum store_op op) {
    if (how == STORE_SHAKE_LEGACY) {
        int code = store_op_code(STORE_DIALECT_LEGACY, op);
        /* opcodes above STORE_LEGACY_FIRST_MAX were only in development snapshots of torch, so this
         * function assumes that a legacy server lacks their operations */
        return code >= 0 && code <= STORE_LEGACY_FIRST_MAX;
    }
    enum store_op q = store_question(op);
    if (q != STORE_OP_LIST_KEYS && q != STORE_OP_BARRIER && q != STORE_OP_QUEUE_LEN) return 1;
    return known[q] == 0 ? -1 : known[q] > 0;
}

int store_question_encode(enum store_op question, struct cr_buffer *out) {
    struct store_encoder e = {out, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    struct store_bytes name = STORE_BYTES("crunrt/probe");
    if (question == STORE_OP_LIST_KEYS) return store_encode_plain(&e, question);
    if (question == STORE_OP_QUEUE_LEN) return store_encode_key(&e, question, name);
    int rc = store_encode_number(&e, STORE_OP_BARRIER, name, 1);
    /* BARRIER creates a key that holds the barrier's counter; DELETE removes this key */
    return rc < 0 ? rc : store_encode_key(&e, STORE_OP_DELETE, name);
}

enum store_reply store_question_reply(enum store_op question, int nth) {
    if (question != STORE_OP_BARRIER)
        /* QUEUE_LEN and LIST_KEYS: the first field of the reply is a number, and this number proves
         * that the server has the operation. The client does not read the keys that follow the
         * number in a reply to LIST_KEYS. */
        return nth == 0 ? STORE_REPLY_NUMBER : STORE_REPLY_NONE;
    return nth == 0 ? STORE_REPLY_BYTE : nth == 1 ? STORE_REPLY_NUMBER : STORE_REPLY_NONE;
}
