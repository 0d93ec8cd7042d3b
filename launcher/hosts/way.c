/* The commands that start a deputy on a host: see way_internal.h. */
#include "launcher/hosts/way_internal.h"

#include "base/text.h"
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

/* Appends a word for a POSIX shell, in quotes if it has characters that the shell would change. */
static int put_word(struct cr_buffer *out, const char *word) {
    bool is_safe = true;
    for (const char *at = word; *at != '\0'; at++) {
        is_safe &= isalnum((unsigned char) *at) || strchr("_@%+=:,./-", *at) != NULL;
    }
    if (is_safe) return cr_buffer_printf(out, "%s", word);
    int rc = cr_buffer_append(out, "'", 1);
    for (const char *at = word; *at != '\0' && rc == 0; at++) {
        rc = *at == '\'' ? cr_buffer_append(out, "'\\''", 4) : cr_buffer_append(out, at, 1);
    }
    return rc == 0 ? cr_buffer_printf(out, "'") : rc;
}

/* Appends a shell script that makes a copy of crun on the host, if it is missing, and executes it.
 * The script prints whether the copy exists. If it is missing, the script reads `size` bytes from
 * its stdin into a temporary file, and links this file to the copy's name once it is complete. If
 * another host has made the copy in a shared home folder since then, ln(1) does not replace it,
 * because a deputy may be executing it. */
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
    int rc = put_word(out, way == HOSTS_BY_NAME ? "crun" : crun);
    return rc == 0 ? cr_buffer_printf(out, " --deputy") : rc;
}

void hosts_last_line(const char *text, size_t len, char *out, size_t cap) {
    while (len > 0 && isspace((unsigned char) text[len - 1])) len--;
    size_t begin = len;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    (void) cr_text_copy(out, cap, text + begin, len - begin);
}
