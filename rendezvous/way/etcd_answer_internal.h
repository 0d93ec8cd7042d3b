/* Parser for the HTTP answers of etcd's JSON gateway. It handles the part of HTTP/1.1 that the
 * gateway uses (status line, headers, and a body whose end is given by a length, by chunks, or by
 * the end of the connection). The body contains JSON objects, one per line. Pure: bytes go in,
 * objects come out. All sizes are bounded, because any program may listen at that port. */
#ifndef RENDEZVOUS_ETCD_ANSWER_INTERNAL_H
#define RENDEZVOUS_ETCD_ANSWER_INTERNAL_H

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define ETCD_ANSWER_MAX ((size_t) 1 << 20) /* most bytes of one JSON object */
#define ETCD_HEAD_MAX   ((size_t) 65536)   /* most bytes of status line and headers */

enum etcd_framing { ETCD_BODY_TO_THE_END, ETCD_BODY_BY_LENGTH, ETCD_BODY_BY_CHUNKS };

/* Called for each JSON object of the answer. If the object has a field "result", as in the
 * elements of a stream, `object` is that field, else the whole object. It is valid until the
 * function returns. Returns 0, or a negative errno to stop the parser. */
typedef int (*etcd_object_fn)(void *arg, const json_t *object);

/* State of the parser for one answer. The caller sets all bytes to 0, then on_object and arg. */
struct etcd_answer {
    etcd_object_fn on_object;
    void *arg;

    int status;            /* HTTP status, 200 for example; 0 = not received yet */
    bool has_head, is_complete;
    size_t head_len;       /* bytes of status line and headers parsed so far */
    enum etcd_framing framing;
    bool in_chunk;         /* the size of a chunk is parsed, its data or line end not yet */
    size_t left;           /* bytes of the body, or of the current chunk, that are still to come */
    struct cr_buffer raw;  /* bytes received but not parsed yet */
    struct cr_buffer body; /* the start of a JSON line whose end is still to come */
};

void etcd_answer_done(struct etcd_answer *a);

/* Parses bytes from the connection, in pieces of any size, and calls on_object for each complete
 * object. Returns 0 if more bytes are needed, or 1 if the answer is complete. Returns what
 * on_object returned if that was negative, or -EPROTO or -ENOMEM and a text in err: etcd has
 * reported an error, its answer is malformed, or memory is short. */
int etcd_answer_receive(struct etcd_answer *a, const char *data, size_t len, struct cr_error *err);

/* Call this when the other end has closed the connection. Returns 1 if the answer is complete with
 * that, -ECONNRESET if bytes are missing, or another negative errno of the last object. */
int etcd_answer_end(struct etcd_answer *a, struct cr_error *err);

#endif
