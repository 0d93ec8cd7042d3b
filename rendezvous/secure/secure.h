/* Authenticated and encrypted connections between nodes or operators and a coordinator. This header
 * is the door of rendezvous/secure.
 *
 * A tunnel is one end of a connection. It lies between the transport (a socket, or the memory of a
 * test) and the session (rendezvous/protocol), and is pure: received bytes go in, and bytes to send
 * and authenticated plain text come out.
 *
 *     transport ── secure_tunnel_receive() ──► tunnel ── secure_tunnel_in() ───► session
 *     transport ◄── secure_tunnel_out() ────── tunnel ◄── secure_tunnel_send() ── session
 *
 * The handshake is Noise_NNpsk0_25519_ChaChaPoly_SHA256 (noise_internal.h). Its pre-shared key is
 * derived from the role, the run id, and a secret: of the job's token file, or of a credential that
 * a trusted daemon has made (munge.c). The bytes on the wire:
 *
 *     node or operator -> coordinator, in clear, and part of the handshake's prologue:
 *         "CRUNsec1", u8 version, u8 role, u16 length of the run id, run id
 *         version 1: the pre-shared key follows from a secret of the token file
 *         version 2: u16 length of the credential, credential (struct secure_voucher); the
 *         pre-shared key follows from the secret in the credential
 *     after that: the first handshake message, 48 bytes
 *     coordinator -> node or operator: "CRUN", and after that one of
 *         'K', the second handshake message, 48 bytes
 *         'A', u8 enum secure_failure: the coordinator refuses, and closes the connection
 *     from then on, in both directions, records: u16 length, and that many bytes of ciphertext
 *
 * Numbers have their highest byte first. The nonces of a direction count its records, so a record
 * that is changed, repeated, left out, moved, or sent back to its sender cannot be read. */
#ifndef RENDEZVOUS_SECURE_H
#define RENDEZVOUS_SECURE_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/log/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECURE_MAGIC      "CRUNsec1" /* what a tunnel begins with */
#define SECURE_KEY        32   /* bytes of a key */
#define SECURE_KEYS_MAX   8    /* most secrets in a token file */
#define SECURE_ID_MAX     1024 /* bytes of a run id, NUL included */
#define SECURE_SECRET_MIN 32   /* fewest characters of a secret */
/* most bytes of a token file: 8 lines with a run id of 1023 bytes each, and comments */
#define SECURE_FILE_MAX   ((size_t) 16384)
#define SECURE_PLAIN_MAX  ((size_t) 16384) /* most bytes of plain text in one record */
#define SECURE_CREDENTIAL_MAX 1024 /* bytes of the text of a credential, NUL included */

/* ---- secrets ---- */

/* What a node or an operator uses its connection for. Messages carry the numbers, so they must not
 * change. */
enum secure_role {
    SECURE_MEMBER = 1,   /* a node takes part in the job */
    SECURE_OPERATOR = 2, /* an operator queries jobs, or gives orders to them */
    SECURE_USER = 3,     /* a user runs commands on another host (remote/); the run id is the
                          * identity of the account, "UID:NAME" */
};

/* Makes and reads credentials. A credential carries a secret, and only processes of one user, on
 * hosts that trust each other, can make it and read it. make() stores a credential for `secret` in
 * `out`. read() stores the secret of a credential that a process of this user has made, and that
 * was not read before. Both return 0, or a negative errno and a text in err. Threads may call both
 * at the same time. */
struct secure_voucher {
    int (*make)(const uint8_t secret[SECURE_KEY], char out[SECURE_CREDENTIAL_MAX],
                struct cr_error *err);
    int (*read)(const char *credential, uint8_t secret[SECURE_KEY], struct cr_error *err);
};

/* What an end needs to authenticate the other end: either the secrets of a token file, the newest
 * first, which secure_keys_parse() fills in; or a voucher, and in that case no secrets. */
