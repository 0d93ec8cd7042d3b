/* Finding and loading the modules beside the library. */
#ifndef BACKEND_LOADER_INTERNAL_H
#define BACKEND_LOADER_INTERNAL_H

#include "base/error.h"

/* Loads <place>/<name>.so and returns the address of `symbol` in it. Places: CRUNRT_BACKEND_DIR
 * alone if it is set; else crunrt/ beside this library's file, ../lib/crunrt/ beside it,
 * /usr/local/lib/crunrt and /usr/lib/crunrt. Loaded modules stay loaded.
 * 0, -EINVAL (a name that is no plain word), or -ENOENT with a text that lists the places and the
 * loader's reason. */
int module_load(const char *name, const char *symbol, void **out, struct cr_error *err);

#endif
