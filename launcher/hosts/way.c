/* The commands that start a deputy on a host: see way_internal.h. */
#include "launcher/hosts/way_internal.h"

#include "base/text/text.h"
#include "launcher/hosts/message_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define NOT_EXECUTABLE 126
#define NOT_FOUND      127

enum hosts_way hosts_way_next(enum hosts_way way, int status, bool copies) {
    if (status == HOSTS_OTHER_VERSION) {
        return copies && way != HOSTS_COPY ? HOSTS_COPY : HOSTS_NO_WAY;
    }
    if (status != NOT_EXECUTABLE && status != NOT_FOUND) return HOSTS_NO_WAY;
    if (way == HOSTS_SAME_PATH) return copies ? HOSTS_COPY : HOSTS_BY_NAME;
    return way == HOSTS_BY_NAME && copies ? HOSTS_COPY : HOSTS_NO_WAY;
}

/* Appends a shell script that copies crun to the host, unless the copy exists, and executes the
 * copy. The script prints whether the copy exists. If it does not, the script reads `size` bytes
 * from its stdin into a temporary file. When the file is complete, ln(1) gives it the name of the
 * copy. Hosts may share the home folder, so another host may have made the copy in the meantime.
 * ln(1) then fails, and the other host's copy stays. It must not be replaced, because a deputy may
 * already execute it. */
static int put_script(struct cr_buffer *out, uint64_t hash, size_t size) {
    return cr_buffer_printf(
        out,
        "sh -c 'd=${XDG_CACHE_HOME:-$HOME/.cache}/crun; f=$d/crun-%016" PRIx64 "; "
        "if [ -x \"$f\" ]; then echo " HOSTS_GREETING "-found; "
        "else echo " HOSTS_GREETING "-missing; mkdir -p \"$d\" && n=$(mktemp \"$f.XXXXXX\") && "
        "head -c %zu >\"$n\" && chmod 700 \"$n\" || exit 1; ln \"$n\" \"$f\" 2>/dev/null; "
        "rm -f \"$n\"; fi; exec \"$f\" --deputy'",
        hash, size);
}

int hosts_way_command(enum hosts_way way, const char *crun, uint64_t hash, size_t size,
                      struct cr_buffer *out) {
    if (way == HOSTS_COPY) return put_script(out, hash, size);
    int rc = cr_shell_word_append(out, way == HOSTS_BY_NAME ? "crun" : crun);
    return rc == 0 ? cr_buffer_printf(out, " --deputy") : rc;
}

void hosts_last_line(const char *text, size_t len, char *out, size_t cap) {
    while (len > 0 && isspace((unsigned char) text[len - 1])) len--;
    size_t begin = len;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    (void) cr_text_copy(out, cap, text + begin, len - begin);
}
