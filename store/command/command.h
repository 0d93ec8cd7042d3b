/* crun-store: main() and the table of commands are in crun_store.c; each command has a file of its
 * own. print.c and peer.c hold what they share. */
#ifndef STORE_COMMAND_COMMAND_H
#define STORE_COMMAND_COMMAND_H

#include "base/address.h"
#include "store/store.h"

#include <stdio.h>

/* Exit statuses beside 0. The reason is on stderr. */
#define COMMAND_FAILED 1 /* the command could not be carried out */
#define COMMAND_USAGE  2 /* the command line cannot be understood */

/* argv[0] is the command's own name; returns the exit status. */
typedef int (*command_fn)(int argc, char **argv);

int command_serve(int argc, char **argv);
int command_get(int argc, char **argv);
int command_set(int argc, char **argv);
int command_add(int argc, char **argv);
int command_wait(int argc, char **argv);
int command_keys(int argc, char **argv);
int command_delete(int argc, char **argv);
int command_stat(int argc, char **argv);
int command_ping(int argc, char **argv);

/* ---- print.c ---- */

struct command_line;

/* Prints "crun-store NAME: TEXT" on stderr, always as one line. */
void command_complain(const char *name, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with "; try 'crun-store NAME --help'" behind it; returns COMMAND_USAGE. */
int command_usage_error(const char *name, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the error of a command and returns COMMAND_FAILED. */
int command_fail(const struct command_line *line, const struct cr_error *err);

/* Prints bytes for people: everything but printable UTF-8 as \xNN, so that a key cannot send
 * control sequences to the terminal. */
void command_put_text(FILE *out, struct store_bytes bytes);

/* Prints bytes as a JSON string, one code point per byte: bytes outside 0x20..0x7e as \u00XX. */
void command_put_json(FILE *out, struct store_bytes bytes);

/* ---- peer.c: what the commands that talk to a store share ---- */

struct command_shape {
    const char *name;
    const char *args;           /* behind HOST:PORT, as --help shows them */
    const char *help;           /* what it does, one or more lines */
    int min_args, max_args;     /* behind HOST:PORT */
    int64_t default_timeout_ms; /* CR_FOREVER = none */
};

struct command_line {
    const struct command_shape *shape;
    struct cr_endpoint endpoint;
    int64_t timeout_ms;
    int is_limited;      /* --timeout was given and is not 0: it limits the whole command */
    int64_t deadline_ms; /* that limit, set by command_open(); else CR_FOREVER */
    int json;
    char **args;
    int arg_count;
};

/* Parses "NAME [--json] [--timeout S] HOST:PORT ARGS...". Returns 1 to go on, or 0 with the
 * exit status in *status: --help was shown, or an error was printed. */
int command_parse(const struct command_shape *shape, int argc, char **argv,
                  struct command_line *line, int *status);

/* Connects; NULL after printing why not. */
struct store *command_open(struct command_line *line);

/* How long the next call may take. */
int64_t command_time_left_ms(const struct command_line *line);

/* "HOST:PORT", or "[ADDRESS]:PORT" for IPv6. */
#define COMMAND_WHERE_MAX (CR_HOST_MAX + 16)
const char *command_where(const struct command_line *line, char out[COMMAND_WHERE_MAX]);

/* Parses and connects, for a command that checks nothing in between; NULL with the exit status in
 * *status. */
struct store *command_begin(const struct command_shape *shape, int argc, char **argv,
                            struct command_line *line, int *status);

#endif
