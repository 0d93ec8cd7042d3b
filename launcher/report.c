#include "launcher/report.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 4096

void report_line(const char *text) {
    char line[LINE_BYTES_MAX];
    size_t n = (size_t) snprintf(line, sizeof(line), "crun: error: ");
    n += cr_text_copy(line + n, sizeof(line) - n - 1, text, strlen(text));
    line[n++] = '\n';
    cr_log_text(line, n);
}

static json_t *make_record(const char *text) {
    char seconds[32];
    (void) snprintf(seconds, sizeof(seconds), "%" PRId64, cr_wall_ns() / CR_NS_PER_S);
    return json_pack("{s{sss{ssss}}}", "message", "message", text, "extraInfo", "py_callstack",
                     text, "timestamp", seconds);
}

int report_file(const char *path, const char *text) {
    if (path == NULL || path[0] == '\0') return 0;
    json_auto_t *record = make_record(text);
    if (record == NULL) { /* a path or argument in it is not UTF-8: keep what is ASCII */
        CR_AUTO_FREE char *ascii = strdup(text);
        if (ascii == NULL) return -ENOMEM;
        for (char *at = ascii; *at != '\0'; at++) *at = (unsigned char) *at < 0x80 ? *at : '?';
        record = make_record(ascii);
    }
    if (record == NULL) return -ENOMEM;
    return json_dump_file(record, path, JSON_COMPACT) == 0 ? 0 : -EIO;
}
