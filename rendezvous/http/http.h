/* HTTP and HTTPS requests on a libuv loop, by libcurl. The first http_open() loads libcurl;
 * launchers that send no such request start faster without it. */
#ifndef RENDEZVOUS_HTTP_HTTP_H
#define RENDEZVOUS_HTTP_HTTP_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct http;
struct http_call;

/* The texts must live as long as the struct http. An empty text "" means the default. */
struct http_options {
    const char *purpose;      /* who needs libcurl, for error texts; never "" */
    bool https;
    const char *ca_cert;      /* file of the authorities to trust; default: those of the system */
    const char *ssl_cert;     /* file of the client's certificate; default: none */
    const char *ssl_cert_key; /* file of the certificate's key; default: it is in ssl_cert */
};

/* Called on the loop's thread, never from inside a function of this header. A callback may cancel
 * every call. */
struct http_events {
    /* Bytes of the answer's body have come. `status` is the HTTP status. */
    void (*on_body)(void *arg, int status, const char *data, size_t len);
    /* The call is over, and its http_call is freed after the callback. `why` is NULL if the
     * answer was complete, else the error. */
    void (*on_done)(void *arg, int status, const char *why);
};

/* Loads libcurl. Returns 0, or a negative errno and a text in err: -ENOENT if libcurl cannot be
 * loaded, -ENOTSUP if crun was built without libcurl's header, -ENOMEM if memory is short. */
int http_open(uv_loop_t *loop, const struct http_options *options, struct http **out,
              struct cr_error *err);

/* One request. The texts are copied when it is sent. */
struct http_request {
    const char *method; /* "GET", "POST" or "PATCH" */
    const char *path;   /* begins with "/"; may have a query, whose values the caller has escaped */
    const char *token;  /* value of the header Authorization; "" for none */
    const char *type;   /* value of the header Content-Type; NULL if there is no body */
    const char *body;   /* NULL if the request has no body, as with GET */
};

/* Sends a request. `events` must live until on_done. Returns NULL when memory is short. */
struct http_call *http_send(struct http *h, const struct cr_endpoint *to,
                            const struct http_request *request, const struct http_events *events,
                            void *arg);

/* Sends POST `path` with the JSON text `body`, and with `token` as authorisation if it is not "".
 * Otherwise this does what http_send() does. */
static inline struct http_call *http_post(struct http *h, const struct cr_endpoint *to,
                                          const char *path, const char *token, const char *body,
                                          const struct http_events *events, void *arg) {
    const struct http_request request = {.method = "POST", .path = path, .token = token,
                                         .type = "application/json", .body = body};
    return http_send(h, to, &request, events, arg);
}

/* Ends the call early and frees it. No callback follows. */
void http_cancel(struct http_call *call);

/* Returns the numeric address of this end of the call's connection; "" if the call is not connected
 * yet. The text is valid until the next call of a function of this header. */
const char *http_own_addr(const struct http_call *call);

/* A request by HTTP/2 without TLS to a server on a Unix socket. */
struct http_socket_request {
    const char *socket; /* path of the socket */
    const char *path;   /* begins with "/" */
    const char *type;   /* value of the header Content-Type */
    const char *body;
    size_t len;         /* bytes of `body` */
    size_t answer_max;  /* limit of the answer's body in bytes; a longer one is an error */
    /* called for each header and trailer of the answer: a line without a NUL at its end */
    void (*on_header)(void *arg, const char *line, size_t len);
    void *arg;
};

struct cr_buffer;
/* Sends POST and waits for the answer, without a limit in time. Appends the answer's body to *body.
 * Needs no struct http. Returns 0; or a negative errno and a text in err: -ENOTSUP if libcurl
 * cannot be loaded or has no HTTP/2; -ENOMEM; or -ECONNREFUSED if no whole answer came. */
int http_post_to_socket(const char *purpose, const struct http_socket_request *request,
                        struct cr_buffer *body, struct cr_error *err);

/* Reads a token file, such as Kubernetes gives to each pod, and stores "Bearer TOKEN", the value of
 * the header Authorization, in `out`, which has room for `cap` bytes. Kubernetes replaces the file
 * before the token expires, so call this before each request. Returns 0; or a negative errno, and
 * sets err: the file cannot be read, is empty, or has other bytes than printable ASCII before its
 * last line break. */
int http_read_token(const char *path, char *out, size_t cap, struct cr_error *err);

/* Turns the contents of a token file, `len` bytes in `text`, into "Bearer TOKEN" in place. `cap` is
 * the size of `text`. Returns 0; or -EINVAL if the contents are no token. */
int http_make_authorization(char *text, size_t len, size_t cap);

/* Writes why a server of Kubernetes has refused a request, such as "HTTP 403: Forbidden", and a NUL
 * to `out`, which has room for `cap` bytes. `body` is the answer's body, in which the server can
 * send any bytes: its "message" is taken if it is the JSON of a Kubernetes Status, and escaped. */
void http_refusal(int status, const char *body, size_t len, char *out, size_t cap);

/* Cancels all calls, closes the connections, and frees `h`. No callback but on_close follows. */
void http_close(struct http *h, void (*on_close)(void *arg), void *arg);

#endif
