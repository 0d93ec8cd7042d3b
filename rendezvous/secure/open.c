/* Makes the tunnels of real connections: draws their random numbers, and logs the changes of their
 * states. The tunnels themselves are pure (tunnel.c). */
#include "rendezvous/secure/secure.h"

#include "base/log/log.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static int draw(uint8_t random[SECURE_KEY], struct cr_error *err) {
    if (getrandom(random, SECURE_KEY, 0) == (ssize_t) SECURE_KEY) return 0;
    return cr_fail_errno(err, "cannot draw a random number");
}

/* Completes the opening of the tunnel, which is NULL if memory was short. */
static int complete(struct secure_tunnel *tunnel, struct secure_tunnel **out,
                    struct cr_error *err) {
    if (tunnel == NULL) return cr_fail(err, -ENOMEM, "out of memory");
    secure_tunnel_trace(tunnel, cr_log_trace());
    *out = tunnel;
    return 0;
}

int secure_accept(const struct secure_keys *keys, struct secure_tunnel **out,
                  struct cr_error *err) {
    uint8_t random[SECURE_KEY] = {0};
    int rc = keys != NULL ? draw(random, err) : 0;
    if (rc == 0) rc = complete(secure_tunnel_accept(keys, random), out, err);
    explicit_bzero(random, sizeof(random));
    return rc;
}

/* Makes a tunnel with a new random secret, and the credential that carries it to the other end. */
static int vouch(const struct secure_voucher *voucher, enum secure_role role, const char *run_id,
                 struct secure_tunnel **out, struct cr_error *err) {
    uint8_t random[SECURE_KEY], secret[SECURE_KEY];
    char credential[SECURE_CREDENTIAL_MAX];
    int rc = draw(random, err);
    if (rc == 0) rc = draw(secret, err);
    if (rc == 0) rc = voucher->make(secret, credential, err);
    if (rc == 0) {
        rc = complete(secure_tunnel_vouch(role, run_id, secret, credential, random), out, err);
    }
    explicit_bzero(random, sizeof(random));
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

int secure_ring_connect(struct secure_ring *ring, enum secure_role role, const char *run_id,
                        struct secure_tunnel **out, struct cr_error *err) {
    uint8_t key[SECURE_KEY];
    const struct secure_keys *keys = secure_ring_keys(ring);
    if (keys->voucher != NULL) return vouch(keys->voucher, role, run_id, out, err);
    int rc = secure_ring_choose(ring, role, run_id, key, err);
    if (rc < 0) return rc;
    rc = secure_connect(role, run_id, key, out, err);
    explicit_bzero(key, sizeof(key));
    return rc;
}

int secure_connect(enum secure_role role, const char *run_id, const uint8_t key[SECURE_KEY],
                   struct secure_tunnel **out, struct cr_error *err) {
    uint8_t random[SECURE_KEY];
    int rc = draw(random, err);
    if (rc == 0) rc = complete(secure_tunnel_connect(role, run_id, key, random), out, err);
    explicit_bzero(random, sizeof(random));
    return rc;
}
