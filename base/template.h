/* Expands $-templates in arguments and log prefixes, as Python's string.Template.safe_substitute
 * does.
 *
 *   $name ${name}   becomes the value if the name is known; else it stays as it is
 *   $$              becomes '$'
 *   any other '$'   stays as it is
 *
 * A name is the longest match of [A-Za-z_][A-Za-z0-9_]*. Pure. */
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
