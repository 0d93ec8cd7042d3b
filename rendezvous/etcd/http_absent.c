/* Takes the place of http.c in a build without libcurl's header: etcd_http_open() fails with
 * -ENOTSUP, so no other function is called. */
#if !__has_include(<curl/curl.h>)
#include "rendezvous/etcd/http_internal.h"

#include "base/assert.h"

#include <errno.h>

int etcd_http_open(uv_loop_t *loop, const struct etcd_http_options *options,
                   struct etcd_http **out, struct cr_error *err) {
    (void) loop;
    (void) options;
    (void) out;
    return cr_fail(err, -ENOTSUP,
                   "this crun has no backend etcd: it was built without curl/curl.h; build it "
                   "again with libcurl's header (Debian: libcurl4-openssl-dev)");
}

struct etcd_http_call *etcd_http_post(struct etcd_http *h, const struct cr_endpoint *to,
                                      const char *path, const char *token, const char *body,
                                      const struct etcd_http_events *events, void *arg) {
    (void) h;
    (void) to;
    (void) path;
    (void) token;
    (void) body;
    (void) events;
    (void) arg;
    return NULL;
}

void etcd_http_cancel(struct etcd_http_call *call) { (void) call; }

const char *etcd_http_own_addr(const struct etcd_http_call *call) {
    (void) call;
    return "";
}

void etcd_http_close(struct etcd_http *h, void (*on_close)(void *arg), void *arg) {
    (void) h;
    (void) on_close;
    (void) arg;
    CR_ASSERT(!"etcd_http_open() has failed");
}
#else
typedef int etcd_http_is_there; /* ISO C forbids an empty file */
#endif
