/* Takes the place of http.c in a build without libcurl's header: http_open() fails with
 * -ENOTSUP, so no other function is called. */
#if !__has_include(<curl/curl.h>)
#include "rendezvous/http/http.h"

#include "base/assert.h"

#include <errno.h>

static int fail_absent(const char *purpose, struct cr_error *err) {
    return cr_fail(err, -ENOTSUP,
                   "%s is not in this crun: it was built without curl/curl.h; build it again with "
                   "libcurl's header (Debian: libcurl4-openssl-dev)", purpose);
}

int http_post_to_socket(const char *purpose, const struct http_socket_request *request,
                        struct cr_buffer *body, struct cr_error *err) {
    (void) request;
    (void) body;
    return fail_absent(purpose, err);
}

int http_open(uv_loop_t *loop, const struct http_options *options, struct http **out,
              struct cr_error *err) {
    (void) loop;
    (void) out;
    return fail_absent(options->purpose, err);
}

struct http_call *http_send(struct http *h, const struct cr_endpoint *to,
                            const struct http_request *request, const struct http_events *events,
                            void *arg) {
    (void) h;
    (void) to;
    (void) request;
    (void) events;
    (void) arg;
    return NULL;
}

void http_cancel(struct http_call *call) { (void) call; }

const char *http_own_addr(const struct http_call *call) {
    (void) call;
    return "";
}

void http_close(struct http *h, void (*on_close)(void *arg), void *arg) {
    (void) h;
    (void) on_close;
    (void) arg;
    CR_ASSERT(!"http_open() has failed");
}
#else
typedef int http_is_there; /* ISO C forbids an empty file */
#endif
