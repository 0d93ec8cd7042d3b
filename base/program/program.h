/* Generates a program's texts (--help, manual page, bash completion) from its tables of options,
 * and provides the main function of programs that have commands.
 *
 * A program either has commands ("crun-store get HOST:PORT KEY") or is one command itself
 * ("crun"). In a program with commands, main() only calls cr_program_main(), which finds the
 * command, parses its command line, executes it, and reports mistakes in the command line.
 *
 * Only cr_program_main() and the cr_complain functions print. */
#ifndef CR_PROGRAM_H
#define CR_PROGRAM_H

#include "base/buffer.h"
#include "base/program/command_line.h"

#define CR_EXIT_FAILED 1 /* the command failed; the reason is on stderr */
#define CR_EXIT_USAGE  2 /* the command line is wrong; nothing was done */

struct cr_program {
    const char *name;                          /* "crun-store" */
    const char *summary;                       /* phrase after the name in the NAME section of the
                                                * manual */
    const struct cr_command *const *commands;  /* NULL-terminated. A program that is one command has
                                                * one entry, whose name is the program's name. */
    const char *help_tail;                     /* last lines of --help; or NULL */
    const char *man_description;               /* text of the manual's DESCRIPTION, in roff */
    const char *man_tail;                      /* last sections of the manual, in roff */
};

/* ---- texts: each function appends one text to `b` and returns 0 or -ENOMEM ---- */

/* Appends the text of one command's --help. */
int cr_command_write_help(const struct cr_command *command, struct cr_buffer *b);
/* Appends the text of --help for a program with commands: the list of its commands. */
int cr_program_write_help(const struct cr_program *program, struct cr_buffer *b);
/* Appends the manual page in roff. */
int cr_program_write_man(const struct cr_program *program, struct cr_buffer *b);
/* Appends the completion script for bash. */
int cr_program_write_completion(const struct cr_program *program, struct cr_buffer *b);

/* ---- cr_program_main() and its error messages ---- */

/* Executes the command that argv[1] names and returns the exit status. Besides the commands,
 * argv[1] may be --help, -h, help, --version, --print-completion (followed by bash), or
 * --print-manual (which `make docs` uses). If writing to stdout fails, returns CR_EXIT_FAILED. */
int cr_program_main(const struct cr_program *program, int argc, char **argv);

/* Prints "NAME: TEXT" on stderr as one line; unprintable characters in the text are escaped. `name`
 * is the name of a program or of a command, such as "crun-store get". */
void cr_complain(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints "NAME: TEXT; try 'NAME --help'" on stderr as one line and returns CR_EXIT_USAGE. */
int cr_complain_usage(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
