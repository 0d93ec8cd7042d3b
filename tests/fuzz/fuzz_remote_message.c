/* libFuzzer target: decodes any bytes as messages between a caller and a session of crun-agent
 * jobs. A frame that the decoder accepts, and a command in it, must give the same bytes when they
 * are encoded again. */
#include "remote/message_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *) data;
    struct remote_frame frame;
    for (int64_t n; (n = remote_get(at, size, &frame)) > 0; at += n, size -= (size_t) n) {
        struct cr_buffer again = {0};
        CR_ASSERT((size_t) n <= size && frame.len <= REMOTE_PAYLOAD_MAX);
        CR_ASSERT(remote_put(&again, frame.type, frame.data, frame.len) == 0);
        CR_ASSERT(again.len == (size_t) n && memcmp(again.data, at, again.len) == 0);
        char *command = remote_get_command(&frame);
        if (command != NULL) {
            cr_buffer_clear(&again);
            CR_ASSERT(remote_put_command(&again, command) == 0);
            CR_ASSERT(again.len == (size_t) n && memcmp(again.data, at, again.len) == 0);
        }
        free(command);
        cr_buffer_done(&again);
    }
    return 0;
}
