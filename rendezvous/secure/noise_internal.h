/* The handshake Noise_NNpsk0_25519_ChaChaPoly_SHA256 and the ciphers that it yields, as the Noise
 * Protocol Framework (revision 34) defines them. Pure: the caller draws the private keys.
 *
 *     initiator -> responder   psk, e      noise_write_first(), noise_read_first()
 *     responder -> initiator   e, ee       noise_write_second(), noise_read_second()
 *
 * NN: neither end has a key pair of its own. psk0: the pre-shared key is mixed in before anything
 * is sent, so that already the first message shows whether its sender has the key. e, ee: each end
 * has a key pair for this one connection, so that whoever learns the pre-shared key later cannot
 * read a connection that was recorded earlier. */
#ifndef RENDEZVOUS_NOISE_INTERNAL_H
#define RENDEZVOUS_NOISE_INTERNAL_H

#include "rendezvous/secure/primitives_internal.h"

/* bytes of a handshake message without its payload: an X25519 public key and a tag */
#define NOISE_OVERHEAD (PRIMITIVE_KEY + PRIMITIVE_TAG)

/* One direction of a connection. */
struct noise_cipher {
    uint8_t key[PRIMITIVE_KEY];
    uint64_t count; /* number of the next message */
};

/* One end of a handshake that is under way. The names h and ck are those of the specification. */
struct noise {
    uint8_t h[PRIMITIVE_KEY];  /* hash of the prologue and of everything mixed in or sent so far */
    uint8_t ck[PRIMITIVE_KEY]; /* the key from which the next keys are derived */
    struct noise_cipher cipher;
    uint8_t private_key[PRIMITIVE_KEY]; /* of this end, for this connection only */
    uint8_t other_public[PRIMITIVE_KEY];
};

/* Begins a handshake. Both ends must pass the same prologue and the same pre-shared key; otherwise
 * the first message cannot be read. `private_key` is 32 random bytes that are used only once. */
void noise_begin(struct noise *n, const void *prologue, size_t prologue_len,
                 const uint8_t psk[PRIMITIVE_KEY], const uint8_t private_key[PRIMITIVE_KEY]);

/* The functions that write store a message with `len` bytes of payload in `out`, which has room for
 * len + NOISE_OVERHEAD bytes. Those that read take a message of `len` bytes, and store its payload,
 * which is NOISE_OVERHEAD bytes shorter, in `payload`; they return false if the message was not
 * made with the same key and prologue, or was changed. */
void noise_write_first(struct noise *n, const void *payload, size_t len, uint8_t *out);
bool noise_read_first(struct noise *n, const uint8_t *message, size_t len, uint8_t *payload);
/* Returns false if the other end's public key is invalid. */
bool noise_write_second(struct noise *n, const void *payload, size_t len, uint8_t *out);
bool noise_read_second(struct noise *n, const uint8_t *message, size_t len, uint8_t *payload);

/* Call this after the second message. Stores the cipher of each direction, and wipes the keys of
 * the handshake. */
void noise_split(struct noise *n, struct noise_cipher *from_initiator,
                 struct noise_cipher *from_responder);

/* Seals or unseals the next message of a direction. Sizes are those of primitive_seal().
 * noise_unseal() returns false if the message cannot be read. */
void noise_seal(struct noise_cipher *c, const void *plain, size_t len, uint8_t *out);
bool noise_unseal(struct noise_cipher *c, const void *sealed, size_t len, uint8_t *out);

#endif
