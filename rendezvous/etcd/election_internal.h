/* Decides how a node takes part in the election of its job's coordinator by means of etcd. Pure: it
 * gets events and the time, and calls actions; client.c is the shell around it.
 *
 * There is one key for each job. The node that creates the key leads; the transaction "create the
 * key if it does not exist" lets only one node win. Every node watches the key. Only a candidate
 * creates it, and only while it needs a coordinator (it is not connected to one) or was the newest
 * leader itself. So if a leader's lease expires during an outage of etcd, but all nodes are still
 * connected to that leader, no other node takes its place, and the leader creates the key again.
 *
 * A leader whose lease is confirmed has the right to form rounds. If etcd does not confirm the
 * lease in time, the leader only loses this right; its running round goes on. */
#ifndef RENDEZVOUS_ELECTION_INTERNAL_H
#define RENDEZVOUS_ELECTION_INTERNAL_H

#include "base/log/log.h"
#include "rendezvous/etcd/key_internal.h"

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
/* S(NAME) — each state, its meaning and its time limit. */
#define ETCD_ELECTION_STATES(S) \
    S(LOOKING)   /* waits for READ's answer. Limit: that of READ; then asks the next member */ \
    S(VACANT)    /* no node leads. Only a candidate that needs a coordinator has a time limit */ \
                 /* VACANT: a candidate that needs a coordinator claims after claim_delay_ms */ \
    S(FOLLOWING) /* another node leads. No time limit */ \
    S(LEADING)   /* this node leads. No time limit; the right to form ends at 5/6 of the lease */

/* C(NAME) — the calls to etcd. At most one call of each kind is under way. */
#define ETCD_CALLS(C) \
    C(LOGIN)   /* sends user and password, gets a token for the other calls */ \
    C(MEMBERS) /* gets the addresses of the members of the etcd cluster */ \
    C(READ)    /* gets the key */ \
    C(WATCH)   /* a stream of the key's changes; it has no end */ \
    C(GRANT)   /* gets a lease for this node */ \
    C(CLAIM)   /* creates the key if it does not exist, else gets it */ \
    C(KEEP)    /* renews the lease */ \
    C(RELEASE) /* ends a lease, and deletes the key that belongs to it */ \
    C(FORGET)  /* deletes the mark, which says that the job has had a leader */
/* clang-format on */

enum etcd_election_state {
#define S(name) ETCD_##name,
    ETCD_ELECTION_STATES(S)
#undef S
};
enum etcd_call {
#define C(name) ETCD_CALL_##name,
    ETCD_CALLS(C)
#undef C
    ETCD_CALL_COUNT
};
const char *etcd_election_state_name(enum etcd_election_state s);
const char *etcd_call_name(enum etcd_call c);

/* time limit of a call in ms. A watch has this limit only until etcd confirms the watch. KEEP has a
 * third of the lease as its limit instead. */
#define ETCD_CALL_LIMIT_MS INT64_C(3000)

struct etcd_election_settings {
    int64_t lease_ms;       /* time to live of this node's lease in etcd */
    /* how long this candidate waits before it claims the key; CR_FOREVER = this node is no
     * candidate */
    int64_t claim_delay_ms;
    bool has_user;          /* true: LOGIN comes before the other calls */
    bool finds_members;     /* true: MEMBERS is called once */
    uint64_t seed;          /* random; spreads the waiting times of many nodes */
};

/* The actions must not call the election. */
struct etcd_election_actions {
    /* Starts a call to the current member of the etcd cluster. */
    void (*start)(void *arg, enum etcd_call call);
    void (*cancel)(void *arg, enum etcd_call call);
    /* Makes the next member of the cluster the current one. */
    void (*next_member)(void *arg);
    /* The node that has created the key leads. `is_us` is true if it is this node. */
    void (*on_leader)(void *arg, const struct etcd_key *key, bool is_us);
    /* The key does not exist any more, so no node leads. */
    void (*on_vacant)(void *arg);
    /* This node has the right to form rounds until until_ms; 0 = it has lost the right. Called each
     * time until_ms changes, so also when etcd has renewed the lease. */
    void (*on_right)(void *arg, int64_t until_ms);
    void (*log)(void *arg, enum cr_log_level level, const char *text);
};

