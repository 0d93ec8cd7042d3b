/* Opens the socket of a status address. */
#ifndef STATUS_LISTEN_INTERNAL_H
#define STATUS_LISTEN_INTERNAL_H

#include "base/error.h"

#define STATUS_ADDRESS_MAX 320 /* bytes of an address as the user can type it, NUL included */

struct status_listener {
    int fd;
    char address[STATUS_ADDRESS_MAX]; /* "http://127.0.0.1:9400/" or "unix:/path" */
};

/* Opens a listening socket at HOST:PORT or unix:PATH. If a dead process has left a socket file at
 * PATH, the function replaces the file. Only the owner of the new file can connect to it. Returns
 * 0; or a negative errno, and sets err to a text that names the address. */
int status_listen(const char *address, struct status_listener *out, struct cr_error *err);

/* Removes the file of a unix:PATH. Call this before the socket is closed. */
void status_listener_remove(const struct status_listener *l);

#endif
