/* libFuzzer target: parses any bytes as a worker's error file, and makes the failure report that
 * shows the error record. The report must contain no control sequence that a terminal would
 * execute. */
#include "agent/verdict/decision.h"
#include "base/assert.h"
#include "base/text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_is_printable(const struct cr_buffer *text) {
    for (size_t at = 0; at < text->len;) {
        size_t len = cr_text_printable_len(text->data + at, text->len - at);
        CR_ASSERT(len > 0 || text->data[at] == '\n' || text->data[at] == '\t');
        at += len > 0 ? len : 1;
    }
}

static void check_report(const struct error_record *record) {
    const struct verdict_worker worker = {
        .pid = 7, .exit_code = 1, .order = 1, .error = *record, .error_path = "/error.json"};
    const struct verdict verdict = {
        .title = "train", .host = "node", .workers = &worker, .count = 1};
    struct cr_buffer report = {0};
    CR_ASSERT(verdict_report(&report, &verdict) == 0);
    check_is_printable(&report);
    cr_buffer_done(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error_record record;
    error_record_parse(&record, (const char *) data, size);
    CR_ASSERT(record.present && record.raw_len == size);
    CR_ASSERT(size == 0 || memcmp(record.raw, data, size) == 0);
    CR_ASSERT(record.timestamp_s >= -1);
    check_report(&record);
    error_record_done(&record);
    return 0;
}
