/* Reads the fields of etcd's JSON answers: tokens, leases, members of the cluster, and the key of
 * the election. Pure. etcd's JSON has 64-bit numbers as decimal texts and bytes as base64, and it
 * omits fields that are 0 or false. A field of the wrong type is treated like a missing field. */
#ifndef RENDEZVOUS_FIELDS_INTERNAL_H
#define RENDEZVOUS_FIELDS_INTERNAL_H

#include "base/network/endpoint.h"
#include "rendezvous/etcd/key_internal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* size of a token in bytes, with its NUL; a JSON web token has several hundred bytes */
#define ETCD_TOKEN_MAX 4096

/* Returns `text` in base64, which the caller frees, or NULL when memory is short. */
char *etcd_base64(const char *text);

/* Stores the token from the answer to a login. Returns false if the answer has none, or one with
 * characters that an HTTP header cannot have. */
bool etcd_read_token(const json_t *answer, char token[ETCD_TOKEN_MAX]);

/* Stores the lease id from the answer to a lease grant in `id`. Returns false if the answer has
 * none. */
bool etcd_read_lease(const json_t *answer, char id[ETCD_LEASE_ID_MAX]);

/* Returns whether the lease still exists, according to the answer to a lease keep-alive. */
bool etcd_lease_lives(const json_t *answer);

/* Stores the addresses of the cluster's members in `out`, at most `room` of them. If `https` is
 * true, stores those of URLs that begin with https://, else those with http://. Returns how many it
 * has stored. */
size_t etcd_read_members(const json_t *answer, bool https, struct cr_endpoint *out, size_t room);

/* Stores what the answer to a range request says about the one key that was requested. Returns
 * false if the answer or the key's value cannot be parsed. */
bool etcd_read_range(const json_t *answer, struct etcd_key *out);

/* Reads the answer to CLAIM, the transaction that creates the key. Stores in *created whether the
 * transaction has created the key. If it has, sets only out->revision, out->exists, out->epoch and
 * out->is_first; if not, stores the existing key in *out. Returns false if the answer cannot be
 * parsed. */
bool etcd_read_claim(const json_t *answer, bool *created, struct etcd_key *out);

/* What one element of the stream of a watch says. */
struct etcd_watched {
    bool is_confirmed;  /* true: etcd confirms the watch */
    bool is_cancelled;  /* true: etcd has ended the watch */
    size_t event_count;
};
/* Reads one element of the stream. Returns false if it cannot be parsed. */
bool etcd_read_watched(const json_t *element, struct etcd_watched *out);
/* Stores event `i` of the element in *out. Returns false if it cannot be parsed. */
bool etcd_read_event(const json_t *element, size_t i, struct etcd_key *out);

#endif
