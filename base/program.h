/* The texts and the main of a program whose command line is described by tables.
 *
 * A program either has commands ("crun-store get HOST:PORT KEY") or is one command itself
 * ("crun"). From its tables come --help, its manual page and its bash completion. For a program
 * with commands, cr_program_main() also is the whole main: it finds the command, reads its
 * command line, runs it, and reports what cannot be understood.
 *
 * Only cr_program_main() and the cr_complain functions print. */
#ifndef CR_PROGRAM_H
#define CR_PROGRAM_H

#include "base/buffer.h"
#include "base/command_line.h"

#define CR_EXIT_FAILED 1 /* what was asked for could not be done; the reason is on stderr */
#define CR_EXIT_USAGE  2 /* the command line cannot be understood; nothing was done */

struct cr_program {
    const char *name;                          /* "crun-store" */
    const char *summary;                       /* what follows the name on the manual page */
    const struct cr_command *const *commands;  /* NULL-terminated; a program that is one command has
                                                  only this one, of the program's own name */
    const char *help_tail;                     /* whole lines behind the list of commands */
    const char *man_description, *man_tail;    /* roff: text after .SH DESCRIPTION; last sections */
};

/* ---- texts; each appends to `b` and returns 0 or -ENOMEM ---- */

/* --help of one command. */
int cr_command_write_help(const struct cr_command *command, struct cr_buffer *b);
/* --help of a program with commands. */
int cr_program_write_help(const struct cr_program *program, struct cr_buffer *b);
/* The manual page, in roff. */
int cr_program_write_man(const struct cr_program *program, struct cr_buffer *b);
/* The completion script for bash. */
int cr_program_write_completion(const struct cr_program *program, struct cr_buffer *b);

/* ---- the main of a program with commands ---- */

/* Understands, besides the commands: --help, -h, help, --version, --print-completion bash, and
 * for the build --print-manual. Returns the exit status; it is CR_EXIT_FAILED if stdout could not
 * be written. */
int cr_program_main(const struct cr_program *program, int argc, char **argv);

/* Prints "NAME: TEXT" on stderr as one line: what is not printable in the text is escaped. `name`
 * is a command's or a program's, as in "crun-store get". */
void cr_complain(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints "NAME: TEXT; try 'NAME --help'" in the same way and returns CR_EXIT_USAGE. */
int cr_complain_usage(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
