/* Makes the commands by which a host's shell starts the deputy there. There are several, because
 * crun need not be installed at the same path on all hosts. Pure. */
#ifndef LAUNCHER_HOSTS_WAY_H
#define LAUNCHER_HOSTS_WAY_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* The ways, in the order in which they are tried. HOSTS_BY_NAME is left out if crun may be
 * copied. */
enum hosts_way {
    HOSTS_SAME_PATH, /* the path of the starter's crun */
    HOSTS_BY_NAME,   /* "crun", found by the PATH of the host's shell */
    HOSTS_COPY,      /* a copy of the starter's crun in ~/.cache/crun, which is made first if there
                      * is none */
    HOSTS_NO_WAY
};

/* in place of an exit status: the deputy has sent its greeting, but is another version of crun */
#define HOSTS_OTHER_VERSION (-1)

/* Returns the way to try after `way` has failed, or HOSTS_NO_WAY if there is none. `status` is
 * HOSTS_OTHER_VERSION, or the exit status of the host's shell, which is 126 or 127 if the shell
 * could not execute crun. `copies` is true if the user allows crun to be copied to the host. */
enum hosts_way hosts_way_next(enum hosts_way way, int status, bool copies);

/* Appends the shell command that starts the deputy. `crun` is the path of the starter's crun,
 * `size` is its size in bytes, and `hash` distinguishes it from other builds. Returns 0 or
 * -ENOMEM. */
int hosts_way_command(enum hosts_way way, const char *crun, uint64_t hash, size_t size,
                      struct cr_buffer *out);

/* Writes to `out` the last line of text[0..len), the output of ssh, without its newline; "" if
 * there is none. */
void hosts_last_line(const char *text, size_t len, char *out, size_t cap);

#endif
