/* Fetches snapshots of jobs: from the crun processes of this host, each of which listens at an
 * abstract Unix address for its workers and for such requests, and from status addresses. The
 * functions block; they need no loop. */
#ifndef STATUS_ATTACH_H
#define STATUS_ATTACH_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

enum status_order { STATUS_ORDER_NONE, STATUS_ORDER_DUMP, STATUS_ORDER_NOTICE };

/* Returns a new list with the snapshot of each crun on this host that answers within timeout_ms and
 * has a job with the id `run_id`; with every job if run_id is NULL. A crun of another user, or in
 * another network namespace, does not answer. Each snapshot has a field "socket", for
 * status_give_order(). Returns NULL if memory is short. */
json_t *status_find(const char *run_id, int64_t timeout_ms);

/* Gives an order to the crun at the address `socket`: to request flight records from its workers,
 * or to leave its job within left_ms. Returns 0, or -ESRCH if that crun does not answer within
 * timeout_ms. */
int status_give_order(const char *socket, enum status_order order, int64_t left_ms,
                      int64_t timeout_ms);

/* Fetches the snapshot from a status address: HOST:PORT, http://HOST:PORT/ or unix:PATH. Stores a
 * new reference in *out. Returns 0; or a negative errno, and sets err to a text that names the
 * address: -EPROTO if what answers there is no status address. */
int status_fetch(const char *address, int64_t timeout_ms, json_t **out, struct cr_error *err);

#endif
