/* libFuzzer target: parses any bytes as the answer of a node health service, and judges it. The
 * texts must lie within the bytes, and a node that is not well must have a reason. */
#include "agent/health/nvhcd_internal.h"
#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t len, const char *data, size_t size) {
    if (len > 0) CR_ASSERT(text >= data && len <= size && text + len <= data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *) data;
    struct nvhcd_answer answer;
    char why[100] = "";
    if (nvhcd_read_answer(bytes, size, &answer) < 0) return 0;
    check_text(answer.output, answer.output_len, bytes, size);
    check_text(answer.error, answer.error_len, bytes, size);
    bool is_well = nvhcd_is_well(&answer, why, sizeof(why));
    CR_ASSERT(memchr(why, '\0', sizeof(why)) != NULL);
    CR_ASSERT(is_well ? answer.success : why[0] != '\0');
    return 0;
}
