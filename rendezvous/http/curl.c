/* Loads libcurl: see curl_internal.h. A build without libcurl's header leaves this file empty. */
#if __has_include(<curl/curl.h>)
#include "rendezvous/http/curl_internal.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* File names of libcurl: the usual one, and that of Debian's build with GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static void *open_library(const char *purpose, struct cr_error *err) {
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle != NULL) return handle;
        const char *why = dlerror();
        if (i == 0) {
            (void) cr_fail(err, -ENOENT,
                           "%s needs libcurl, which cannot be loaded: %.300s; "
                           "install it (Debian: libcurl4)",
                           purpose, why != NULL ? why : "unknown reason");
        }
    }
    return NULL;
}

static int find_functions(const char *purpose, void *handle, struct http_curl *curl,
                          struct cr_error *err) {
    const struct {
        const char *name;
        void *place;
    } functions[] = {
#define F(name) {"curl_" #name, &curl->name},
        HTTP_CURL_FUNCTIONS(F)
#undef F
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(functions); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL) {
            return cr_fail(err, -ENOENT, "%s cannot use this libcurl: it lacks %s", purpose,
                           functions[i].name);
        }
        memcpy(functions[i].place, &address, sizeof(address));
    }
    return 0;
}

int http_curl_load(const char *purpose, const struct http_curl **out, struct cr_error *err) {
    static struct http_curl curl; /* if global_init is set, all other pointers are set, too */
    struct http_curl found;
    if (curl.global_init == NULL) {
        void *handle = open_library(purpose, err);
        if (handle == NULL) return -ENOENT;
        int rc = find_functions(purpose, handle, &found, err);
        if (rc < 0) return rc;
        if (found.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
            return cr_fail(err, -ENOENT, "%s cannot initialise libcurl", purpose);
        }
        curl = found;
    }
    *out = &curl;
    return 0;
}
#else
typedef int http_curl_is_absent; /* ISO C forbids an empty file */
#endif
