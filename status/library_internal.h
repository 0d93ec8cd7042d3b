/* The functions of libmicrohttpd that crun uses, as pointers into the library that was loaded at
 * run time. So crun does not depend on the library, and starts as fast as without it. */
#ifndef STATUS_LIBRARY_INTERNAL_H
#define STATUS_LIBRARY_INTERNAL_H

#include "base/error.h"

#include <microhttpd.h>

/* F(name) stands for libmicrohttpd's function MHD_NAME(). */
#define STATUS_LIBRARY_FUNCTIONS(F)                                                                \
    F(start_daemon) F(stop_daemon) F(run) F(get_timeout) F(get_daemon_info) F(get_connection_info) \
    F(create_response_from_buffer) F(destroy_response) F(add_response_header) F(queue_response)    \
    F(lookup_connection_value)

struct status_library {
#define F(name) __typeof__(MHD_##name) *name;
    STATUS_LIBRARY_FUNCTIONS(F)
#undef F
};

/* Stores the functions of libmicrohttpd in *out. The first call loads the library, which stays
 * loaded until the process ends. Returns 0; or -ENOENT, and sets err. */
int status_library_load(const struct status_library **out, struct cr_error *err);

#endif
