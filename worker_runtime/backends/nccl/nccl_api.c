/* Loads NCCL and the CUDA driver. If an environment variable gives a library's path, only this path
 * is tried. Otherwise the dynamic loader searches its own folders. If it does not find NCCL there,
 * the folders in NCCL_LIBRARY_HINTS, which is set when this module is built, are tried. */
#include "worker_runtime/backends/nccl/nccl_api.h"

#include "base/cleanup.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifndef NCCL_LIBRARY_HINTS
#define NCCL_LIBRARY_HINTS DEFAULT_LIBRARY_HINTS
#endif

static struct nccl_api api;
static struct cr_error load_error;

static void *try_open(const char *path, char reason[512]) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = handle == NULL ? dlerror() : NULL;
    if (why != NULL && reason[0] == '\0') (void) snprintf(reason, 512, "%s", why);
    return handle;
}

/* Opens a library. If the environment variable `variable` is set, it is the path. Otherwise
 * `soname` is searched in the dynamic loader's own folders, and after them in `hints`, a list of
 * folders separated by ':'. */
static void *open_library(const char *variable, const char *soname, const char *hints) {
    char reason[512] = "";
    const char *given = getenv(variable);
    if (given != NULL && given[0] != '\0') {
        void *handle = try_open(given, reason);
        if (handle == NULL)
            (void) cr_fail(&load_error, -ENOENT, "load %s='%s': %s", variable, given, reason);
        return handle;
    }
    void *handle = try_open(soname, reason);
    while (handle == NULL && *hints != '\0') {
        size_t len = strcspn(hints, ":");
        char path[PATH_MAX], ignored[512] = "";
        (void) snprintf(path, sizeof(path), "%.*s/%s", (int) len, hints, soname);
        handle = try_open(path, ignored);
        hints += len + (hints[len] == ':');
    }
    if (handle == NULL) {
        (void) cr_fail(&load_error, -ENOENT, "load '%s': %s; install it, or name it in %s", soname,
                       reason, variable);
    }
    return handle;
}

/* Finds a symbol and stores its address in the function pointer to which `slot` points. memcpy() is
 * used because C has no cast from an object pointer, which dlsym() returns, to a function pointer.
 */
static bool find(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static int find_all(void *driver, void *nccl) {
    const char *missing = NULL, *missing_in_driver = NULL;
#define FIND_DRIVER(name, symbol, arguments)                                                       \
    if (!find(driver, #symbol, &api.name)) missing_in_driver = #symbol;
#define FIND_NCCL(name)                                                                            \
    if (!find(nccl, #name, &api.name)) missing = #name;
    DRIVER_FUNCTIONS(FIND_DRIVER)
    NCCL_FUNCTIONS(FIND_NCCL)
#define FIND_LATER(name, arguments) (void) find(nccl, #name, &api.name);
    NCCL_LATER_FUNCTIONS(FIND_LATER)
    if (missing_in_driver != NULL) {
        return cr_fail(&load_error, -ENODEV,
                       "load the " DRIVER_NAME ": the library has no '%s'; " DRIVER_REMEDY,
                       missing_in_driver);
    }
    if (missing == NULL) return 0;
    return cr_fail(&load_error, -ENOENT,
                   "load " COLLECTIVES_NAME ": the library has no '%s'; 2.14 or later is needed",
                   missing);
}

static int refuse_fake(void *nccl) {
    const char *allowed = getenv("CRUNRT_ALLOW_FAKE_NCCL");
    if (dlsym(nccl, "fake_nccl") == NULL) return 0;
    if (allowed != NULL && strcmp(allowed, "1") == 0) return 0;
    return cr_fail(&load_error, -ENOENT,
                   "load " COLLECTIVES_NAME ": this library is a fake for tests, not NCCL");
}

static void load(void) {
    void *driver = open_library(DRIVER_LIBRARY_VARIABLE, DRIVER_LIBRARY, DRIVER_LIBRARY_HINTS);
    if (driver == NULL) {
        load_error.code = -ENODEV;
        (void) cr_wrap(&load_error, "find a GPU: there is no " DRIVER_NAME);
        return;
    }
    void *nccl = open_library(NCCL_LIBRARY_VARIABLE, COLLECTIVES_LIBRARY, NCCL_LIBRARY_HINTS);
    if (nccl == NULL || refuse_fake(nccl) < 0 || find_all(driver, nccl) < 0) return;
    if (api.ncclGetVersion(&api.nccl_version) != ncclSuccess) {
        (void) cr_fail(&load_error, -ENOENT,
                       "load " COLLECTIVES_NAME ": it does not report its version");
    }
}

int nccl_api_load(const struct nccl_api **out, struct cr_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void) pthread_once(&once, load);
    if (load_error.code != 0) {
        if (err != NULL) *err = load_error;
        return load_error.code;
    }
    *out = &api;
    return 0;
}
