/* Fetches snapshots of jobs, from status addresses and from the crun processes of this host. Each
 * crun listens at an abstract Unix address, both for its workers and for requests of a snapshot.
 * The functions block; they need no loop. */
#ifndef STATUS_ATTACH_H
#define STATUS_ATTACH_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

enum status_order { STATUS_ORDER_NONE, STATUS_ORDER_DUMP, STATUS_ORDER_NOTICE };

/* Returns a new list with the snapshots of the crun processes on this host that have a job with the
 * id `run_id`, or that have any job if run_id is NULL. Left out are a crun of another user, a crun
 * in another network namespace, and a crun that does not answer within timeout_ms. Each snapshot
 * has a field "socket", which is the first argument of status_give_order(). Returns NULL if memory
 * is short. */
json_t *status_find(const char *run_id, int64_t timeout_ms);

/* Gives an order to the crun at the abstract address `socket`: STATUS_ORDER_DUMP, to request flight
 * records from its workers; or STATUS_ORDER_NOTICE, to leave its job within left_ms. Returns 0, or
 * -ESRCH if that crun does not answer within timeout_ms. */
int status_give_order(const char *socket, enum status_order order, int64_t left_ms,
                      int64_t timeout_ms);

/* Fetches the snapshot from a status address: HOST:PORT, http://HOST:PORT/ or unix:PATH. Stores a
 * new reference in *out. Returns 0; or a negative errno, and sets err to a text that names the
 * address: -EPROTO if what answers there is no status address. */
int status_fetch(const char *address, int64_t timeout_ms, json_t **out, struct cr_error *err);

#endif
