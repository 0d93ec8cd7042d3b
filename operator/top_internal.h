/* What the files of crun-agent top share: where the snapshots come from, and the terminal. */
#ifndef OPERATOR_TOP_INTERNAL_H
#define OPERATOR_TOP_INTERNAL_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- top_source.c: where the snapshots come from ---- */

enum top_source_kind {
    TOP_HERE,        /* the crun processes of this host */
    TOP_COORDINATOR, /* a coordinator, which knows the nodes but not the ranks */
    TOP_ADDRESS,     /* a status address */
};

struct top_source {
    enum top_source_kind kind;
    const char *target;           /* what the user typed; NULL for the only job of this host */
    struct cr_endpoint endpoint;  /* of the coordinator */
};

/* Finds out what `target` is: the id of a job on this host, HOST:PORT of a coordinator or of a
 * status address, http://HOST:PORT/ or unix:PATH; NULL for the only job of this host. Stores the
 * first snapshot in *out. Returns 0; or a negative errno, and sets err. */
int top_source_open(struct top_source *s, const char *target, json_t **out, struct cr_error *err);

/* Fetches a new snapshot. Returns 0; or a negative errno, and sets err. */
int top_source_read(const struct top_source *s, json_t **out, struct cr_error *err);

/* ---- top_terminal.c: the terminal ---- */

enum top_key { TOP_KEY_NONE, TOP_KEY_UP = 1000, TOP_KEY_DOWN };

/* Switches the terminal to single keys and to its second screen. Returns 0; or a negative errno if
 * stdin and stdout are not a terminal. */
int top_terminal_open(void);
/* Switches the terminal back. If SIGTERM, SIGHUP, SIGINT or SIGQUIT has come since it was opened,
 * ends the process by that signal. */
void top_terminal_end(void);

void top_terminal_size(size_t *columns, size_t *rows);
/* Replaces what is on the screen by these lines. */
void top_terminal_draw(const char *text, size_t len);
/* Waits for a key, at most timeout_ms. Returns the character, an enum top_key, or TOP_KEY_NONE if
 * no key came or the size has changed; -1 if the terminal is gone, or if a signal has come that is
 * to end the process. */
int top_terminal_key(int timeout_ms);
/* Runs a program on the terminal's first screen and waits for its end; if `waits`, also for a key.
 * Then switches back to the second screen. Returns the program's exit status, or a negative errno
 * if it cannot be run. */
int top_terminal_run(const char *program, char *const argv[], bool waits);

#endif
