/* Strict parsing of numbers and truth values: the whole text must be one, or it is an error. */
#ifndef CR_PARSE_H
#define CR_PARSE_H

#include <stdint.h>

/* Parses a decimal whole number from min to max. Returns 0 and sets *out; -EINVAL if the text is no
 * such number or NULL; -ERANGE if it is too small or too large. */
int cr_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);

/* The same for a finite decimal fraction such as "0.1". */
int cr_parse_double(const char *text, double *out);

/* Sets *out to 1 for "1", "true", "t", "yes", "y", and to 0 for "0", "false", "f", "no", "n", in
 * any case: the words that torchrun's --rdzv-conf takes. Returns 0 or -EINVAL. */
int cr_parse_bool(const char *text, int *out);

#endif
