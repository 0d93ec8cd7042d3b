/* The $-template in arguments of workers and in prefixes of log lines: Python's string.Template
 * with safe_substitute.
 *
 *   $name ${name}   the value, if the name is known; else left as it is
 *   $$              one '$'
 *   any other '$'   left as it is
 *
 * A name is [A-Za-z_][A-Za-z0-9_]*, as long as possible. Pure. */
#ifndef CR_TEMPLATE_H
#define CR_TEMPLATE_H

#include "base/buffer.h"

struct template_variable {
    const char *name, *value;
};

/* Appends the expansion of `text`. Returns 0 or -ENOMEM. */
int template_expand(struct cr_buffer *out, const char *text,
                    const struct template_variable *variables, size_t count);

#endif
