/* The $-template of arguments and log prefixes: Python's string.Template, safe_substitute.
 *
 *   $name ${name}   the value, if the name is known; else left as written
 *   $$              one '$'
 *   any other '$'   left as written
 *
 * A name is [A-Za-z_][A-Za-z0-9_]*, as long as it goes. Pure. */
#ifndef BASE_TEMPLATE_H
#define BASE_TEMPLATE_H

#include "base/buffer.h"

struct template_variable {
    const char *name, *value;
};

/* Appends the expansion of `text`. 0 or -ENOMEM. */
int template_expand(struct cr_buffer *out, const char *text,
                    const struct template_variable *variables, size_t count);

#endif
