/* Expands $-templates; base/text/template.h describes the rules. */
#include "base/text/template.h"

#include <string.h>

static size_t name_len(const char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    size_t first = strspn(text, letters);
    return first == 0 ? 0 : strspn(text, more);
}

static const char *find(const char *name, size_t len, const struct template_variable *variables,
                        size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strlen(variables[i].name) == len && memcmp(variables[i].name, name, len) == 0) {
            return variables[i].value;
        }
    }
    return NULL;
}

/* Expands the reference at `at`, which is the text after a '$'. Sets *value to the expansion and
 * returns how many bytes of `at` belong to the reference. If `at` begins with no reference to a
 * known name, it sets *value to NULL and returns 0; the caller then leaves the '$' as it is. */
static size_t expand_one(const char *at, const char **value,
                         const struct template_variable *variables, size_t count) {
    *value = NULL;
    if (*at == '$') return *value = "$", 1;
    size_t braces = *at == '{' ? 1 : 0;
    size_t len = name_len(at + braces);
    if (len == 0 || (braces > 0 && at[1 + len] != '}')) return 0;
    *value = find(at + braces, len, variables, count);
    return *value == NULL ? 0 : len + 2 * braces;
}

int template_expand(struct cr_buffer *out, const char *text,
                    const struct template_variable *variables, size_t count) {
    for (;;) {
        size_t plain = strcspn(text, "$");
        int rc = cr_buffer_append(out, text, plain);
        text += plain;
        if (rc < 0 || *text == '\0') return rc;
        const char *value;
        size_t used = expand_one(++text, &value, variables, count);
        if (value == NULL) value = "$";
        rc = cr_buffer_append(out, value, strlen(value));
        if (rc < 0) return rc;
        text += used;
    }
}
