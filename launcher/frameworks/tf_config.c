/* Writes TF_CONFIG: see frameworks.h. */
#include "launcher/frameworks/frameworks.h"

int frameworks_write_tf_config(const char *const *addresses, uint32_t count, uint32_t index,
                               struct cr_buffer *out) {
    int rc = cr_buffer_printf(out, "{\"cluster\": {\"worker\": [");
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        /* no quotes are escaped, because an address has no character that JSON escapes */
        rc = cr_buffer_printf(out, "%s\"%s\"", i > 0 ? ", " : "", addresses[i]);
    }
    if (rc < 0) return rc;
    return cr_buffer_printf(out, "]}, \"task\": {\"type\": \"worker\", \"index\": %u}}", index);
}
