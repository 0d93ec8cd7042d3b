/* The functions of libcurl that crun uses, as pointers into the library that was loaded at run
 * time. */
#ifndef RENDEZVOUS_HTTP_CURL_INTERNAL_H
#define RENDEZVOUS_HTTP_CURL_INTERNAL_H

#include "base/error.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* F(name) stands for libcurl's function curl_NAME(). */
#define HTTP_CURL_FUNCTIONS(F)                                                                     \
    F(global_init) F(easy_init) F(easy_setopt) F(easy_getinfo) F(easy_cleanup) F(easy_strerror)    \
    F(multi_init) F(multi_setopt) F(multi_add_handle) F(multi_remove_handle)                       \
    F(multi_socket_action) F(multi_info_read) F(multi_assign) F(multi_cleanup) F(slist_append)     \
    F(slist_free_all) F(easy_perform) F(version_info)

struct http_curl {
#define F(name) __typeof__(curl_##name) *name;
    HTTP_CURL_FUNCTIONS(F)
#undef F
};

/* The first call loads and initialises libcurl. `purpose` says in error texts who needs libcurl.
 * Stores libcurl's functions in *out. The library stays loaded until the process ends. Returns 0;
 * or -ENOENT, and sets err. */
int http_curl_load(const char *purpose, const struct http_curl **out, struct cr_error *err);

#endif
