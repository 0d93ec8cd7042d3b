/* The main function of programs with commands, and their error messages: implements
 * base/program/program.h. */
#include "base/program/program.h"

#include "base/assert.h"
#include "base/text/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OPTIONS_MAX ((size_t) 16) /* largest number of options that a command may have */

/* ---- errors ---- */

static void complain(const char *name, const char *tail, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static void complain(const char *name, const char *tail, const char *fmt, va_list ap) {
    char text[CR_ERROR_TEXT_MAX], line[4 * CR_ERROR_TEXT_MAX];
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    (void) cr_text_copy(line, sizeof(line), text, strlen(text));
    (void) fprintf(stderr, "%s: %s%s", name, line, tail);
}

void cr_complain(const char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    complain(name, "\n", fmt, ap);
    va_end(ap);
}

int cr_complain_usage(const char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    complain(name, "; try '", fmt, ap);
    va_end(ap);
    (void) fprintf(stderr, "%s --help'\n", name);
    return CR_EXIT_USAGE;
}

/* Flushes stdout and returns `status`. If some output could not be written, for instance because
 * the disk is full, prints the reason on stderr and returns CR_EXIT_FAILED instead. */
static int flush_stdout(const struct cr_program *program, int status) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return status;
    cr_complain(program->name, "cannot write to stdout: %s", strerror(errno));
    return CR_EXIT_FAILED;
}

/* ---- printing help, manual and completion ---- */

static int print_text(const char *name, int rc, struct cr_buffer *b) {
    if (rc < 0) {
        cr_complain(name, "out of memory");
    } else {
        (void) fwrite(b->data, 1, b->len, stdout);
    }
    cr_buffer_done(b);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

static int print_completion(const struct cr_program *program, const char *shell) {
    struct cr_buffer b = {0};
    if (shell == NULL || strcmp(shell, "bash") != 0) {
        return cr_complain_usage(program->name, "--print-completion needs a shell; give bash");
    }
    return print_text(program->name, cr_program_write_completion(program, &b), &b);
}

/* If `word` requests a text about the program, such as "--help", prints the text, stores the exit
 * status in *status and returns true. Otherwise returns false. `value` is the word after `word`, or
 * NULL if there is none. */
static bool print_program_text(const struct cr_program *program, const char *word,
                               const char *value, int *status) {
    struct cr_buffer b = {0};
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        *status = print_text(program->name, cr_program_write_help(program, &b), &b);
    } else if (strcmp(word, "--version") == 0) {
        (void) printf("%s " CRUN_VERSION "\n", program->name);
        *status = 0;
    } else if (strcmp(word, "--print-manual") == 0) {
        *status = print_text(program->name, cr_program_write_man(program, &b), &b);
    } else if (strcmp(word, "--print-completion") == 0) {
        *status = print_completion(program, value);
    } else {
        return false;
    }
    return true;
}

/* ---- commands ---- */

static const struct cr_command *find_command(const struct cr_program *program, const char *word) {
    size_t skip = strlen(program->name) + 1;
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        if (strcmp((*c)->name + skip, word) == 0) return *c;
    }
    return NULL;
}

static int run_command(const struct cr_command *command, char **argv) {
    const char *value[OPTIONS_MAX];
    enum cr_option_source source[OPTIONS_MAX];
    struct cr_command_line line = {.value = value, .source = source};
    struct cr_error err = {0};
    struct cr_buffer b = {0};
    CR_ASSERT(command->option_count <= OPTIONS_MAX);
    if (cr_command_line_parse(command, argv, NULL, NULL, &line, &err) < 0) {
        return cr_complain_usage(command->name, "%s", err.text);
    }
    if (line.request < 0) return command->run(command, &line);
    return print_text(command->name, cr_command_write_help(command, &b), &b);
}

int cr_program_main(const struct cr_program *program, int argc, char **argv) {
    int status;
    if (argc < 2) return cr_complain_usage(program->name, "no command given");
    if (!print_program_text(program, argv[1], argv[2], &status)) {
        const struct cr_command *command = find_command(program, argv[1]);
        if (command == NULL) {
            return cr_complain_usage(program->name, "unknown command '%.400s'", argv[1]);
        }
        status = run_command(command, argv + 1);
    }
    return flush_stdout(program, status);
}
