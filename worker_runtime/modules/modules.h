/* Finding and loading the modules lib/crunrt/<name>.so: the backends, and the store's server. */
#ifndef RUNTIME_MODULES_H
#define RUNTIME_MODULES_H

#include "base/error.h"

/* Loads <folder>/<name>.so and sets *out to the address of `symbol` in it. If CRUNRT_BACKEND_DIR is
 * set, it is the only folder. Otherwise the folders are, relative to the folder of this library's
 * file, crunrt and ../lib/crunrt; then /usr/local/lib/crunrt and /usr/lib/crunrt. A loaded module
 * stays loaded.
 *
 * 0; -EINVAL (the name is not a plain word); -ENOENT with a text that lists the folders and the
 * loader's reason. */
int module_load(const char *name, const char *symbol, void **out, struct cr_error *err);

#endif
