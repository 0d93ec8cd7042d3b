/* Declarations that the commands of crun-store share. Each command is one file with one table
 * (struct cr_command), from which base/program/program.h makes parsing, help text, manual page and
 * shell completion. */
#ifndef STORE_COMMAND_COMMAND_INTERNAL_H
#define STORE_COMMAND_COMMAND_INTERNAL_H

#include "base/network/endpoint.h"
#include "base/program/program.h"
#include "store/store.h"

#include <stdio.h>

extern const struct cr_command command_serve, command_get, command_set, command_add, command_wait,
    command_keys, command_delete, command_stat, command_ping;

/* ---- target.c: the store at HOST:PORT to which a command connects ---- */

/* The options of every command except serve. `seconds` is the default of --timeout as text, or NULL
 * if there is no time limit by default. */
enum { TARGET_JSON, TARGET_TIMEOUT, TARGET_HELP, TARGET_OPTION_COUNT };
#define TARGET_OPTIONS(seconds)                                                                    \
    {                                                                                              \
        [TARGET_JSON] = {.name = "json", .help = "print one line of JSON, for scripts"},           \
        [TARGET_TIMEOUT] = {.name = "timeout",                                                     \
                            .value_name = "SECONDS",                                               \
                            .default_value = (seconds),                                            \
                            .help = "time that the whole command may take"},     \
        [TARGET_HELP] = CR_OPTION_HELP,                                                            \
    }

/* After this many arguments (HOST:PORT and the first key), no word is parsed as an option. So a
 * value that follows may begin with dashes. */
#define TARGET_OPTIONS_END_AFTER 2

struct command_target {
    const struct cr_command *command;
    struct cr_endpoint endpoint;
    int64_t timeout_ms;  /* value of --timeout, or its default, in ms; CR_FOREVER if there is no
                          * limit */
    bool is_limited;     /* true if --timeout was given and is not 0. The timeout then limits the
                          * whole command, connecting included. */
    /* the moment at which the command must end, which command_open() sets; CR_FOREVER if
     * `is_limited` is false */
    int64_t deadline_ms;
    bool json;
    char **args; /* the arguments after HOST:PORT */
    int arg_count;
};

/* Parses HOST:PORT and the options into *target. Returns 0; or prints the reason of an error and
 * returns the exit status. */
int command_read_target(const struct cr_command *command, const struct cr_command_line *line,
                        struct command_target *target);

/* Connects to the target and returns the store; or prints the reason of an error and returns
 * NULL. */
struct store *command_open(struct command_target *target);

/* Calls command_read_target() and command_open(). Use this function in a command that has nothing
 * to check between these two calls. On error it prints the reason, sets *status to the exit status
 * and returns NULL. */
struct store *command_begin(const struct cr_command *command, const struct cr_command_line *line,
                            struct command_target *target, int *status);

/* Returns how many ms the next call of a store function may take, or CR_FOREVER if there is no
 * limit. */
int64_t command_time_left_ms(const struct command_target *target);

/* Formats "HOST:PORT", or "[ADDRESS]:PORT" for IPv6, and returns `out`. */
#define COMMAND_WHERE_MAX (CR_HOST_MAX + 16)
const char *command_where(const struct command_target *target, char out[COMMAND_WHERE_MAX]);

/* ---- print.c ---- */

/* Prints the error of a command and returns CR_EXIT_FAILED. */
int command_fail(const struct command_target *target, const struct cr_error *err);

/* Prints bytes as text. Bytes that are not printable UTF-8 are written as \xNN, so that a key
 * cannot send control sequences to the terminal. */
void command_put_text(FILE *out, struct store_bytes bytes);

/* Prints bytes as a JSON string with one code point for each byte. Bytes outside 0x20..0x7e are
 * written as \u00XX. */
void command_put_json(FILE *out, struct store_bytes bytes);

#endif
