/* Sends a request by HTTP/2 to a server on a Unix socket, such as one of gRPC. Blocks, so it is for
 * processes that have no event loop. Implements a part of http.h. In a build without libcurl's
 * header, http_absent.c takes the place of this file. */
#if __has_include(<curl/curl.h>)
#include "rendezvous/http/curl_internal.h"
#include "rendezvous/http/http.h"

#include "base/buffer.h"

#include <errno.h>
#include <stdio.h>

/* One request while libcurl performs it. */
struct call {
    const struct http_socket_request *request;
    struct cr_buffer *body;
};

static size_t on_data(char *data, size_t size, size_t count, void *arg) {
    struct call *c = arg;
    size_t len = size * count;
    if (c->body->len + len > c->request->answer_max) return 0; /* libcurl ends the request */
    return cr_buffer_append(c->body, data, len) == 0 ? len : 0;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg) {
    const struct call *c = arg;
    c->request->on_header(c->request->arg, data, size * count);
    return size * count;
}

static void configure(const struct http_curl *curl, CURL *easy, struct curl_slist *headers,
                      const char *url, char *why, struct call *c) {
    const struct http_socket_request *r = c->request;
    (void) curl->easy_setopt(easy, CURLOPT_URL, url);
    (void) curl->easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, r->socket);
    (void) curl->easy_setopt(easy, CURLOPT_HTTP_VERSION,
                             (long) CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    (void) curl->easy_setopt(easy, CURLOPT_PROXY, "");
    (void) curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void) curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    (void) curl->easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long) r->len);
    (void) curl->easy_setopt(easy, CURLOPT_POSTFIELDS, r->body);
    (void) curl->easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    (void) curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    (void) curl->easy_setopt(easy, CURLOPT_WRITEDATA, c);
    (void) curl->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    (void) curl->easy_setopt(easy, CURLOPT_HEADERDATA, c);
}

static int perform(const struct http_curl *curl, CURL *easy, struct call *c, struct cr_error *err) {
    char url[200], type[80], why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers;
    (void) snprintf(url, sizeof(url), "http://localhost%s", c->request->path);
    (void) snprintf(type, sizeof(type), "Content-Type: %s", c->request->type);
    headers = curl->slist_append(curl->slist_append(NULL, type), "TE: trailers");
    configure(curl, easy, headers, url, why, c);
    CURLcode rc = curl->easy_perform(easy);
    curl->slist_free_all(headers);
    if (rc == CURLE_OK) return 0;
    return cr_fail(err, -ECONNREFUSED, "%s", why[0] != '\0' ? why : curl->easy_strerror(rc));
}

int http_post_to_socket(const char *purpose, const struct http_socket_request *request,
                        struct cr_buffer *body, struct cr_error *err) {
    const struct http_curl *curl;
    struct call c = {.request = request, .body = body};
    if (http_curl_load(purpose, &curl, err) < 0) return -ENOTSUP;
    const curl_version_info_data *info = curl->version_info(CURLVERSION_NOW);
    if ((info->features & CURL_VERSION_HTTP2) == 0) {
        return cr_fail(err, -ENOTSUP, "%s needs a libcurl with HTTP/2; libcurl %s was built "
                       "without it; install another one", purpose, info->version);
    }
    CURL *easy = curl->easy_init();
    if (easy == NULL) return cr_fail(err, -ENOMEM, "no memory left");
    int rc = perform(curl, easy, &c, err);
    curl->easy_cleanup(easy);
    return rc;
}
#else
typedef int http_socket_is_absent; /* ISO C forbids an empty file */
#endif
