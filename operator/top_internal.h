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
    const char *target;           /* the word that the user typed; NULL = the only job of this
                                   * host */
    struct cr_endpoint endpoint;  /* address of the coordinator, if kind is TOP_COORDINATOR */
};

/* Finds out what kind of source `target` is: the id of a job on this host; HOST:PORT of a
 * coordinator or of a status address; http://HOST:PORT/ or unix:PATH of a status address; or NULL,
 * which stands for the only job of this host. Stores the first snapshot in *out. Returns 0; or a
 * negative errno, and sets err. */
int top_source_open(struct top_source *s, const char *target, json_t **out, struct cr_error *err);

/* Fetches a new snapshot. Returns 0; or a negative errno, and sets err. */
int top_source_read(const struct top_source *s, json_t **out, struct cr_error *err);

/* ---- top_terminal.c: the terminal ---- */

enum top_key { TOP_KEY_NONE, TOP_KEY_UP = 1000, TOP_KEY_DOWN };

/* Switches the terminal to single keys and to its second screen. Returns 0; or a negative errno if
 * stdin and stdout are not a terminal. */
int top_terminal_open(void);
/* Restores the terminal's settings and its first screen. If SIGTERM, SIGHUP, SIGINT or SIGQUIT has
 * come since top_terminal_open(), the function ends the process by that signal. */
void top_terminal_end(void);

void top_terminal_size(size_t *columns, size_t *rows);
/* Replaces what is on the screen by these lines. */
void top_terminal_draw(const char *text, size_t len);
/* Waits for a key, at most timeout_ms. Returns the key, as a character or an enum top_key. Returns
 * TOP_KEY_NONE if no key came or the terminal's size has changed; -1 if the terminal is gone or a
 * signal that shall end the process has come. */
int top_terminal_key(int timeout_ms);
/* Runs a program on the terminal's first screen and waits for its end; if `waits` is true, also
 * waits for a key after it. Then switches back to the second screen. Returns the program's exit
 * status, or a negative errno if the program cannot be run. */
int top_terminal_run(const char *program, char *const argv[], bool waits);

#endif
