/* Converts the texts of option values: one pure function for each grammar.
 *
 * A function that returns int returns 0; or a negative errno, and sets err to a text that quotes
 * the value and says what would be right. The caller puts the option's name in front of this text.
 * On error, outputs are unchanged, except arrays, signal sets, the result of value_size(), and the
 * fields that value_rdzv_conf() and value_etcd_endpoints() set: these can be changed. */
#ifndef LAUNCHER_VALUES_H
#define LAUNCHER_VALUES_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <signal.h>
#include <stdint.h>

/* Parses the value of --nnodes: "N", which means N:N, or "MIN:MAX" with 1 <= MIN <= MAX. */
int value_nnodes(const char *text, uint32_t *min, uint32_t *max, struct cr_error *err);

/* Parses a whole number from `min` to `max`. `what` is what an error text calls the number, for
 * example "a port". */
int value_count(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out,
                struct cr_error *err);

/* Parses a size in bytes: a whole number, which may end in K, M, G or T for 1024, 1024^2 … bytes. A
 * size of 0 means that there is no limit; the smallest other size is VALUE_SIZE_MIN. */
#define VALUE_SIZE_MIN 4096
int value_size(const char *text, uint64_t *out, struct cr_error *err);

/* Parses a time in seconds, which may have a fraction, and stores it in milliseconds. If
 * `zero_allowed` is 0, a time of zero is an error. */
int value_seconds(const char *text, int zero_allowed, int64_t *out_ms, struct cr_error *err);

/* Checks that `text` is one of the words in `words`, which are separated by blanks. */
int value_word(const char *text, const char *words, struct cr_error *err);

/* Parses the value of --redirects or --tee. masks[i] selects streams of local rank i: bit 0 is
 * stdout, bit 1 is stderr. If `text` is a single digit "0" to "3", it is the mask of all `count`
 * ranks. If it is "RANK:MASK,...", the named ranks get their masks and all other ranks get 0. A
 * RANK of `count` or more is ignored. */
int value_stream_masks(const char *text, uint8_t *masks, uint32_t count, struct cr_error *err);

/* Parses a list of local ranks such as "0,3". For each i < count, sets shown[i] to 1 if rank i is
 * in the list, else to 0. A rank of `count` or more is ignored. */
int value_local_ranks(const char *text, uint8_t *shown, uint32_t count, struct cr_error *err);

/* Parses a list of signals such as "SIGTERM,SIGINT" into *out. Unknown names are skipped; the first
 * of them is copied to `unknown`, so that the caller can warn. If all names are known, `unknown`
 * becomes "". SIGKILL and SIGSTOP are errors. */
#define VALUE_NAME_MAX 32
int value_signals(const char *text, sigset_t *out, char unknown[VALUE_NAME_MAX],
                  struct cr_error *err);

/* Splits a list of texts at its commas. A double comma is not a separator, but one comma within a
 * text: "a,b,,c" has the texts "a" and "b,c". The caller sets *count to the number of elements of
 * items[]; the function sets it to the number of texts. It copies the texts to `store`, which has
 * strlen(text) + 1 bytes, and items[] points to these copies. */
void value_filters(const char *text, char *store, char **items, size_t *count);

/* Parses the value of --rdzv-conf, "key=value,...", and sets the fields of `options` for its keys.
 * Unknown keys are skipped; the first of them is copied to `unknown`, so that the caller can warn.
 * If all keys are known, `unknown` becomes "". */
int value_rdzv_conf(const char *text, struct rendezvous_options *options,
                    char unknown[VALUE_NAME_MAX], struct cr_error *err);

#define VALUE_ETCD_PORT 2379 /* port if an endpoint has none */
/* Parses the endpoints of an etcd cluster, "host[:port],...", into etcd->endpoints. Sets
 * etcd->https to 1 if one of them begins with "https://". If etcd->https is 1, TLS is used for all
 * endpoints. */
int value_etcd_endpoints(const char *text, struct rendezvous_etcd *etcd, struct cr_error *err);

#endif
