/* The messages between a caller and a session, as bytes of the tunnel's plain text. Pure.
 *
 *     bytes 0-3   number of bytes of the payload, big endian
 *     byte  4     type, enum remote_message
 *     then        the payload
 *
 * The caller's first message is REMOTE_COMMAND. The session answers with REMOTE_REFUSED, or with
 * output and, as the last message, REMOTE_ENDED. */
#ifndef REMOTE_MESSAGE_H
#define REMOTE_MESSAGE_H

#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

#define REMOTE_PROTOCOL    1
#define REMOTE_HEADER      ((size_t) 5)
#define REMOTE_PAYLOAD_MAX ((size_t) 64 << 10) /* in bytes */

enum remote_message {
    /* ---- from the caller ---- */
    REMOTE_COMMAND = 1, /* a byte, REMOTE_PROTOCOL, and the text of the command without a NUL */
    REMOTE_INPUT,       /* bytes for the command's stdin; a message without bytes means end of
                         * file */

    /* ---- from the session ---- */
    REMOTE_OUT,    /* bytes from the command's stdout */
    REMOTE_ERR,    /* bytes from the command's stderr */
    REMOTE_ENDED,  /* a byte: the command's exit status, or 128 + the number of the signal that
                    * ended it */
    REMOTE_REFUSED /* a text: why the command is not executed */
};

struct remote_frame {
    enum remote_message type;
    const char *data; /* the payload */
    size_t len;
};

/* Appends a message. `len` is at most REMOTE_PAYLOAD_MAX. Returns 0 or -ENOMEM. */
int remote_put(struct cr_buffer *out, enum remote_message type, const void *data, size_t len);

/* Reads the message at the start of data[0..len). Returns the message's size in bytes, 0 if the
 * message is not complete yet, or -EPROTO if it is not valid. */
int64_t remote_get(const char *data, size_t len, struct remote_frame *out);

/* Appends the message REMOTE_COMMAND. Returns 0; -E2BIG if the command is too long; or -ENOMEM. */
int remote_put_command(struct cr_buffer *out, const char *command);

/* Returns the command of a message REMOTE_COMMAND as a text that the caller frees. Returns NULL if
 * the message has another type, another protocol or a NUL, or if memory is short. */
char *remote_get_command(const struct remote_frame *frame);

#endif
