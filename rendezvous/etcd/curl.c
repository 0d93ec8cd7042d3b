/* Loads libcurl: see curl_internal.h. A build without libcurl's header leaves this file
 * empty. */
#if __has_include(<curl/curl.h>)
#include "rendezvous/etcd/curl_internal.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* File names of libcurl: the usual one, and that of Debian's build with GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static void *open_library(struct cr_error *err) {
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle != NULL) return handle;
        const char *why = dlerror();
        if (i == 0) {
            (void) cr_fail(err, -ENOENT,
                           "the backend etcd needs libcurl, which cannot be loaded: %.300s; "
                           "install it (Debian: libcurl4)",
                           why != NULL ? why : "unknown reason");
        }
    }
    return NULL;
}

static int find_functions(void *handle, struct etcd_curl *curl, struct cr_error *err) {
    const struct {
        const char *name;
        void *place;
    } functions[] = {
#define F(name) {"curl_" #name, &curl->name},
        ETCD_CURL_FUNCTIONS(F)
#undef F
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(functions); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL) {
            return cr_fail(err, -ENOENT, "the backend etcd cannot use this libcurl: it lacks %s",
                           functions[i].name);
        }
        memcpy(functions[i].place, &address, sizeof(address));
    }
    return 0;
}

int etcd_curl_load(const struct etcd_curl **out, struct cr_error *err) {
    static struct etcd_curl curl; /* if global_init is set, all functions are */
    struct etcd_curl found;
    if (curl.global_init == NULL) {
        void *handle = open_library(err);
        if (handle == NULL) return -ENOENT;
        int rc = find_functions(handle, &found, err);
        if (rc < 0) return rc;
        if (found.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
            return cr_fail(err, -ENOENT, "the backend etcd cannot initialise libcurl");
        }
        curl = found;
    }
    *out = &curl;
    return 0;
}
#else
typedef int etcd_curl_is_absent; /* ISO C forbids an empty file */
#endif
