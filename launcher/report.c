/* The reports of crun's own failures. */
#include "launcher/report.h"

#include "base/files/error_json.h"
#include "base/log/log.h"
#include "base/text/text.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES_MAX 4096

const char *report_name(void) {
    return strcmp(program_invocation_short_name, "torchrun") == 0 ? "torchrun" : "crun";
}

void report_line(const char *text) {
    char line[LINE_BYTES_MAX];
    size_t n = (size_t) snprintf(line, sizeof(line), "%s: error: ", report_name());
    n += cr_text_copy(line + n, sizeof(line) - n - 1, text, strlen(text));
    line[n++] = '\n';
    cr_log_text(line, n);
}

int report_file(const char *path, const char *text) {
    if (path == NULL || path[0] == '\0') return 0;
    struct cr_buffer record = {0};
    int rc = cr_error_json_append(&record, text, text, cr_wall_ns() / CR_NS_PER_S);
    if (rc == 0) rc = cr_error_json_write_file(path, record.data, record.len);
    cr_buffer_done(&record);
    return rc;
}
