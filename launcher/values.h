/* The grammars of option values: one function each, text in, value out. Pure.
 *
 * Each returns 0, or a negative errno with a text that says what is wrong with the value and what
 * would be right; the caller puts the option's name in front. Outputs are written on success
 * only, except that arrays may be half written on failure. */
#ifndef LAUNCHER_VALUES_H
#define LAUNCHER_VALUES_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <signal.h>
#include <stdint.h>

/* "N" or "MIN:MAX" with 1 <= MIN <= MAX. */
int value_nnodes(const char *text, uint32_t *min, uint32_t *max, struct cr_error *err);

/* A whole number from min to max. An error calls it `what`: "a port". */
int value_count(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out,
                struct cr_error *err);

/* Seconds, which may have a fraction, as milliseconds; more than zero unless zero_allowed. */
int value_seconds(const char *text, int zero_allowed, int64_t *out_ms, struct cr_error *err);

/* Checks that the text is one of the words, which have blanks between them. */
int value_word(const char *text, const char *words, struct cr_error *err);

/* Which of a worker's streams are meant, for each local rank: bit 0 is stdout, bit 1 stderr. "0"
 * to "3" is for all `count` ranks; "RANK:MASK,..." sets those ranks and gives 0 to the others.
 * Ranks from `count` on are ignored. */
int value_stream_masks(const char *text, uint8_t *masks, uint32_t count, struct cr_error *err);

/* A list of local ranks, "0,3": shown[i] is 1 for these and 0 for the others. */
int value_local_ranks(const char *text, uint8_t *shown, uint32_t count, struct cr_error *err);

/* A list of signals, "SIGTERM,SIGINT". Unknown names are skipped; the first of them is copied to
 * `unknown`, which is "" if there is none. SIGKILL and SIGSTOP are an error. */
#define VALUE_NAME_MAX 32
int value_signals(const char *text, sigset_t *out, char unknown[VALUE_NAME_MAX],
                  struct cr_error *err);

/* Splits a list of texts at its commas; two commas stand for one, so "a,b,,c" is "a" and "b,c".
 * Writes at most *count items to items[] and their number to *count. The texts themselves go to
 * `store`, which has room for strlen(text) + 1 bytes. */
void value_filters(const char *text, char *store, char **items, size_t *count);

/* torchrun's --rdzv-conf, "key=value,...": sets the times, counts and flags of `options`. The first
 * unknown key is copied to `unknown`, which is "" if there is none. */
int value_rdzv_conf(const char *text, struct rendezvous_options *options,
                    char unknown[VALUE_NAME_MAX], struct cr_error *err);

#endif
