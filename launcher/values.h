/* The grammars of option values: one pure function each, text in, value out.
 *
 * Every error text says what is wrong with the value and what would be right; the caller puts the
 * option's name in front. All return 0 or a negative errno and write their outputs on success only
 * (arrays may be half written on failure). */
#ifndef LAUNCHER_VALUES_H
#define LAUNCHER_VALUES_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <signal.h>
#include <stdint.h>

/* "N" or "MIN:MAX", 1 <= MIN <= MAX. */
int value_nnodes(const char *text, uint32_t *min, uint32_t *max, struct cr_error *err);

/* A whole number in a range; `what` is the noun of the message. */
int value_count(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out,
                struct cr_error *err);

/* Seconds, fractions allowed, to milliseconds; more than zero unless zero_allowed. */
int value_seconds(const char *text, int zero_allowed, int64_t *out_ms, struct cr_error *err);

/* One of the blank-separated words. */
int value_word(const char *text, const char *words, struct cr_error *err);

/* "0".."3" for all `count` ranks, or "RANK:MASK,..." (the others 0; ranks beyond count are
 * ignored). */
int value_stream_masks(const char *text, uint8_t *masks, uint32_t count, struct cr_error *err);

/* "0,3": those get 1, the others 0. */
int value_local_ranks(const char *text, uint8_t *shown, uint32_t count, struct cr_error *err);

/* "SIGTERM,SIGINT". Unknown names are skipped; the first is copied to unknown ("" if none). Names
 * that no process can catch are an error. */
#define VALUE_NAME_MAX 32
int value_signals(const char *text, sigset_t *out, char unknown[VALUE_NAME_MAX],
                  struct cr_error *err);

/* Splits "a,b,,c" into "a", "b,c" (a doubled comma is a comma): at most *count items into items[],
 * whose bytes go to `store` (at least strlen(text) + 1 of them). *count comes back as used. */
void value_filters(const char *text, char *store, char **items, size_t *count);

/* "key=value,...": torchrun's --rdzv-conf into `options` (its times, is_host). `unknown` gets the
 * first key that nobody knows, "" if none. */
int value_rdzv_conf(const char *text, struct rendezvous_options *options,
                    char unknown[VALUE_NAME_MAX], struct cr_error *err);

#endif
