/* libFuzzer target: base/text makes any bytes printable. The target checks that the result is
 * printable, that a second pass changes nothing, and that the function that writes into a buffer
 * and the function that writes into an array give the same text. */
#include "base/text/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cr_buffer once = {0}, twice = {0};
    if (cr_text_append(&once, data, size, "") < 0) abort();
    if (cr_text_append(&twice, once.data, once.len, "") < 0) abort();
    if (once.len != twice.len || once.len < size) abort();
    if (once.len > 0 && memcmp(once.data, twice.data, once.len) != 0) abort();
    for (size_t at = 0, n; at < once.len; at += n) {
        n = cr_text_printable_len(once.data + at, once.len - at);
        if (n == 0) abort();
    }
    char *copy = malloc(once.len + 1);
    if (copy == NULL || cr_text_copy(copy, once.len + 1, data, size) != once.len) abort();
    if (once.len > 0 && memcmp(copy, once.data, once.len) != 0) abort();
    free(copy);
    cr_buffer_done(&once);
    cr_buffer_done(&twice);
    return 0;
}
