/* Reads a command line by a table of options.
 *
 * crun, crun-store and crun-agent each describe their options in tables of this form. Parsing,
 * defaults from environment variables, --help, the manual page and the bash completion all come
 * from the table (base/program.h writes the texts), so that they cannot disagree.
 *
 * Grammar, for every program:
 *   --name VALUE, --name=VALUE, --flag   '_' is read as '-'; a unique prefix is enough
 *   -x VALUE, -xVALUE, -x=VALUE, -abx3   for options that have a letter
 *   --                                   ends the options and is dropped
 * When an option occurs twice, the last value counts. A value that is a word of its own must not
 * look like an option: it may be "-", a negative number, or hold a blank, but otherwise begins
 * with no dash. These are the rules of Python's argparse, which torchrun uses.
 *
 * Pure: reads only what it is given, converts nothing, prints nothing. */
#ifndef CR_COMMAND_LINE_H
#define CR_COMMAND_LINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct cr_option {
    const char *name;          /* with dashes, without the "--" in front: "log-dir" */
    char letter;               /* of the short form; 0: none */
    bool has_variable;         /* an environment variable sets its default: PREFIX_LOG_DIR */
    bool is_request;           /* asks for a text, such as help; what follows it is not read */
    bool is_hidden;            /* left out of texts, of prefixes and of suggestions */
    unsigned group;            /* index of its section in the command's `groups` */
    const char *value_name;    /* what --help calls the value, as in "SECONDS"; NULL: a flag */
    const char *default_value; /* NULL: none, and none is shown; "": empty, and none is shown */
    const char *words;         /* values that completion offers, separated by blanks; or NULL */
    const char *help;          /* a sentence that begins in lower case and has no full stop */
};

/* For the table of every command that has no other meaning for --help. */
#define CR_OPTION_HELP                                                                             \
    {.name = "help", .letter = 'h', .is_request = true, .is_hidden = true, .help = "show this text"}

struct cr_command_line;

/* A program, or one of the commands of a program, with the command line that it takes. */
struct cr_command {
    const char *name;        /* as it is typed: "crun", "crun-store get" */
    const char *summary;     /* a few words, for the list of commands; lower case */
    const char *arguments;   /* what follows the options, as --help shows it: "HOST:PORT KEY..." */
    const char *description; /* for --help, which wraps long lines */
    const char *help_tail;   /* for --help, behind the options; NULL: none */

    const struct cr_option *options;
    size_t option_count;
    const char *const *groups; /* titles of the sections; NULL: one section without a title */
    size_t group_count;

    int min_arguments, max_arguments;
    int options_end_after;       /* so many arguments end the options; 0: they may stand anywhere */
    bool has_short_options;      /* "-5" is a mistake; otherwise only known letters are options */
    const char *variable_prefix; /* of environment variables, "PET_"; NULL: it reads none */
    const char *unknown_option;  /* begins the error about one; NULL: "unknown option" */
    const char *unknown_advice;  /* ends that error if no option has a similar name; or NULL */

    /* Does what the command is for; returns the exit status. NULL for a program that calls
     * cr_command_line_parse() itself. */
    int (*run)(const struct cr_command *command, const struct cr_command_line *line);
};

enum cr_option_source { CR_FROM_DEFAULT, CR_FROM_VARIABLE, CR_FROM_LINE };

/* The texts point into argv, the environment or the table. */
struct cr_command_line {
    const char **value;            /* [option_count], the caller's; NULL or text, "1" for flags */
    enum cr_option_source *source; /* [option_count], the caller's */
    int request;                   /* index of the option that asked for a text; -1: none did */
    bool dashes_seen;              /* "--" ended the options */
    char **arguments;              /* what is no option; NULL-terminated, inside argv */
    int argument_count;
};

/* Looks up an environment variable; NULL: it is not set. A function, so that tests can replace
 * getenv(). */
typedef const char *(*cr_getenv_fn)(void *arg, const char *name);

/* Reads argv[1] and what follows; argv ends with NULL. The caller has set line->value and
 * line->source. Moves the arguments to the front of argv. `lookup` may be NULL if the command has
 * no variables.
 *
 * Returns 0, or -EINVAL with a text that names the word and the remedy. After a request
 * (line->request is not -1) only the options before it are set, and no defaults. */
int cr_command_line_parse(const struct cr_command *command, char **argv, cr_getenv_fn lookup,
                          void *lookup_arg, struct cr_command_line *line, struct cr_error *err);

/* The index of the option with this very name (with dashes); -1: there is none. */
int cr_option_find(const struct cr_command *command, const char *name);

/* The variable that sets the default of an option: "PET_LOG_DIR" for "log-dir". */
#define CR_OPTION_LABEL_MAX 64
const char *cr_option_variable(const struct cr_command *command, int option,
                               char out[CR_OPTION_LABEL_MAX]);

/* Where the user gave a value: "--log-dir" or "PET_LOG_DIR". For errors about the value. */
const char *cr_option_label(const struct cr_command *command, const struct cr_command_line *line,
                            int option, char out[CR_OPTION_LABEL_MAX]);

#endif
