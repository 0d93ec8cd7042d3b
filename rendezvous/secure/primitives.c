/* Calls libsodium: see primitives_internal.h. A build without libsodium's header has only
 * primitives_exist(), which returns false, and functions that are never called. */
#include "rendezvous/secure/primitives_internal.h"

#include "base/assert.h"

#include <string.h>

#if __has_include(<sodium.h>)
#include <sodium.h>

_Static_assert(PRIMITIVE_KEY == crypto_scalarmult_BYTES, "the size of an X25519 key");
_Static_assert(PRIMITIVE_KEY == crypto_hash_sha256_BYTES, "the size of a SHA-256");
_Static_assert(PRIMITIVE_KEY == crypto_auth_hmacsha256_BYTES, "the size of an HMAC-SHA-256");
_Static_assert(PRIMITIVE_KEY == crypto_aead_chacha20poly1305_IETF_KEYBYTES, "the size of a key");
_Static_assert(PRIMITIVE_TAG == crypto_aead_chacha20poly1305_IETF_ABYTES, "the size of a tag");

/* libsodium's documentation wants sodium_init() before every other call. It may be called several
 * times and by several threads. It chooses functions for this processor: with AVX2, sealing 16 KiB
 * takes 11 us instead of 35 us, but a key pair takes 33 us instead of 14 us. */
bool primitives_exist(void) { return sodium_init() >= 0; }

void primitive_hash(const struct primitive_piece *pieces, size_t count,
                    uint8_t out[PRIMITIVE_KEY]) {
    crypto_hash_sha256_state s;
    (void) crypto_hash_sha256_init(&s);
    for (size_t i = 0; i < count; i++) {
        (void) crypto_hash_sha256_update(&s, pieces[i].data, pieces[i].len);
    }
    (void) crypto_hash_sha256_final(&s, out);
}

void primitive_hmac(const void *key, size_t key_len, const struct primitive_piece *pieces,
                    size_t count, uint8_t out[PRIMITIVE_KEY]) {
    crypto_auth_hmacsha256_state s;
    (void) crypto_auth_hmacsha256_init(&s, key, key_len);
    for (size_t i = 0; i < count; i++) {
        (void) crypto_auth_hmacsha256_update(&s, pieces[i].data, pieces[i].len);
    }
    (void) crypto_auth_hmacsha256_final(&s, out);
    sodium_memzero(&s, sizeof(s));
}

/* Writes the nonce number as the Noise specification has it for ChaCha20-Poly1305: 4 bytes 0, then
 * the number with its lowest byte first. */
static void write_nonce(uint64_t n, uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES]) {
    memset(nonce, 0, 4);
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t) (n >> 8 * i);
}

void primitive_seal(const uint8_t key[PRIMITIVE_KEY], uint64_t n, struct primitive_piece with,
                    const void *plain, size_t len, uint8_t *out) {
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    write_nonce(n, nonce);
    (void) crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, plain, len, with.data, with.len,
                                                     NULL, nonce, key);
}

bool primitive_unseal(const uint8_t key[PRIMITIVE_KEY], uint64_t n, struct primitive_piece with,
                      const void *sealed, size_t len, uint8_t *out) {
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    write_nonce(n, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, sealed, len, with.data,
                                                     with.len, nonce, key) == 0;
}

void primitive_public(const uint8_t private_key[PRIMITIVE_KEY], uint8_t out[PRIMITIVE_KEY]) {
    (void) crypto_scalarmult_base(out, private_key);
}

bool primitive_agree(const uint8_t private_key[PRIMITIVE_KEY],
                     const uint8_t public_key[PRIMITIVE_KEY], uint8_t out[PRIMITIVE_KEY]) {
    return crypto_scalarmult(out, private_key, public_key) == 0;
}

void primitive_wipe(void *memory, size_t len) { sodium_memzero(memory, len); }

#else
#define NOT_BUILT CR_ASSERT(!"this build has no libsodium")

bool primitives_exist(void) { return false; }

void primitive_hash(const struct primitive_piece *pieces, size_t count,
                    uint8_t out[PRIMITIVE_KEY]) {
    (void) pieces, (void) count, (void) out;
    NOT_BUILT;
}

void primitive_hmac(const void *key, size_t key_len, const struct primitive_piece *pieces,
                    size_t count, uint8_t out[PRIMITIVE_KEY]) {
    (void) key, (void) key_len, (void) pieces, (void) count, (void) out;
    NOT_BUILT;
}

void primitive_seal(const uint8_t key[PRIMITIVE_KEY], uint64_t n, struct primitive_piece with,
                    const void *plain, size_t len, uint8_t *out) {
    (void) key, (void) n, (void) with, (void) plain, (void) len, (void) out;
    NOT_BUILT;
}

bool primitive_unseal(const uint8_t key[PRIMITIVE_KEY], uint64_t n, struct primitive_piece with,
                      const void *sealed, size_t len, uint8_t *out) {
    (void) key, (void) n, (void) with, (void) sealed, (void) len, (void) out;
    NOT_BUILT;
    return false;
}

void primitive_public(const uint8_t private_key[PRIMITIVE_KEY], uint8_t out[PRIMITIVE_KEY]) {
    (void) private_key, (void) out;
    NOT_BUILT;
}

bool primitive_agree(const uint8_t private_key[PRIMITIVE_KEY],
                     const uint8_t public_key[PRIMITIVE_KEY], uint8_t out[PRIMITIVE_KEY]) {
    (void) private_key, (void) public_key, (void) out;
    NOT_BUILT;
    return false;
}

void primitive_wipe(void *memory, size_t len) { memset(memory, 0, len); }
#endif
