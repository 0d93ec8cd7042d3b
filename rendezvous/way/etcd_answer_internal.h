/* Takes what etcd's JSON gateway answers apart: HTTP/1.1 as far as the gateway speaks it (status
 * line, headers, and a body by length, by chunks, or to the end of the connection), and in the
 * body JSON objects, one per line. Pure: bytes go in, objects come out. All sizes are bounded,
 * because the other end may be anything that listens at that port. */
#ifndef RENDEZVOUS_ETCD_ANSWER_INTERNAL_H
#define RENDEZVOUS_ETCD_ANSWER_INTERNAL_H

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define ETCD_ANSWER_MAX ((size_t) 1 << 20) /* bytes of one JSON object */
#define ETCD_HEAD_MAX   ((size_t) 65536)   /* bytes of status line and headers */

enum etcd_framing { ETCD_BODY_TO_THE_END, ETCD_BODY_BY_LENGTH, ETCD_BODY_BY_CHUNKS };

/* Handles one object, which is borrowed: the "result" of a stream's element, else the whole object.
 * Returns 0, or a negative errno to stop. */
typedef int (*etcd_object_fn)(void *arg, const json_t *object);

/* Zero-initialise, then set on_object and arg. */
struct etcd_answer {
    etcd_object_fn on_object;
    void *arg;

    int status;            /* of HTTP; 0: not known yet */
    bool has_head, is_complete;
    size_t head_len;       /* bytes of the head so far */
    enum etcd_framing framing;
    bool in_chunk;         /* by chunks: `left` counts data, then the line end behind it */
    size_t left;           /* bytes of the body, or of the chunk, that are still to come */
    struct cr_buffer raw;  /* not understood yet */
    struct cr_buffer body; /* a line that is not complete yet */
};

void etcd_answer_done(struct etcd_answer *a);

/* Bytes of the connection, in pieces of any size. Returns 0, or 1 once the answer is complete,
 * or what on_object returned, or -EPROTO, -ENOMEM with a text: etcd reported an error, or sent
 * what cannot be understood. */
int etcd_answer_receive(struct etcd_answer *a, const char *data, size_t len, struct cr_error *err);

/* The other end has closed the connection. Returns 1 if that completes the answer, or a negative
 * errno; -ECONNRESET if the answer is not complete. */
int etcd_answer_end(struct etcd_answer *a, struct cr_error *err);

#endif
