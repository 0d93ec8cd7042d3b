/* Finds and loads modules, the shared objects lib/crunrt/<name>.so: they contain the backends and
 * the store's server. */
#ifndef RUNTIME_MODULES_H
#define RUNTIME_MODULES_H

#include "base/error.h"

/* Loads <folder>/<name>.so and sets *out to the address of `symbol` in it. If CRUNRT_BACKEND_DIR is
 * set, only this folder is searched. Otherwise these folders are searched, in this order: crunrt
 * and ../lib/crunrt, relative to the folder of this library's file; /usr/local/lib/crunrt;
 * /usr/lib/crunrt. A loaded module stays loaded.
 *
 * Returns 0; -EINVAL if `name` is no plain word; or -ENOENT, and sets err to a text that lists the
 * folders, or quotes the dynamic loader's reason. */
int module_load(const char *name, const char *symbol, void **out, struct cr_error *err);

#endif
