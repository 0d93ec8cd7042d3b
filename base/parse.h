/* Strict number parsing: the whole text, decimal, in range, or an error. */
#ifndef CR_PARSE_H
#define CR_PARSE_H

#include <stdint.h>

/* Returns 0 and writes *out, or -EINVAL (not a whole decimal number) or -ERANGE. NULL is -EINVAL. */
int cr_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);

/* Same for a finite decimal fraction such as "0.1". */
int cr_parse_double(const char *text, double *out);

/* 1 true t yes y / 0 false f no n, in any case, as torchrun's --rdzv-conf takes them. */
int cr_parse_bool(const char *text, int *out);

#endif
