/* The messages between a caller and a session: implements message_internal.h. */
#include "remote/message_internal.h"

#include <errno.h>
#include <string.h>

int remote_put(struct cr_buffer *out, enum remote_message type, const void *data, size_t len) {
    unsigned char head[REMOTE_HEADER] = {(unsigned char) (len >> 24), (unsigned char) (len >> 16),
                                         (unsigned char) (len >> 8), (unsigned char) len,
                                         (unsigned char) type};
    int rc = cr_buffer_reserve(out, sizeof(head) + len);
    if (rc == 0) rc = cr_buffer_append(out, head, sizeof(head));
    if (rc == 0 && len > 0) rc = cr_buffer_append(out, data, len);
    return rc;
}

int64_t remote_get(const char *data, size_t len, struct remote_frame *out) {
    const unsigned char *head = (const unsigned char *) data;
    if (len < REMOTE_HEADER) return 0;
    size_t size = (size_t) head[0] << 24 | (size_t) head[1] << 16 | (size_t) head[2] << 8 | head[3];
    if (size > REMOTE_PAYLOAD_MAX) return -EPROTO;
    if (head[4] < REMOTE_COMMAND || head[4] > REMOTE_REFUSED) return -EPROTO;
    if (len < REMOTE_HEADER + size) return 0;
    *out = (struct remote_frame){(enum remote_message) head[4], data + REMOTE_HEADER, size};
    return (int64_t) (REMOTE_HEADER + size);
}

int remote_put_command(struct cr_buffer *out, const char *command) {
    char payload[REMOTE_PAYLOAD_MAX];
    size_t len = strlen(command);
    if (len + 1 > sizeof(payload)) return -E2BIG;
    payload[0] = REMOTE_PROTOCOL;
    memcpy(payload + 1, command, len);
    return remote_put(out, REMOTE_COMMAND, payload, len + 1);
}

char *remote_get_command(const struct remote_frame *frame) {
    if (frame->type != REMOTE_COMMAND || frame->len < 2) return NULL;
    if (frame->data[0] != REMOTE_PROTOCOL) return NULL;
    if (memchr(frame->data, '\0', frame->len) != NULL) return NULL;
    return strndup(frame->data + 1, frame->len - 1);
}
