/* What the commands of crun-store share. Each command is one file, entered through its table;
 * base/program.h makes parsing, help, manual page and completion from the tables. */
#ifndef STORE_COMMAND_COMMAND_INTERNAL_H
#define STORE_COMMAND_COMMAND_INTERNAL_H

#include "base/endpoint.h"
#include "base/program.h"
#include "store/store.h"

#include <stdio.h>

extern const struct cr_command command_serve, command_get, command_set, command_add, command_wait,
    command_keys, command_delete, command_stat, command_ping;

/* ---- target.c: the store at HOST:PORT that a command talks to ---- */

/* The options of every command but serve; `seconds` is the default of --timeout, or NULL. */
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

/* A key may begin with any character, so options end at the second argument. */
#define TARGET_OPTIONS_END_AFTER 2

struct command_target {
    const struct cr_command *command;
    struct cr_endpoint endpoint;
    int64_t timeout_ms;  /* CR_FOREVER: no limit */
    bool is_limited;     /* --timeout was given and is not 0: it limits the whole command */
    int64_t deadline_ms; /* that limit, set by command_open(); else CR_FOREVER */
    bool json;
    char **args; /* behind HOST:PORT */
    int arg_count;
};

/* Reads HOST:PORT and the options. Returns 0, or the exit status after printing why not. */
int command_read_target(const struct cr_command *command, const struct cr_command_line *line,
                        struct command_target *target);

/* Connects; NULL after printing why not. */
struct store *command_open(struct command_target *target);

/* Both, for a command that checks nothing in between; NULL with the exit status in *status. */
struct store *command_begin(const struct cr_command *command, const struct cr_command_line *line,
                            struct command_target *target, int *status);

/* How long the next call may take. */
int64_t command_time_left_ms(const struct command_target *target);

/* Formats "HOST:PORT", or "[ADDRESS]:PORT" for IPv6, and returns `out`. */
#define COMMAND_WHERE_MAX (CR_HOST_MAX + 16)
const char *command_where(const struct command_target *target, char out[COMMAND_WHERE_MAX]);

/* ---- print.c ---- */

/* Prints the error of a command and returns CR_EXIT_FAILED. */
int command_fail(const struct command_target *target, const struct cr_error *err);

/* Prints bytes for people: everything but printable UTF-8 as \xNN, so that a key cannot send
 * control sequences to the terminal. */
void command_put_text(FILE *out, struct store_bytes bytes);

/* Prints bytes as a JSON string, one code point per byte: bytes outside 0x20..0x7e as \u00XX. */
void command_put_json(FILE *out, struct store_bytes bytes);

#endif
