/* Measures what it costs to authenticate a connection: the operations on the curve, the whole
 * handshake at each end, records, and the credentials of MUNGE.
 *
 *     handshake
 *
 * Prints the wall time in microseconds: the smallest, the median and the 99th percentile of TRIALS
 * calls. What MUNGE takes is the time until the answer of munged has come; it is left out if this
 * machine has no munged. */
#include "base/error.h"
#include "base/time/clock.h"
#include "rendezvous/secure/primitives_internal.h"
#include "rendezvous/secure/secure.h"
#include "rendezvous/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIALS 2000

static double us[TRIALS];
static int64_t begin_ns;

static void die(const char *what) {
    (void) fprintf(stderr, "handshake: %s\n", what);
    exit(1);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void begin(void) { begin_ns = cr_monotonic_ns(); }
static void end(int trial) { us[trial] = (double) (cr_monotonic_ns() - begin_ns) / 1000; }

static void print(const char *what) {
    qsort(us, TRIALS, sizeof(us[0]), compare);
    (void) printf("%-48s %8.1f %8.1f %8.1f\n", what, us[0], us[TRIALS / 2], us[TRIALS / 100 * 99]);
    (void) fflush(stdout);
}

/* ---- the curve ---- */

static void measure_curve(void) {
    uint8_t own[PRIMITIVE_KEY] = {9}, other[PRIMITIVE_KEY], out[PRIMITIVE_KEY];
    for (int i = 0; i < TRIALS; i++) {
        own[1] = (uint8_t) i;
        begin();
        primitive_public(own, other);
        end(i);
    }
    print("a key pair (crypto_scalarmult_base)");
    for (int i = 0; i < TRIALS; i++) {
        own[2] = (uint8_t) i;
        begin();
        if (!primitive_agree(own, other, out)) die("an agreement has failed");
        end(i);
    }
    print("an agreement (crypto_scalarmult)");
}

/* ---- two tunnels ---- */

static struct secure_keys keys;
static struct secure_tunnel *host, *node;

static void carry(struct secure_tunnel *from, struct secure_tunnel *to) {
    struct cr_buffer *out = secure_tunnel_out(from);
    secure_tunnel_receive(to, out->data, out->len);
    cr_buffer_clear(out);
}

static void free_both(void) {
    secure_tunnel_free(host);
    secure_tunnel_free(node);
}

/* Makes both tunnels, and queues the node's first message. */
static void open_both(void) {
    uint8_t key[SECURE_KEYS_MAX][SECURE_KEY];
    if (secure_keys_for(&keys, SECURE_MEMBER, "job", key) == 0) die("no key");
    if (secure_accept(&keys, &host, NULL) < 0 ||
        secure_connect(SECURE_MEMBER, "job", key[0], &node, NULL) < 0)
        die("out of memory");
}

static void measure_handshakes(void) {
    for (int i = 0; i < TRIALS; i++) {
        begin();
        open_both();
        end(i);
        free_both();
    }
    print("node: first message");
    for (int i = 0; i < TRIALS; i++) {
        open_both();
        begin();
        carry(node, host);
        end(i);
        free_both();
    }
    print("coordinator: answer");
    for (int i = 0; i < TRIALS; i++) {
        open_both();
        carry(node, host);
        begin();
        carry(host, node);
        end(i);
        if (!secure_tunnel_is_open(node)) die("a handshake has failed");
        free_both();
    }
    print("node: after the answer");
}

static void measure_records(void) {
    char text[200] = "";
    open_both();
    carry(node, host);
    carry(host, node);
    for (int i = 0; i < TRIALS; i++) {
        begin();
        if (secure_tunnel_send(node, text, sizeof(text)) < 0) die("out of memory");
        carry(node, host);
        end(i);
        cr_buffer_clear(secure_tunnel_in(host));
    }
    print("a record of 200 bytes, sealed and opened");
    free_both();
}

/* ---- MUNGE ---- */

static void measure_munge(void) {
    static char credentials[TRIALS][SECURE_CREDENTIAL_MAX];
    uint8_t secret[SECURE_KEY] = {1};
    struct secure_ring *ring;
    struct cr_error err = {0};
    if (secure_ring_find(RENDEZVOUS_AUTH_MUNGE, NULL, &ring, &err) < 0) {
        (void) printf("MUNGE is not measured: %s\n", err.text);
        return;
    }
    const struct secure_voucher *voucher = secure_ring_keys(ring)->voucher;
    for (int i = 0; i < TRIALS; i++) {
        begin();
        if (voucher->make(secret, credentials[i], &err) < 0) die(err.text);
        end(i);
    }
    print("MUNGE: a node makes a credential");
    for (int i = 0; i < TRIALS; i++) {
        begin();
        if (voucher->read(credentials[i], secret, &err) < 0) die(err.text);
        end(i);
    }
    print("MUNGE: the coordinator reads a credential");
    for (int i = 0; i < TRIALS; i++) {
        begin();
        if (voucher->read("MUNGE:forged:", secret, &err) == 0) die("munged reads a forgery");
        end(i);
    }
    print("MUNGE: the coordinator reads a forged one");
    secure_ring_close(ring);
}

int main(void) {
    static const char secret[] = "a secret of more than 32 characters\n";
    struct cr_error err = {0};
    if (!primitives_exist()) die("this build has no libsodium");
    if (secure_keys_parse(secret, strlen(secret), &keys, &err) < 0) die(err.text);
    (void) printf("%-48s %8s %8s %8s\n", "microseconds", "least", "median", "p99");
    measure_curve();
    measure_handshakes();
    measure_records();
    measure_munge();
    return 0;
}