struct secure_keys {
    const struct secure_voucher *voucher; /* NULL = the ends authenticate by secrets */
    uint32_t count;
    struct secure_secret {
        /* If this is 0, `bytes` is a secret from which the keys of all roles and jobs are derived.
         * Otherwise it is an enum secure_role, and `bytes` is the key of this role for the job
         * `run_id`. */
        uint32_t role;
        uint8_t bytes[SECURE_KEY];
        char run_id[SECURE_ID_MAX]; /* an operator's "": all jobs */
    } secrets[SECURE_KEYS_MAX];
};

/* Parses the `len` bytes of a token file. Each line is a secret of at least SECURE_SECRET_MIN
 * characters, or a derived key as secure_key_write() writes it; empty lines and lines that begin
 * with '#' are skipped. Returns 0, or -EINVAL and a text in err that names the line and never
 * contains a secret. */
int secure_keys_parse(const char *text, size_t len, struct secure_keys *out, struct cr_error *err);
/* Stores in `out` the keys that a role has for a job, the newest first, and returns how many there
 * are; 0 = none of the secrets is for this role and job. */
uint32_t secure_keys_for(const struct secure_keys *keys, enum secure_role role, const char *run_id,
                         uint8_t out[SECURE_KEYS_MAX][SECURE_KEY]);
/* Stores in `key` the key of a role for a job that follows from the secret of a credential. */
void secure_key_of_credential(const uint8_t secret[SECURE_KEY], enum secure_role role,
                              const char *run_id, uint8_t key[SECURE_KEY]);
/* Returns the run id under which an operator with these secrets authenticates: "" for all jobs, or
 * the job of the first operator's key; NULL if none of the secrets is for an operator. The text is
 * valid as long as `keys`. */
const char *secure_keys_operates(const struct secure_keys *keys);
/* Appends a line of a token file to `out`, with the newest key of a role for a job. Whoever has the
 * line has this role in this job, and can do nothing else. Returns 0, -ENOENT if there is no such
 * key, or -ENOMEM. */
int secure_key_write(const struct secure_keys *keys, enum secure_role role, const char *run_id,
                     struct cr_buffer *out);

struct secure_tunnel;

/* What this process authenticates with: a token file, which is read again when it has changed; or
 * the MUNGE daemon of this host. */
struct secure_ring;

/* Reads a token file. Refuses a file that others can read or write, and one that belongs neither to
 * this user nor to root. Returns 0, or a negative errno and a text in err: for example -ENOTSUP if
 * this build has no libsodium. */
int secure_ring_open(const char *path, struct secure_ring **out, struct cr_error *err);
/* Returns the path of the token file to use: `given` if it is neither NULL nor "", else the path at
 * which a Kubernetes secret is mounted if there is one, else NULL. */
const char *secure_token_path(const char *given);
/* Finds out how this end authenticates: by the token file `given`; or if that is NULL or "", by the
 * file of the mounted Kubernetes secret if there is one; or by MUNGE, if this process is a task of
 * Slurm or `auth` is RENDEZVOUS_AUTH_MUNGE. `auth` is an enum rendezvous_auth. Stores NULL in *out
 * if `auth` is RENDEZVOUS_AUTH_OFF, or if there is neither a file nor MUNGE and `auth` is
 * RENDEZVOUS_AUTH_AUTO. Returns 0, or the errors of secure_ring_open(), or a negative errno and a
 * text in err: -EINVAL if authentication is required, but there is neither file nor MUNGE;
 * -ETIMEDOUT or -EIO if the socket of the MUNGE daemon exists, but the daemon does not answer. */
int secure_ring_find(int auth, const char *given, struct secure_ring **out, struct cr_error *err);
/* Returns why the last secure_ring_find() has not used MUNGE, although this process is a task of
 * Slurm; or "". */
const char *secure_munge_absence(void);
/* Returns the secrets of the file. If the file has changed since the last call, reads it again; if
 * that fails, logs a warning and keeps the old secrets. The result is valid until
 * secure_ring_close(), but a later call may change what is in it. */
const struct secure_keys *secure_ring_keys(struct secure_ring *ring);
/* Returns whether the ends authenticate by MUNGE, and not by a token file. */
bool secure_ring_is_munge(const struct secure_ring *ring);
/* Makes the tunnel of a node's or an operator's next connection: with the key that
 * secure_ring_choose() chooses, or with a new credential of MUNGE. With MUNGE it waits for munged,
 * for up to 0.5 s, and may run on any thread, also while other threads use the ring. Returns 0 and
 * stores the tunnel in *out; or a negative errno, and sets err. */
