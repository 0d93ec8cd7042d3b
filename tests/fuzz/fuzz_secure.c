/* libFuzzer target: tunnels (rendezvous/secure). The first byte of the input selects one of four:
 * the coordinator's end receives any bytes; a node's end receives any bytes; two honest ends have
 * an attacker between them; a token file has any contents.
 *
 * With an attacker, the rest of the input is a sequence of pairs of bytes, u8 what and u8 n. By
 * what % 8, one of these things happens:
 *
 *     0, 1   the node, or the coordinator, sends n bytes of plain text
 *     2, 3   n bytes on their way to the coordinator, or to the node, arrive there
 *     4, 5   of the bytes on their way to the coordinator, or to the node, one byte is changed
 *     6      the bytes on their way to the coordinator are doubled
 *     7      n bytes on their way to the coordinator arrive at the node instead
 *
 * The plain text that an end receives must be a beginning of the plain text that the other end has
 * sent. */
#include "base/assert.h"
#include "base/buffer.h"
#include "rendezvous/secure/primitives_internal.h"
#include "rendezvous/secure/secure.h"
#include "tests/lib/rdzv_input.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char secret[] = "a secret of more than 32 characters";
static struct secure_keys keys;
static uint8_t member_key[SECURE_KEYS_MAX][SECURE_KEY];

static void set_up(void) {
    if (keys.count > 0) return;
    CR_ASSERT(primitives_exist());
    CR_ASSERT(secure_keys_parse(secret, sizeof(secret) - 1, &keys, NULL) == 0);
    CR_ASSERT(secure_keys_for(&keys, SECURE_MEMBER, "job", member_key) == 1);
}

/* Reads any credential but one that begins with 'x': a stranger cannot know its secret. */
static int read_credential(const char *credential, uint8_t out[SECURE_KEY], struct cr_error *err) {
    CR_ASSERT(strlen(credential) < SECURE_CREDENTIAL_MAX);
    memset(out, 'v', SECURE_KEY);
    return credential[0] == 'x' ? cr_fail(err, -EACCES, "refused") : 0;
}

static const struct secure_voucher voucher = {.read = read_credential};
static const struct secure_keys vouching = {.voucher = &voucher};
static bool uses_voucher; /* true: the ends authenticate by credentials in this run */

static struct secure_tunnel *new_host(void) {
    static const uint8_t random[SECURE_KEY] = {64};
    return secure_tunnel_accept(uses_voucher ? &vouching : &keys, random);
}

static struct secure_tunnel *new_node(void) {
    static const uint8_t random[SECURE_KEY] = {128};
    uint8_t root[SECURE_KEY];
    memset(root, 'v', sizeof(root));
    if (uses_voucher) {
        return secure_tunnel_vouch(SECURE_MEMBER, "job", root, "a credential", random);
    }
    return secure_tunnel_connect(SECURE_MEMBER, "job", member_key[0], random);
}

/* ---- one end, and a stranger that sends any bytes ---- */

static void run_stranger(struct input *in, struct secure_tunnel *t) {
    while (in->left > 0) {
        size_t n = input_byte(in), len = n < in->left ? n : in->left;
        secure_tunnel_receive(t, in->data, len);
        in->data += len;
        in->left -= len;
        CR_ASSERT(!secure_tunnel_is_open(t) && secure_tunnel_in(t)->len == 0);
        bool has_failed = secure_tunnel_state(t) == SECURE_FAILED;
        CR_ASSERT(has_failed == (secure_tunnel_failure(t) != SECURE_NO_FAILURE));
        CR_ASSERT(secure_failure_text(secure_tunnel_failure(t), true)[0] != '\0');
    }
    secure_tunnel_free(t);
}

/* ---- two ends, and an attacker between them ---- */

struct end {
    struct secure_tunnel *tunnel;
    /* said: plain text that this end has sent; heard: plain text that it has received */
    struct cr_buffer said, heard;
    struct cr_buffer way;         /* bytes on their way to the other end */
};

