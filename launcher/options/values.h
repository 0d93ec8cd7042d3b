/* Converts the texts of option values: one pure function for each grammar.
 *
 * A function that returns int returns 0; or a negative errno, and sets err to a text that quotes
 * the value and names what would be right. The caller prepends the option's name. On error the
 * outputs are unchanged. The exceptions are arrays, signal sets, the result of value_size(), and
 * the fields that value_rdzv_conf() and value_etcd_endpoints() set: these may have been changed. */
#ifndef LAUNCHER_VALUES_H
#define LAUNCHER_VALUES_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <signal.h>
#include <stdint.h>

/* Parses --nnodes: "N", which means N:N, or "MIN:MAX" with 1 <= MIN <= MAX. */
int value_nnodes(const char *text, uint32_t *min, uint32_t *max, struct cr_error *err);

/* Parses a whole number from `min` to `max`. `what` says in an error text what the number is, for
 * example "a port". */
int value_count(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out,
                struct cr_error *err);

/* Parses a size in bytes: a whole number, which may end in K, M, G or T for 1024, 1024^2 … bytes. A
 * size of 0 means that there is no limit; the smallest other size is VALUE_SIZE_MIN. */
#define VALUE_SIZE_MIN 4096
int value_size(const char *text, uint64_t *out, struct cr_error *err);

/* Parses a time in seconds, which may have a fraction, and stores it in milliseconds. Zero is an
 * error if `zero_allowed` is 0. */
int value_seconds(const char *text, int zero_allowed, int64_t *out_ms, struct cr_error *err);

/* Checks that `text` is one of the words in `words`, which are separated by blanks. */
int value_word(const char *text, const char *words, struct cr_error *err);

/* Parses --redirects or --tee. masks[i] selects streams of local rank i: bit 0 stands for stdout,
 * bit 1 for stderr. A single digit "0" to "3" is the mask of all `count` ranks. "RANK:MASK,..."
 * sets the masks of the named ranks and gives 0 to the others. Ranks >= count are ignored. */
int value_stream_masks(const char *text, uint8_t *masks, uint32_t count, struct cr_error *err);

/* Parses a list of local ranks such as "0,3". For each i < count, sets shown[i] to 1 if rank i is
 * in the list, else to 0. Ranks >= count are ignored. */
int value_local_ranks(const char *text, uint8_t *shown, uint32_t count, struct cr_error *err);

/* Parses a list of signals such as "SIGTERM,SIGINT". Unknown names are skipped, and the first of
 * them is copied to `unknown`, so that the caller can warn; if all names are known, `unknown` is
 * "". SIGKILL and SIGSTOP are an error. */
#define VALUE_NAME_MAX 32
int value_signals(const char *text, sigset_t *out, char unknown[VALUE_NAME_MAX],
                  struct cr_error *err);

/* Splits a list of texts at its commas. Two commas stand for a comma within a text: "a,b,,c" has
 * the texts "a" and "b,c". Before the call, *count is the room in items[]; afterwards it is the
 * number of texts. The texts are copied to `store`, which has strlen(text) + 1 bytes, and the items
 * point to them. */
void value_filters(const char *text, char *store, char **items, size_t *count);

/* Parses --rdzv-conf, "key=value,...", and sets the times, counts, flags and texts in `options`.
 * Unknown keys are skipped, and the first of them is copied to `unknown`, so that the caller can
 * warn; if all keys are known, `unknown` is "". */
int value_rdzv_conf(const char *text, struct rendezvous_options *options,
                    char unknown[VALUE_NAME_MAX], struct cr_error *err);

#define VALUE_ETCD_PORT 2379 /* port of an endpoint of etcd that has none */
/* Parses the endpoints of an etcd cluster, "host[:port],...". If one of them begins with
 * "https://", or if etcd->https is 1 already, TLS is used for all of them. Sets the endpoints and
 * https of *etcd. */
int value_etcd_endpoints(const char *text, struct rendezvous_etcd *etcd, struct cr_error *err);

#endif
