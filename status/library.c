/* Loads libmicrohttpd: see library_internal.h. If the library's header is missing when crun is
 * built, this file is empty. */
#if __has_include(<microhttpd.h>)
#include "status/library_internal.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* File names of libmicrohttpd: releases from 0.9.38 on have version 12 of its interface, releases
 * from 1.0 on have version 13. */
static const char *const names[] = {"libmicrohttpd.so.12", "libmicrohttpd.so.13"};

static void *open_library(struct cr_error *err) {
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle != NULL) return handle;
        const char *why = dlerror();
        if (i > 0) continue;
        (void) cr_fail(err, -ENOENT,
                       "the status address needs libmicrohttpd, which cannot be loaded: %.300s; "
                       "install it (Debian: libmicrohttpd12)",
                       why != NULL ? why : "unknown reason");
    }
    return NULL;
}

static int find_functions(void *handle, struct status_library *library, struct cr_error *err) {
    const struct {
        const char *name;
        void *place;
    } functions[] = {
#define F(name) {"MHD_" #name, &library->name},
        STATUS_LIBRARY_FUNCTIONS(F)
#undef F
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(functions); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL) {
            return cr_fail(err, -ENOENT,
                           "the status address cannot use this libmicrohttpd: it lacks %s",
                           functions[i].name);
        }
        memcpy(functions[i].place, &address, sizeof(address));
    }
    return 0;
}

int status_library_load(const struct status_library **out, struct cr_error *err) {
    static struct status_library library;
    static bool is_loaded;
    if (!is_loaded) {
        void *handle = open_library(err);
        if (handle == NULL) return -ENOENT;
        int rc = find_functions(handle, &library, err);
        if (rc < 0) return rc;
        is_loaded = true;
    }
    *out = &library;
    return 0;
}
#else
typedef int status_library_is_absent; /* ISO C forbids an empty file */
#endif
