/* Expands $-templates in worker arguments and in prefixes of output lines, by the rules of Python's
 * string.Template.safe_substitute().
 *
 *   $name ${name}   becomes the value of the variable; an unknown name stays as it is
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
