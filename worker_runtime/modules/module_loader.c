/* Finds and loads modules. It searches folders next to the library's own file, so that modules are
 * found without configuration both in a build folder and in an installed tree. */
#include "worker_runtime/modules/modules.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sets `out` to the folder of the file that contains this code: libcrunrt.so, or a program that is
 * statically linked with the library. Returns 0 or a negative errno. */
static int own_folder(char out[PATH_MAX]) {
    Dl_info info;
    if (dladdr((void *) (uintptr_t) module_load, &info) == 0 || info.dli_fname == NULL)
        return -ENOENT;
    if (realpath(info.dli_fname, out) == NULL) return -errno;
    char *slash = strrchr(out, '/');
    if (slash == NULL) return -ENOENT;
    *slash = '\0';
    return 0;
}

static bool is_plain_name(const char *name) {
    if (name[0] == '\0' || strlen(name) > 32) return false;
    for (const char *p = name; *p != '\0'; p++) {
        if (!isalnum((unsigned char) *p) && *p != '_') return false;
    }
    return true;
}

struct search {
    const char *name;
    void *handle;
    /* dlopen()'s error text for the first file that exists but cannot be loaded; "" if there is
     * none */
    char reason[512];
    char places[1024];
    size_t places_len;
};

/* If the module is not loaded yet, tries to load it from one folder. Adds the folder to s->places,
 * the list of searched folders in the error text. */
static void try_place(struct search *s, const char *folder, const char *below) {
    if (s->handle != NULL) return;
    char path[PATH_MAX + 64];
    int n = snprintf(path, sizeof(path), "%s%s/%s.so", folder, below, s->name);
    if (n < 0 || (size_t) n >= sizeof(path)) return;
    if (s->places_len < sizeof(s->places)) {
        n = snprintf(s->places + s->places_len, sizeof(s->places) - s->places_len, "%s'%s%s'",
                     s->places_len > 0 ? ", " : "", folder, below);
        if (n > 0) s->places_len += (size_t) n;
    }
    if (access(path, F_OK) < 0) return;
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (s->handle != NULL || s->reason[0] != '\0') return;
    const char *why = dlerror();
    (void) snprintf(s->reason, sizeof(s->reason), "%s", why != NULL ? why : "unknown reason");
}

int module_load(const char *name, const char *symbol, void **out, struct cr_error *err) {
    if (!is_plain_name(name)) {
        return cr_fail(err, -EINVAL, "load the module '%.64s': not a plain name", name);
    }
    struct search s = {.name = name};
    char own[PATH_MAX];
    const char *dir = getenv("CRUNRT_BACKEND_DIR");
    if (dir != NULL && dir[0] != '\0') {
        try_place(&s, dir, "");
    } else {
        if (own_folder(own) == 0) {
            try_place(&s, own, "/crunrt");
            try_place(&s, own, "/../lib/crunrt");
        }
        try_place(&s, "/usr/local/lib", "/crunrt");
        try_place(&s, "/usr/lib", "/crunrt");
    }
    if (s.handle == NULL && s.reason[0] != '\0') {
        return cr_fail(err, -ENOENT, "load the module '%s': %s", name, s.reason);
    }
    if (s.handle == NULL) {
        return cr_fail(
            err, -ENOENT,
            "load the module '%s': no file '%s.so' in %s; it was not built here (make says "
            "why), or set CRUNRT_BACKEND_DIR to its folder",
            name, name, s.places);
    }
    *out = dlsym(s.handle, symbol);
    if (*out == NULL) {
        return cr_fail(err, -ENOENT, "load the module '%s': it has no '%s'; not a module of crun",
                       name, symbol);
    }
    return 0;
}
