/* libFuzzer target: gives any bytes to the decoder of rendezvous messages. A message that it
 * accepts must encode to exactly the bytes that were decoded. */
#include "base/assert.h"
#include "rendezvous/protocol/message.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rdzv_message m;
    size_t at = 0, used = 1;
    const char *bytes = (const char *) data;
    while (used > 0 && rdzv_message_decode(bytes + at, size - at, &m, &used, NULL) == 0) {
        if (used == 0) break;
        struct cr_buffer again = {0};
        if (rdzv_message_encode(&m, &again) == 0) {
            CR_ASSERT(again.len == used && memcmp(again.data, bytes + at, used) == 0);
        }
        cr_buffer_done(&again);
        at += used;
    }
    return 0;
}