int secure_ring_connect(struct secure_ring *ring, enum secure_role role, const char *run_id,
                        struct secure_tunnel **out, struct cr_error *err);
/* Stores in `key` the key with which this end begins its next connection: at first, the newest one
 * of the file. Call secure_ring_refused() when the coordinator does not have that key. The next
 * connection then begins with the next key of the file, because the coordinator may not have the
 * newest one yet. Returns 0, or -ENOENT and a text in err if no secret of the file is for this role
 * and job. */
int secure_ring_choose(struct secure_ring *ring, enum secure_role role, const char *run_id,
                       uint8_t key[SECURE_KEY], struct cr_error *err);
void secure_ring_refused(struct secure_ring *ring);
const char *secure_ring_path(const struct secure_ring *ring);
void secure_ring_close(struct secure_ring *ring); /* wipes the secrets; `ring` may be NULL */

/* ---- one end of a connection ---- */

/* clang-format off */
/* S(NAME) — each state and its meaning. A tunnel has no clock: its owner limits the time of the
 * whole greeting (SESSION_GREETING_MS at the coordinator; ASK_AFTER_MS and the limit of the try at
 * a node). */
#define SECURE_STATES(S) \
    S(FIRST)   /* coordinator: waits for the magic number of the connection */ \
    S(OFFERED) /* coordinator: waits for the rest of the first handshake message */ \
    S(AGREE)   /* coordinator: waits for its owner's secure_tunnel_agreed() */ \
    S(CONFIRM) /* coordinator: has answered; waits for a valid record, which a replay lacks */ \
    S(ANSWER)  /* node, operator: waits for the second handshake message */ \
    S(OPEN)    /* both ends are authenticated */ \
    S(PLAIN)   /* coordinator without secrets: bytes pass as they are, from the first one on */ \
    S(FAILED)  /* nothing follows; secure_tunnel_failure() says why */
/* clang-format on */
enum secure_state {
#define S(name) SECURE_##name,
    SECURE_STATES(S)
#undef S
};
const char *secure_state_name(enum secure_state s);

/* Why a tunnel has FAILED. The numbers 1 to 3 and 9 to 11 are sent in answers, so they must not
 * change. */
enum secure_failure {
    SECURE_NO_FAILURE = 0,
    SECURE_WRONG_KEY = 1, /* the ends have no common key for this role and job */
    SECURE_NO_SECRET = 2, /* the node or operator has a secret, the coordinator has none */
    SECURE_VERSION = 3,   /* the other end has another version of this protocol */
    SECURE_IS_PLAIN = 4,  /* the coordinator has a secret, the node or operator has none */
    SECURE_REPLAY = 5,    /* the first record cannot be read: the handshake was a recorded one */
    SECURE_CHANGED = 6,   /* bytes were changed on their way */
    SECURE_STRANGE = 7,   /* the other end speaks another protocol */
    SECURE_MEMORY = 8,    /* memory is short */
    SECURE_NO_MUNGE = 9,  /* the node or operator uses MUNGE, the coordinator does not */
    SECURE_ONLY_MUNGE = 10, /* the coordinator uses MUNGE, the node or operator has a secret */
    SECURE_BAD_CREDENTIAL = 11, /* MUNGE does not accept the credential of the node or operator */
};
/* Returns what a failure means, as a phrase about the other end, such as "it speaks another
 * protocol". `is_host` is true if this is the coordinator's end, false at a node or an operator. */
const char *secure_failure_text(enum secure_failure f, bool is_host);

/* Creates the coordinator's end. `keys` must live as long as the tunnel; if it is NULL, the
 * coordinator has no secret and serves plain connections only. `random` is 32 random bytes that no
 * other tunnel gets; it may be NULL if `keys` is. Returns NULL when memory is short. */
struct secure_tunnel *secure_tunnel_accept(const struct secure_keys *keys,
                                             const uint8_t random[SECURE_KEY]);
