/* Implements noise_internal.h. Functions have the names of the specification (MixHash, MixKey …)
 * where they do the same. */
#include "rendezvous/secure/noise_internal.h"

#include <string.h>

static const char protocol_name[] = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/* ---- the specification's symmetric state ---- */

static void mix_hash(struct noise *n, const void *data, size_t len) {
    struct primitive_piece pieces[] = {{n->h, sizeof(n->h)}, {data, len}};
    primitive_hash(pieces, 2, n->h);
}

/* Derives `count` (2 or 3) keys from the chaining key `ck` and `input`: HKDF with HMAC-SHA-256. */
static void derive(const uint8_t ck[PRIMITIVE_KEY], const void *input, size_t len,
                   uint8_t (*out)[PRIMITIVE_KEY], uint8_t count) {
    uint8_t secret[PRIMITIVE_KEY];
    struct primitive_piece from = {input, len};
    primitive_hmac(ck, PRIMITIVE_KEY, &from, 1, secret);
    for (uint8_t i = 0; i < count; i++) {
        uint8_t number = (uint8_t) (i + 1);
        struct primitive_piece pieces[] = {{i > 0 ? out[i - 1] : NULL, i > 0 ? PRIMITIVE_KEY : 0},
                                           {&number, 1}};
        primitive_hmac(secret, sizeof(secret), pieces, 2, out[i]);
    }
    primitive_wipe(secret, sizeof(secret));
}

static void set_key(struct noise_cipher *c, const uint8_t key[PRIMITIVE_KEY]) {
    memcpy(c->key, key, PRIMITIVE_KEY);
    c->count = 0;
}

static void mix_key(struct noise *n, const uint8_t input[PRIMITIVE_KEY]) {
    uint8_t keys[2][PRIMITIVE_KEY];
    derive(n->ck, input, PRIMITIVE_KEY, keys, 2);
    memcpy(n->ck, keys[0], PRIMITIVE_KEY);
    set_key(&n->cipher, keys[1]);
    primitive_wipe(keys, sizeof(keys));
}

static void mix_key_and_hash(struct noise *n, const uint8_t input[PRIMITIVE_KEY]) {
    uint8_t keys[3][PRIMITIVE_KEY];
    derive(n->ck, input, PRIMITIVE_KEY, keys, 3);
    memcpy(n->ck, keys[0], PRIMITIVE_KEY);
    mix_hash(n, keys[1], PRIMITIVE_KEY);
    set_key(&n->cipher, keys[2]);
    primitive_wipe(keys, sizeof(keys));
}

static void encrypt_and_hash(struct noise *n, const void *plain, size_t len, uint8_t *out) {
    struct primitive_piece with = {n->h, sizeof(n->h)};
    primitive_seal(n->cipher.key, n->cipher.count++, with, plain, len, out);
    mix_hash(n, out, len + PRIMITIVE_TAG);
}

static bool decrypt_and_hash(struct noise *n, const uint8_t *sealed, size_t len, uint8_t *out) {
    uint8_t next[PRIMITIVE_KEY];
    struct primitive_piece with = {n->h, sizeof(n->h)};
    struct primitive_piece pieces[] = {{n->h, sizeof(n->h)}, {sealed, len}};
    /* hashes the sealed bytes before they are unsealed, because `out` may be the same memory as
     * `sealed` */
    primitive_hash(pieces, 2, next);
    if (!primitive_unseal(n->cipher.key, n->cipher.count++, with, sealed, len, out)) return false;
    memcpy(n->h, next, sizeof(next));
    return true;
}

/* ---- the handshake ---- */

void noise_begin(struct noise *n, const void *prologue, size_t prologue_len,
                 const uint8_t psk[PRIMITIVE_KEY], const uint8_t private_key[PRIMITIVE_KEY]) {
    struct primitive_piece name = {protocol_name, sizeof(protocol_name) - 1};
    *n = (struct noise){0};
    primitive_hash(&name, 1, n->h);
    memcpy(n->ck, n->h, sizeof(n->ck));
    memcpy(n->private_key, private_key, sizeof(n->private_key));
    mix_hash(n, prologue, prologue_len);
    /* the element psk of the handshake pattern: mixes in the pre-shared key */
    mix_key_and_hash(n, psk);
}

/* The element e of the handshake pattern, at the end that sends it: writes this end's public key to
 * `out`. In a pattern with a pre-shared key, the public key is mixed into the keys, too, so that no
 * two connections use the same key. */
static void write_e(struct noise *n, uint8_t *out) {
    primitive_public(n->private_key, out);
    mix_hash(n, out, PRIMITIVE_KEY);
    mix_key(n, out);
}

static void read_e(struct noise *n, const uint8_t *in) {
    memcpy(n->other_public, in, PRIMITIVE_KEY);
    mix_hash(n, in, PRIMITIVE_KEY);
    mix_key(n, in);
}

/* The element ee of the handshake pattern: mixes in the secret that only the owners of both key
 * pairs can compute. Returns false if the other end's public key is invalid. */
static bool mix_ee(struct noise *n) {
    uint8_t secret[PRIMITIVE_KEY];
    bool is_valid = primitive_agree(n->private_key, n->other_public, secret);
    if (is_valid) mix_key(n, secret);
    primitive_wipe(secret, sizeof(secret));
    return is_valid;
}

void noise_write_first(struct noise *n, const void *payload, size_t len, uint8_t *out) {
    write_e(n, out);
    encrypt_and_hash(n, payload, len, out + PRIMITIVE_KEY);
}

bool noise_read_first(struct noise *n, const uint8_t *message, size_t len, uint8_t *payload) {
    if (len < NOISE_OVERHEAD) return false;
    read_e(n, message);
    return decrypt_and_hash(n, message + PRIMITIVE_KEY, len - PRIMITIVE_KEY, payload);
}

bool noise_write_second(struct noise *n, const void *payload, size_t len, uint8_t *out) {
    write_e(n, out);
    if (!mix_ee(n)) return false;
    encrypt_and_hash(n, payload, len, out + PRIMITIVE_KEY);
    return true;
}

bool noise_read_second(struct noise *n, const uint8_t *message, size_t len, uint8_t *payload) {
    if (len < NOISE_OVERHEAD) return false;
    read_e(n, message);
    if (!mix_ee(n)) return false;
    return decrypt_and_hash(n, message + PRIMITIVE_KEY, len - PRIMITIVE_KEY, payload);
}

void noise_split(struct noise *n, struct noise_cipher *from_initiator,
                 struct noise_cipher *from_responder) {
    uint8_t keys[2][PRIMITIVE_KEY];
    derive(n->ck, NULL, 0, keys, 2);
    set_key(from_initiator, keys[0]);
    set_key(from_responder, keys[1]);
    primitive_wipe(keys, sizeof(keys));
    primitive_wipe(n, sizeof(*n));
}

/* ---- messages after the handshake ---- */

void noise_seal(struct noise_cipher *c, const void *plain, size_t len, uint8_t *out) {
    struct primitive_piece nothing = {NULL, 0};
    primitive_seal(c->key, c->count++, nothing, plain, len, out);
}

bool noise_unseal(struct noise_cipher *c, const void *sealed, size_t len, uint8_t *out) {
    struct primitive_piece nothing = {NULL, 0};
    if (!primitive_unseal(c->key, c->count, nothing, sealed, len, out)) return false;
    c->count++;
    return true;
}
