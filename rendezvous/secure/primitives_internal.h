/* The cryptographic primitives of the handshake and of the records: X25519, ChaCha20-Poly1305,
 * SHA-256 and HMAC-SHA-256. All of them are functions of libsodium; this header only gives them the
 * sizes and the order of arguments that noise.c needs, so that a build without libsodium differs in
 * one file. Pure. */
#ifndef RENDEZVOUS_PRIMITIVES_INTERNAL_H
#define RENDEZVOUS_PRIMITIVES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRIMITIVE_KEY  32 /* bytes of a symmetric key, of a hash, and of an X25519 key */
#define PRIMITIVE_TAG  16 /* bytes by which a sealed text is longer than its plain text */

/* Initialises libsodium. Returns whether this build has libsodium and can use it; if not, the
 * functions below must not be called. Each program calls this function before those below, because
 * it reads its secrets by secure_ring_open(), which calls this function. */
bool primitives_exist(void);

struct primitive_piece { /* `len` bytes at `data` */
    const void *data;
    size_t len;
};

/* primitive_hash() stores the SHA-256 of the pieces in `out`; primitive_hmac() stores their
 * HMAC-SHA-256 under `key`. `out` may be the memory of a piece or of the key. */
void primitive_hash(const struct primitive_piece *pieces, size_t count,
                    uint8_t out[PRIMITIVE_KEY]);
void primitive_hmac(const void *key, size_t key_len, const struct primitive_piece *pieces,
                    size_t count, uint8_t out[PRIMITIVE_KEY]);

/* Seals the `len` bytes at `plain` under `key` and the nonce number `n`, which must be used only
 * once with this key. Authenticates the bytes of `with`, too, which are not part of the result.
 * Writes len + PRIMITIVE_TAG bytes to `out`; `out` and `plain` may be the same address. */
void primitive_seal(const uint8_t key[PRIMITIVE_KEY], uint64_t n, struct primitive_piece with,
                    const void *plain, size_t len, uint8_t *out);
/* Opens what primitive_seal() has written; `len` is its length, PRIMITIVE_TAG included. Writes len
 * - PRIMITIVE_TAG bytes to `out`, which may be the address of `sealed`. Returns false, and writes
 * nothing of use, if key, number or `with` is not the one that primitive_seal() got, or if a byte
 * of `sealed` was changed. */
bool primitive_unseal(const uint8_t key[PRIMITIVE_KEY], uint64_t n, struct primitive_piece with,
                      const void *sealed, size_t len, uint8_t *out);

/* Stores the X25519 public key of a private key in `out`. */
void primitive_public(const uint8_t private_key[PRIMITIVE_KEY], uint8_t out[PRIMITIVE_KEY]);
/* Stores in `out` the secret that the owners of both key pairs can compute. Returns false if the
 * public key is one of the few with which every private key gives the same result. */
bool primitive_agree(const uint8_t private_key[PRIMITIVE_KEY],
                     const uint8_t public_key[PRIMITIVE_KEY], uint8_t out[PRIMITIVE_KEY]);

/* Overwrites memory that held a key. The compiler cannot leave this out. */
void primitive_wipe(void *memory, size_t len);

#endif
