/* Strict parsing of numbers and truth values: it is an error if the text has anything before or
 * after the value, even a blank. */
#ifndef CR_PARSE_H
#define CR_PARSE_H

#include <stdint.h>

/* Parses a decimal integer and stores it in *out. Returns 0; -EINVAL if `text` is NULL or not an
 * integer; or -ERANGE if the number is less than `min` or greater than `max`. */
int cr_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);

/* Parses a finite number such as "0.1" and stores it in *out. Returns 0; -EINVAL if `text` is NULL
 * or not a finite number; or -ERANGE if a double cannot hold it. */
int cr_parse_double(const char *text, double *out);

/* Sets *out to 1 for "1", "true", "t", "yes" or "y", and to 0 for "0", "false", "f", "no" or "n".
 * Letters may be upper or lower case. torchrun's --rdzv-conf takes the same words. Returns 0; or
 * -EINVAL for any other text. */
int cr_parse_bool(const char *text, int *out);

#endif
