/* HTTP and HTTPS requests to etcd on a libuv loop, by libcurl. The first etcd_http_open() loads
 * libcurl; launchers that do not use etcd start faster without it. */
#ifndef RENDEZVOUS_HTTP_INTERNAL_H
#define RENDEZVOUS_HTTP_INTERNAL_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct etcd_http;
struct etcd_http_call;

/* The texts must live as long as the struct etcd_http. An empty text "" means the default. */
struct etcd_http_options {
    bool https;
    const char *ca_cert;      /* file of the authorities to trust; default: those of the system */
    const char *ssl_cert;     /* file of the client's certificate; default: none */
    const char *ssl_cert_key; /* file of the certificate's key; default: it is in ssl_cert */
};

/* Called on the loop's thread, never from inside a function of this header. A callback may cancel
 * every call. */
struct etcd_http_events {
    /* Bytes of the answer's body have come. `status` is the HTTP status. */
    void (*on_body)(void *arg, int status, const char *data, size_t len);
    /* The call is over, and its etcd_http_call is freed after the callback. `why` is NULL if the
     * answer was complete, else the error. */
    void (*on_done)(void *arg, int status, const char *why);
};

/* Loads libcurl. Returns 0, or -ENOENT (no libcurl), -ENOTSUP (crun was built without its header)
 * or -ENOMEM, and sets err to a text that names the package. */
int etcd_http_open(uv_loop_t *loop, const struct etcd_http_options *options,
                   struct etcd_http **out, struct cr_error *err);

/* Sends POST `path` with the JSON text `body`, and with `token` as authorisation if it is not "".
 * Copies its arguments, but `events` must live until on_done. Returns NULL when memory is short. */
struct etcd_http_call *etcd_http_post(struct etcd_http *h, const struct cr_endpoint *to,
                                      const char *path, const char *token, const char *body,
                                      const struct etcd_http_events *events, void *arg);

/* Ends the call early and frees it. No callback follows. */
void etcd_http_cancel(struct etcd_http_call *call);

/* Returns the numeric address of this end of the call's connection; "" if the call is not connected
 * yet. The text is valid until the next call of a function of this header. */
const char *etcd_http_own_addr(const struct etcd_http_call *call);

/* Cancels all calls, closes the connections, and frees `h`. No callback but on_close follows. */
void etcd_http_close(struct etcd_http *h, void (*on_close)(void *arg), void *arg);

#endif
