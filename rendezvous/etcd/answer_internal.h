/* Splits the body of an HTTP answer of etcd's JSON gateway into JSON objects, one per line. Pure:
 * bytes go in, objects come out. All sizes are bounded, because another program than etcd may
 * answer. */
#ifndef RENDEZVOUS_ANSWER_INTERNAL_H
#define RENDEZVOUS_ANSWER_INTERNAL_H

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

#define ETCD_ANSWER_MAX ((size_t) 1 << 20) /* longest JSON object in bytes */

/* Called for each JSON object of the answer. If the object has a field "result", as each object of
 * a stream has, `object` is the value of that field, else the whole object. `object` is valid until
 * the function returns. Returns 0, or a negative errno to stop the parser. */
typedef int (*etcd_object_fn)(void *arg, const json_t *object);

/* State of the parser for one answer. The caller sets all bytes to 0, then on_object and arg. */
struct etcd_answer {
    etcd_object_fn on_object;
    void *arg;
    struct cr_buffer body; /* start of a line whose end has not come yet */
};

void etcd_answer_done(struct etcd_answer *a);

/* Parses bytes of the body, in pieces of any size, and calls on_object for each complete line.
 * `status` is the HTTP status of the answer. Returns 0, or what on_object returned if that was
 * negative, or -EPROTO or -ENOMEM and a text in err: etcd has reported an error, its answer is
 * malformed, or memory is short. */
int etcd_answer_receive(struct etcd_answer *a, int status, const char *data, size_t len,
                        struct cr_error *err);

/* Call this at the end of the body. It parses the last line, which may lack its newline. Returns
 * like etcd_answer_receive(). */
int etcd_answer_end(struct etcd_answer *a, int status, struct cr_error *err);

#endif
