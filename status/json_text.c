/* Makes JSON strings of texts; status/json_text.h declares the function. */
#include "status/json_text.h"

#include "base/buffer.h"
#include "base/text/text.h"

#include <string.h>

json_t *status_json_text(const char *text) {
    json_t *as_it_is = json_string(text); /* NULL if `text` is not UTF-8 */
    if (as_it_is != NULL) return as_it_is;
    struct cr_buffer escaped = {0};
    int rc = cr_text_append(&escaped, text, strlen(text), "");
    json_t *result = rc < 0 ? NULL : json_stringn(escaped.data, escaped.len);
    cr_buffer_done(&escaped);
    return result;
}