static void say(struct end *e, size_t n) {
    uint8_t text[255];
    if (!secure_tunnel_is_open(e->tunnel)) return;
    for (size_t i = 0; i < n; i++) text[i] = (uint8_t) (e->said.len + i);
    CR_ASSERT(secure_tunnel_send(e->tunnel, text, n) == 0);
    CR_ASSERT(cr_buffer_append(&e->said, text, n) == 0);
}

/* Takes from the tunnel the bytes to send and the plain text that it has received. Checks that the
 * plain text is a beginning of what `other` has sent. */
static void collect(struct end *e, const struct end *other) {
    struct cr_buffer *out = secure_tunnel_out(e->tunnel), *in = secure_tunnel_in(e->tunnel);
    CR_ASSERT(cr_buffer_append(&e->way, out->data, out->len) == 0);
    CR_ASSERT(cr_buffer_append(&e->heard, in->data, in->len) == 0);
    cr_buffer_clear(out);
    cr_buffer_clear(in);
    CR_ASSERT(e->heard.len <= other->said.len);
    CR_ASSERT(e->heard.len == 0 || memcmp(e->heard.data, other->said.data, e->heard.len) == 0);
}

static void arrive(struct cr_buffer *way, struct end *at, size_t n) {
    size_t len = n < way->len ? n : way->len;
    secure_tunnel_receive(at->tunnel, way->data, len);
    cr_buffer_consume(way, len);
}

static void repeat(struct cr_buffer *way) {
    struct cr_buffer copy = {0};
    if (way->len > 65536) return;
    CR_ASSERT(cr_buffer_append(&copy, way->data, way->len) == 0);
    CR_ASSERT(cr_buffer_append(way, copy.data, copy.len) == 0);
    cr_buffer_done(&copy);
}

static void change(struct cr_buffer *way, size_t n) {
    if (way->len > 0) way->data[n % way->len] ^= 1;
}

static void act(struct end *node, struct end *host, uint8_t what, uint8_t n) {
    switch (what % 8) {
    case 0: say(node, n); break;
    case 1: say(host, n); break;
    case 2: arrive(&node->way, host, n); break;
    case 3: arrive(&host->way, node, n); break;
    case 4: change(&node->way, n); break;
    case 5: change(&host->way, n); break;
    case 6: repeat(&node->way); break;
    case 7: arrive(&node->way, node, n); break;
    default: break;
    }
    collect(node, host);
    collect(host, node);
}

static void end_done(struct end *e) {
    secure_tunnel_free(e->tunnel);
    cr_buffer_done(&e->said);
    cr_buffer_done(&e->heard);
    cr_buffer_done(&e->way);
}

static void run_attacker(struct input *in) {
    struct end node = {.tunnel = new_node()}, host = {.tunnel = new_host()};
    collect(&node, &host);
    while (in->left > 1) {
        uint8_t what = input_byte(in);
        act(&node, &host, what, input_byte(in));
    }
    end_done(&node);
    end_done(&host);
}

/* ---- token files ---- */

static void run_file(const struct input *in) {
    static struct secure_keys parsed;
    struct cr_error err = {0};
    int rc = secure_keys_parse((const char *) in->data, in->left, &parsed, &err);
    CR_ASSERT(rc == 0 ? parsed.count > 0 && parsed.count <= SECURE_KEYS_MAX : err.text[0] != '\0');
    for (uint32_t i = 0; rc == 0 && i < parsed.count; i++) {
        CR_ASSERT(memchr(parsed.secrets[i].run_id, '\0', SECURE_ID_MAX) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    set_up();
    uint8_t what = input_byte(&in);
    uses_voucher = what >= 128;
    switch (what % 4) {
    case 0: run_stranger(&in, new_host()); break;
    case 1: run_stranger(&in, new_node()); break;
    case 2: run_attacker(&in); break;
    default: run_file(&in);
    }
    return 0;
}