/* The owner embeds this struct. The owner may read `lease`, `released` and `watch_from`; all other
 * fields are private. A field for a time is CR_FOREVER if that time does not come. */
struct etcd_election {
    char lease[ETCD_LEASE_ID_MAX];    /* id of this node's lease; "" = it has none */
    char released[ETCD_LEASE_ID_MAX]; /* id of the lease that RELEASE ends */
    uint64_t watch_from;              /* first revision that WATCH reports */

    struct etcd_election_settings set;
    const struct etcd_election_actions *actions;
    void *arg;
    enum etcd_election_state state;
    bool needs;         /* true: this node is not connected to a coordinator */
    bool hosts;         /* true: the newest leader that is known is this node */
    bool has_token, knows_members;
    bool is_fresh;      /* true: the current member has answered READ, and READ is not due again */
    bool is_watching;   /* true: etcd has confirmed the watch */
    bool closed;
    uint64_t epoch, revision; /* largest numbers seen so far */
    int64_t lease_until_ms;   /* end of the lease, as renew_lease() counts it */
    int64_t right_until_ms;   /* end of the right to form rounds; 0 = this node has no such right */
    int64_t keep_ms;          /* time at which KEEP is due */
    int64_t claim_ms;         /* before this time the key is not claimed */
    int64_t retry_ms;         /* before this time no call is started; 0 = there is no pause */
    int64_t verify_ms;        /* if `needs`: time at which READ is due again */
    int64_t read_ms;          /* time at which the newest READ was started */
    int64_t sent_ms[ETCD_CALL_COUNT], limit_ms[ETCD_CALL_COUNT];
    bool under_way[ETCD_CALL_COUNT];
    bool answered[ETCD_CALL_COUNT]; /* true: the call under way has got its answer */
    uint32_t failures;        /* number of failed calls since the last answer to READ */
};

/* Initialises the election and starts the first calls. `actions` must live as long as the
 * election. */
void etcd_election_begin(struct etcd_election *e, int64_t now_ms,
                         const struct etcd_election_settings *settings,
                         const struct etcd_election_actions *actions, void *arg);

/* Tells the election whether the node needs a coordinator. Call this with true when the node begins
 * to look for a coordinator, and with false when the node is connected to one. */
void etcd_election_need(struct etcd_election *e, int64_t now_ms, bool needs);

/* The functions from here to etcd_election_kept() tell the election what etcd has answered. Each of
 * them belongs to one kind of answer. When the call is over, call etcd_election_ended(), too. */
void etcd_election_logged_in(struct etcd_election *e);
void etcd_election_found_members(struct etcd_election *e);
/* Tells the election the key that etcd has reported. `call` is the call whose answer reports the
 * key: READ or CLAIM, or WATCH for an event of the watch. */
void etcd_election_got_key(struct etcd_election *e, int64_t now_ms, enum etcd_call call,
                           const struct etcd_key *key);
void etcd_election_watches(struct etcd_election *e);
void etcd_election_granted(struct etcd_election *e, const char *lease);
/* Tells the election what etcd has answered to KEEP. `lives` is false if the lease does not exist
 * any more. */
void etcd_election_kept(struct etcd_election *e, int64_t now_ms, bool lives);

/* Tells the election that a call has ended. `failed` is true if the member of the cluster did not
 * answer, or answered with an error, which `why` describes. After a failure, the election starts
 * all calls again at the next member. */
void etcd_election_ended(struct etcd_election *e, int64_t now_ms, enum etcd_call call, bool failed,
                         const char *why);

/* Call this at etcd_election_deadline(). */
void etcd_election_tick(struct etcd_election *e, int64_t now_ms);
int64_t etcd_election_deadline(const struct etcd_election *e);

/* Cancels all calls. Starts RELEASE if this node has a lease, and FORGET if this node leads and
 * `is_over` says that the job has ended. No other action follows. Returns how many calls were
 * started. */
unsigned etcd_election_close(struct etcd_election *e, bool is_over);

/* Returns claim_delay_ms for a node of a job of up to `max_nodes` nodes. The delays differ, so that
 * only a few nodes claim the key at once. `random` is a random number of the node. */
int64_t etcd_claim_delay_ms(uint64_t random, uint32_t max_nodes);

#endif
