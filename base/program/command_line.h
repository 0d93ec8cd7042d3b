/* Parses a command line according to a table of options.
 *
 * crun, crun-store and crun-agent each describe their options in tables of this form. Parsing,
 * defaults from environment variables, --help, the manual page and the bash completion all come
 * from the table (base/program/program.h writes the texts), so that they cannot disagree.
 *
 * Grammar, for every program:
 *   --name VALUE, --name=VALUE, --flag   '_' in a name is read as '-'; a unique prefix is enough
 *   -x VALUE, -xVALUE, -x=VALUE, -abx3   for options that have a letter
 *   --                                   ends the options and is dropped
 *   -word VALUE, -word=VALUE             for options that have a word of several letters, as "-np"
 * If an option occurs twice, the last value counts, unless the option collects all of its values
 * (cr_option.repeats). In "--name VALUE" and "-x VALUE", VALUE must
 * not begin with a dash, unless VALUE is "-", is a negative number, or contains a blank. These are
 * the rules of Python's argparse, which torchrun uses.
 *
 * The parser is pure: it reads only its parameters and prints nothing. Values stay texts; the
 * caller converts them. */
#ifndef CR_COMMAND_LINE_H
#define CR_COMMAND_LINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct cr_option {
    const char *name;          /* long name without "--", with dashes: "log-dir" */
    char letter;               /* letter of the short form; 0 if the option has no short form */
    const char *word;          /* "-np": a second form of the option, of one dash and several
                                * letters; NULL if it has none */
    bool gives_way;            /* True if this option yields to options without this flag: if a
                                * prefix fits options of both kinds, those with the flag do not
                                * count. The options that torchrun lacks have this flag, so that
                                * each prefix that is unique in torchrun stays unique. */
    bool repeats;              /* True if the option may be given several times and each value
                                * counts. All values are stored in cr_command_line.repeated. */
    bool has_variable;         /* true if a variable such as PET_LOG_DIR sets the default */
    const char *old_variable;  /* variable that is read if the variable of has_variable is not set;
                                * NULL if there is none */
    bool empty_is_on;          /* for a flag: true if an empty variable turns it on */
    bool is_request;           /* true for an option such as --help: parsing ends at it without an
                                * error */
    bool is_hidden;            /* true if --help and completion omit the option and no prefix of its
                                * name selects it */
    bool needs_whole_name;     /* true if no prefix of the name selects the option, because in
                                * torchrun these prefixes select another one */
    unsigned group;            /* index of its --help section in the command's `groups` */
    const char *value_name;    /* "SECONDS": the value's name in --help; NULL for a flag */
    const char *default_value; /* value if the user gives none, or NULL; --help shows it unless it
                                * is "" */
    const char *words;         /* values that completion offers, separated by blanks; NULL if it
                                * offers file names */
    const char *help;          /* a sentence that begins in lower case and has no full stop */
};

/* The table entry of --help and -h, for programs whose main is cr_program_main(). */
#define CR_OPTION_HELP                                                                             \
    {.name = "help", .letter = 'h', .is_request = true, .is_hidden = true, .help = "show this text"}

struct cr_command_line;

/* The description of a program, or of one command of a program: its command line, the texts of its
 * --help, and the function that executes it. */
struct cr_command {
    const char *name;        /* name as the user types it: "crun", "crun-store get" */
    const char *summary;     /* a few words in lower case, for the program's list of commands */
    const char *arguments;   /* arguments after the options, as --help shows them: "HOST:PORT
                              * KEY..." */
    const char *description; /* first text of --help; its long lines are wrapped */
    const char *help_tail;   /* last text of --help, after the options; NULL if there is none */

    const struct cr_option *options;
    size_t option_count;
    const char *const *groups; /* titles of the sections of --help; if NULL, --help has one section
                                * without a title */
    size_t group_count;

    int min_arguments, max_arguments;
    int options_end_after;       /* after this number of arguments, all further words are arguments;
                                  * 0 if options may stand anywhere */
    bool has_short_options;      /* true if a word such as "-5" is an unknown option; false if it is
                                  * an argument */
    const char *variable_prefix; /* prefix of the options' environment variables, such as "PET_";
                                  * NULL if they have no variables */
    const char *unknown_option;  /* beginning of the error text about an unknown option; NULL for
                                  * "unknown option" */
    const char *unknown_advice;  /* end of the error text about an unknown option if no known option
                                  * has a similar name; NULL if this text has no such end */

    /* Executes the command and returns the exit status. NULL if the program does not use
     * cr_program_main(). */
    int (*run)(const struct cr_command *command, const struct cr_command_line *line);
};

enum cr_option_source {
    CR_FROM_DEFAULT,
    CR_FROM_VARIABLE,
    CR_FROM_LINE,
    CR_FROM_SCHEDULER /* set by crun after parsing, from the variables of a cluster scheduler */
};

/* The result of parsing. All texts in it point into argv, the environment or the option table, and
 * stay valid as long as these. The caller provides the arrays `value` and `source`. */
struct cr_command_line {
    const char **value;            /* [option_count]: value of each option; "1" for a flag that is
                                    * on; NULL for an option without a value */
    enum cr_option_source *source; /* [option_count]: where the value of each option came from */
    const char **repeated;         /* values of the options with `repeats`, in their order; may be
                                    * NULL if the command has no such option */
    int *repeated_of;              /* [number of values in `repeated`]: index of the option of each
                                    * value; may be NULL if only one option has `repeats` */
    size_t repeated_count;         /* number of values in `repeated` */
    size_t repeated_max;           /* number of values that `repeated` has room for */
    int request;                   /* index of the option with is_request, such as --help, that was
                                    * given; -1 if none was given */
    bool dashes_seen;              /* true if the word "--" was given, which ends the options */
    char **arguments;              /* words that are no options; NULL-terminated, inside argv */
    int argument_count;
};

/* A function that returns the value of an environment variable, or NULL if it is not set. The
 * parser calls it instead of getenv(), so that tests can choose the environment. */
typedef const char *(*cr_getenv_fn)(void *arg, const char *name);

/* Parses the words from argv[1] to the NULL that ends argv. Before the call, set line->value and
 * line->source to arrays with an entry for each option. The function moves the arguments to the
 * front of argv. `lookup` may be NULL if the command has no variables.
 *
 * Returns 0; or -EINVAL, and sets err to a text that names the wrong word and the remedy. If
 * line->request is not -1 on return, the words after this request have not been parsed, and no
 * defaults are filled in. */
int cr_command_line_parse(const struct cr_command *command, char **argv, cr_getenv_fn lookup,
                          void *lookup_arg, struct cr_command_line *line, struct cr_error *err);

/* Returns the index of the option with exactly this name (with dashes), or -1. */
int cr_option_find(const struct cr_command *command, const char *name);

/* Writes the name of the environment variable that sets the option's default, such as
 * "PET_LOG_DIR" for "log-dir", to `out` and returns `out`. */
#define CR_OPTION_LABEL_MAX 64
const char *cr_option_variable(const struct cr_command *command, int option,
                               char out[CR_OPTION_LABEL_MAX]);

/* Writes to `out` the place that the user must correct if the option's value is wrong: the name of
 * the variable, such as "PET_LOG_DIR", if the value came from the variable; otherwise the option,
 * such as "--log-dir". Returns `out`. */
const char *cr_option_label(const struct cr_command *command, const struct cr_command_line *line,
                            int option, char out[CR_OPTION_LABEL_MAX]);

#endif