/* Creates the end of a node or an operator, and queues the first handshake message. `run_id` is cut
 * after SECURE_ID_MAX - 1 bytes. Returns NULL when memory is short. */
struct secure_tunnel *secure_tunnel_connect(enum secure_role role, const char *run_id,
                                              const uint8_t key[SECURE_KEY],
                                              const uint8_t random[SECURE_KEY]);
/* Does what secure_tunnel_connect() does, but with MUNGE: sends `credential`, which carries
 * `secret` to the coordinator. The key follows from `secret`. */
struct secure_tunnel *secure_tunnel_vouch(enum secure_role role, const char *run_id,
                                          const uint8_t secret[SECURE_KEY], const char *credential,
                                          const uint8_t random[SECURE_KEY]);
void secure_tunnel_free(struct secure_tunnel *c); /* wipes the keys; `c` may be NULL */
/* Call secure_tunnel_defer() at the coordinator's end if another thread is to compute the answer to
 * the first handshake message, which takes two operations on the curve, 70 us, and if the message
 * has a credential, also waits for the daemon that reads it, up to 0.5 s. After that call,
 * secure_tunnel_receive() does not check and answer this message, but enters AGREE. In that state
 * the owner calls secure_tunnel_agree(), which checks the message and computes the answer. This
 * function may run on any thread, also while another thread calls the functions below; but the
 * tunnel must not be freed before it has returned. After it has returned, the owner calls
 * secure_tunnel_agreed() on the thread of all other calls, and goes on as after
 * secure_tunnel_receive(). */
void secure_tunnel_defer(struct secure_tunnel *c);
void secure_tunnel_agree(struct secure_tunnel *c);
void secure_tunnel_agreed(struct secure_tunnel *c);
/* Makes the tunnel report each change of its state. */
void secure_tunnel_trace(struct secure_tunnel *c, struct cr_trace trace);

/* Make the tunnel of a real connection, as secure_tunnel_accept() and secure_tunnel_connect() do,
 * with a random number from the kernel, and with the changes of its state in the log (level debug).
 * Return 0 and store the tunnel in *out; or a negative errno, and set err. */
int secure_accept(const struct secure_keys *keys, struct secure_tunnel **out,
                  struct cr_error *err);
int secure_connect(enum secure_role role, const char *run_id, const uint8_t key[SECURE_KEY],
                   struct secure_tunnel **out, struct cr_error *err);

/* Handles received bytes, in pieces of any size. After this call, and after secure_tunnel_send(),
 * the owner takes the plain text from secure_tunnel_in(), sends what is in secure_tunnel_out(), and
 * checks the state. In FAILED, received bytes are ignored. */
void secure_tunnel_receive(struct secure_tunnel *c, const void *data, size_t len);
/* Seals plain text and appends the records to secure_tunnel_out(). The state must be OPEN. Returns
 * 0 or -ENOMEM; after an error the connection must be closed, because a part of the text may be
 * missing. */
int secure_tunnel_send(struct secure_tunnel *c, const void *data, size_t len);

/* secure_tunnel_out() returns the bytes to send, secure_tunnel_in() the plain text that was
 * received. The owner removes from these buffers what it has sent or used. */
struct cr_buffer *secure_tunnel_out(struct secure_tunnel *c);
struct cr_buffer *secure_tunnel_in(struct secure_tunnel *c);

enum secure_state secure_tunnel_state(const struct secure_tunnel *c);
enum secure_failure secure_tunnel_failure(const struct secure_tunnel *c);
/* Returns why MUNGE did not accept the credential, after SECURE_BAD_CREDENTIAL; otherwise "". */
const char *secure_tunnel_detail(const struct secure_tunnel *c);
/* Returns whether the other end has shown that it has the key of its role and run id. */
bool secure_tunnel_is_open(const struct secure_tunnel *c);
enum secure_role secure_tunnel_role(const struct secure_tunnel *c);
const char *secure_tunnel_run_id(const struct secure_tunnel *c);
/* Returns the received bytes that a FAILED tunnel did not understand; they can show which program
 * has sent them. */
const struct cr_buffer *secure_tunnel_raw(const struct secure_tunnel *c);

#endif
