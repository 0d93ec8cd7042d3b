/* The ways to start the deputy of a host, each of which is a command for the host's shell. Pure. */
#ifndef LAUNCHER_HOSTS_WAY_H
#define LAUNCHER_HOSTS_WAY_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* The ways, in the order of the tries. HOSTS_BY_NAME is not tried if crun may be copied. */
enum hosts_way {
    HOSTS_SAME_PATH, /* the path of the starter's crun */
    HOSTS_BY_NAME,   /* "crun", found by the PATH of the host's shell */
    HOSTS_COPY,      /* a copy of the starter's crun in ~/.cache/crun, which is made if needed */
    HOSTS_NO_WAY
};

/* value in place of an exit status: the deputy has answered, but is another version of crun */
#define HOSTS_OTHER_VERSION (-1)

/* Returns the way to try after `way` has failed; HOSTS_NO_WAY if there is none. `status` is the
 * exit status of the host's shell, which is 126 or 127 if the shell could not execute crun, or
 * HOSTS_OTHER_VERSION. `copies` is true if the user allows that crun is copied to the host. */
enum hosts_way hosts_way_next(enum hosts_way way, int status, bool copies);

/* Appends the shell command that starts the deputy. `crun` is the path of the starter's crun, which
 * has `size` bytes; `hash` distinguishes it from other versions. Returns 0 or -ENOMEM. */
int hosts_way_command(enum hosts_way way, const char *crun, uint64_t hash, size_t size,
                      struct cr_buffer *out);

/* Writes to `out` the last line of what ssh has printed, without the newline, or "". */
void hosts_last_line(const char *text, size_t len, char *out, size_t cap);

#endif
