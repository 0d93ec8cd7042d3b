/* libFuzzer target: gives any bytes to the decoder of rendezvous messages. If the decoder accepts a
 * message, encoding it must give the same bytes, with two exceptions: the encoder adds fields of
 * later versions that are missing in the input, and leaves out bytes after the last known field. */
#include "base/assert.h"
#include "rendezvous/protocol/message.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Encodes `m` in each version, and compares the bytes after length and type with those of the frame
 * from which `m` was decoded. Later versions add fields only at the end, so the shorter of the two
 * must be the beginning of the longer. */
static void check_versions(const struct rdzv_message *m, const char *frame, size_t len) {
    for (uint32_t version = RDZV_VERSION_MIN; version <= RDZV_VERSION_MAX; version++) {
        struct cr_buffer again = {0};
        if (rdzv_message_encode(m, version, &again) == 0) {
            size_t common = again.len < len ? again.len : len;
            CR_ASSERT(memcmp(again.data + 4, frame + 4, common - 4) == 0);
        }
        cr_buffer_done(&again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rdzv_message m;
    size_t at = 0, used = 1;
    const char *bytes = (const char *) data;
    while (used > 0 && rdzv_message_decode(bytes + at, size - at, &m, &used, NULL) == 0) {
        if (used == 0) break;
        check_versions(&m, bytes + at, used);
        at += used;
    }
    return 0;
}
