/* Writes --help, the manual page and the bash completion from the tables of a program: the
 * functions cr_…_write_… of base/program/program.h. */
#include "base/program/program.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LEFT_COLUMN_MAX ((size_t) 34)
#define LINE_WIDTH      ((size_t) 100)

/* The destination of a text. If an append fails, `rc` keeps the error and all later appends do
 * nothing, so a caller needs to check `rc` only once, after the last append. */
struct out {
    struct cr_buffer *buffer;
    int rc;
};

__attribute__((format(printf, 2, 3))) static void put(struct out *out, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (out->rc == 0) out->rc = cr_buffer_vprintf(out->buffer, fmt, ap);
    va_end(ap);
}

/* ---- reading the tables ---- */

/* Returns the word that selects a command: "get" for the command named "crun-store get". */
static const char *command_word(const struct cr_command *command) {
    const char *blank = strrchr(command->name, ' ');
    return blank == NULL ? command->name : blank + 1;
}

static bool has_commands(const struct cr_program *program) {
    return strcmp(program->commands[0]->name, program->name) != 0;
}

static bool has_text(const char *text) { return text != NULL && text[0] != '\0'; }

static bool has_visible_letters(const struct cr_command *command) {
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].letter != 0 && !command->options[i].is_hidden) return true;
    }
    return false;
}

static size_t group_count(const struct cr_command *command) {
    return command->groups == NULL ? 1 : command->group_count;
}

static bool is_in_group(const struct cr_option *option, size_t group) {
    return option->group == group && !option->is_hidden;
}

static bool group_is_empty(const struct cr_command *command, size_t group) {
    for (size_t i = 0; i < command->option_count; i++) {
        if (is_in_group(&command->options[i], group)) return false;
    }
    return true;
}

/* ---- --help of a command ---- */

/* Formats the left column of an option, such as "  -r, --redirects MASK", and returns its length.
 * `letters` is true if any option of the command has a letter; options without a letter are
 * indented in that case, so that all long names stand in one column. */
static size_t format_left(char *to, size_t cap, const struct cr_option *option, bool letters) {
    char letter[8] = "";
    if (letters) (void) snprintf(letter, sizeof(letter), "    ");
    if (option->letter != 0) (void) snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    int n = snprintf(to, cap, "  %s--%s%s%s", letter, option->name,
                     option->value_name == NULL ? "" : " ",
                     option->value_name == NULL ? "" : option->value_name);
    return (size_t) n < cap ? (size_t) n : cap - 1;
}

/* Returns the column at which the explanations of options begin: two columns after the longest
 * option, but at most LEFT_COLUMN_MAX. If an option does not fit in front of this column, its
 * explanation begins on the next line. */
static size_t left_column(const struct cr_command *command, bool letters) {
    size_t column = 0;
    for (size_t i = 0; i < command->option_count; i++) {
        char left[80];
        if (command->options[i].is_hidden) continue;
        size_t n = format_left(left, sizeof(left), &command->options[i], letters) + 2;
        if (n > column) column = n;
    }
    return column < LEFT_COLUMN_MAX ? column : LEFT_COLUMN_MAX;
}

/* Appends the words from `text` to `end`, wrapped at LINE_WIDTH columns. In front of each line but
 * the first, it appends `indent` blanks. The caller has already appended the first `indent`
 * columns. */
static void put_wrapped(struct out *out, const char *text, const char *end, size_t indent) {
    size_t column = indent;
    while (text < end) {
        size_t n = strcspn(text, " \n");
        if (column > indent && column + 1 + n > LINE_WIDTH) {
            put(out, "\n%*s", (int) indent, "");
            column = indent;
        }
        bool is_first = column == indent;
        put(out, "%s%.*s", is_first ? "" : " ", (int) n, text);
        column += n + (is_first ? 0 : 1);
        text += n + strspn(text + n, " ");
    }
}

/* Appends the lines of `text`. A line that is too long is wrapped, and each of its parts has the
 * indentation of the line. */
static void put_paragraphs(struct out *out, const char *text) {
    while (*text != '\0') {
        size_t len = strcspn(text, "\n"), blanks = strspn(text, " ");
        put(out, "%*s", (int) blanks, "");
        put_wrapped(out, text + blanks, text + len, blanks);
        put(out, "\n");
        text += len + (text[len] == '\n' ? 1 : 0);
    }
}

static void put_help_option(struct out *out, const struct cr_option *option, bool letters,
                            size_t column) {
    char left[80], right[512];
    size_t n = format_left(left, sizeof(left), option, letters);
    bool shown = has_text(option->default_value), fits = n + 1 <= column;
    (void) snprintf(right, sizeof(right), "%s%s%s%s", option->help, shown ? " (default: " : "",
                    shown ? option->default_value : "", shown ? ")" : "");
    put(out, "%s%s%*s", left, fits ? "" : "\n", (int) (fits ? column - n : column), "");
    put_wrapped(out, right, right + strlen(right), column);
    put(out, "\n");
}

static void put_help_group(struct out *out, const struct cr_command *command, size_t group) {
    bool letters = has_visible_letters(command);
    size_t column = left_column(command, letters);
    if (group_is_empty(command, group)) return;
    put(out, "\n");
    if (command->groups != NULL) put(out, "%s:\n", command->groups[group]);
    for (size_t i = 0; i < command->option_count; i++) {
        const struct cr_option *option = &command->options[i];
        if (is_in_group(option, group)) put_help_option(out, option, letters, column);
    }
}

/* Appends the usage of a command without a newline: "crun-store get [options] HOST:PORT KEY". */
static void put_synopsis(struct out *out, const struct cr_command *command) {
    put(out, "%s [options]%s%s", command->name, has_text(command->arguments) ? " " : "",
        command->arguments);
}

int cr_command_write_help(const struct cr_command *command, struct cr_buffer *b) {
    struct out out = {.buffer = b};
    put(&out, "Usage: ");
    put_synopsis(&out, command);
    put(&out, "\n");
    put_paragraphs(&out, command->description);
    for (size_t g = 0; g < group_count(command); g++) put_help_group(&out, command, g);
    if (command->help_tail == NULL) return out.rc;
    put(&out, "\n");
    put_paragraphs(&out, command->help_tail);
    return out.rc;
}

/* ---- --help of a program with commands ---- */

int cr_program_write_help(const struct cr_program *program, struct cr_buffer *b) {
    struct out out = {.buffer = b};
    put(&out, "Usage: %s COMMAND [options] [arguments...]\n\nCommands:\n", program->name);
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        put(&out, "  %-8s %s\n", command_word(*c), (*c)->summary);
    }
    put(&out, "\n'%s COMMAND --help' shows the options of a command.\n", program->name);
    if (program->help_tail != NULL) put(&out, "%s\n", program->help_tail);
    return out.rc;
}

/* ---- the manual page ---- */

/* Appends `text` with a backslash before each '-', which roff would print as a hyphen, and before
 * each '\', which roff would take as the start of a command. */
static void put_roff(struct out *out, const char *text) {
    for (; *text != '\0'; text++) {
        put(out, "%s%c", *text == '-' || *text == '\\' ? "\\" : "", *text);
    }
}

static void put_man_option(struct out *out, const struct cr_command *command, int i) {
    const struct cr_option *option = &command->options[i];
    char variable[CR_OPTION_LABEL_MAX];
    put(out, ".TP\n.B ");
    if (option->letter != 0) put(out, "\\-%c, ", option->letter);
    if (option->word != NULL) {
        put_roff(out, option->word);
        put(out, ", ");
    }
    put(out, "\\-\\-");
    put_roff(out, option->name);
    if (option->value_name != NULL) put(out, " \\fI%s\\fR", option->value_name);
    put(out, "\n%c", toupper((unsigned char) option->help[0]));
    put_roff(out, option->help + 1);
    put(out, ".\n");
    if (has_text(option->default_value)) {
        put(out, "Default: ");
        put_roff(out, option->default_value);
        put(out, ".\n");
    }
    if (option->has_variable) put(out, "(%s)\n", cr_option_variable(command, i, variable));
}

static void put_man_options(struct out *out, const struct cr_command *command) {
    for (size_t g = 0; g < group_count(command); g++) {
        if (command->groups != NULL) put(out, ".SS \"%s\"\n", command->groups[g]);
        for (int i = 0; i < (int) command->option_count; i++) {
            if (is_in_group(&command->options[i], g)) put_man_option(out, command, i);
        }
    }
}

static void put_man_synopsis(struct out *out, const struct cr_program *program) {
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        put(out, "%s.B ", c == program->commands ? "" : ".br\n");
        put_roff(out, (*c)->name);
        put(out, "\n[\\fIoptions\\fR]%s%s\n", has_text((*c)->arguments) ? " " : "",
            (*c)->arguments);
    }
}

/* Appends a command's section of the manual page: usage, description, options, and the last text
 * of its --help. */
static void put_man_command(struct out *out, const struct cr_command *command) {
    put(out, ".SS \"");
    put_synopsis(out, command);
    put(out, "\"\n");
    put_roff(out, command->description);
    put(out, "\n");
    put_man_options(out, command);
    if (command->help_tail == NULL) return;
    put(out, ".PP\n");
    put_roff(out, command->help_tail);
    put(out, "\n");
}

static void put_man_head(struct out *out, const struct cr_program *program) {
    put(out, ".\\\" Written by `make docs` from the tables of %s; do not edit.\n.TH ",
        program->name);
    for (const char *at = program->name; *at != '\0'; at++) {
        put(out, "%c", toupper((unsigned char) *at));
    }
    put(out, " 1 \"\" \"crun " CRUN_VERSION "\" \"User Commands\"\n.SH NAME\n");
    put_roff(out, program->name);
    put(out, " \\- ");
    put_roff(out, program->summary);
    put(out, "\n.SH SYNOPSIS\n");
}

int cr_program_write_man(const struct cr_program *program, struct cr_buffer *b) {
    struct out out = {.buffer = b};
    put_man_head(&out, program);
    put_man_synopsis(&out, program);
    put(&out, ".SH DESCRIPTION\n%s", program->man_description);
    put(&out, has_commands(program) ? ".SH COMMANDS\n" : ".SH OPTIONS\n");
    if (!has_commands(program)) put_man_options(&out, program->commands[0]);
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        if (has_commands(program)) put_man_command(&out, *c);
    }
    put(&out, "%s", program->man_tail);
    return out.rc;
}

/* ---- bash completion ---- */

static const char completion_words[] =
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options\n"
    "    # \"--name=value\" comes as three words\n"
    "    [[ $cur == '=' ]] && cur=\n"
    "    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n";

/* Writes the program's name in the form that a bash function's name may have: "crun_store". */
static void function_name(const struct cr_program *program, char to[32]) {
    (void) snprintf(to, 32, "%s", program->name);
    for (char *at = to; *at != '\0'; at++) *at = *at == '-' ? '_' : *at;
}

/* Appends the branch of the bash `case` that completes the value of one option. `prefix` is the
 * command's word with a colon ("get:"), or "" in a program without commands. */
static void put_completion_value(struct out *out, const char *prefix,
                                 const struct cr_option *option) {
    put(out, "        %s--%s", prefix, option->name);
    if (option->letter != 0) put(out, "|%s-%c", prefix, option->letter);
    if (option->word != NULL) put(out, "|%s%s", prefix, option->word);
    put(out, ") COMPREPLY=($(compgen ");
    if (option->words != NULL) put(out, "-W \"%s\"", option->words);
    else put(out, strcmp(option->value_name, "FOLDER") == 0 ? "-d" : "-f");
    put(out, " -- \"$cur\")); return ;;\n");
}

static void put_completion_values(struct out *out, const char *prefix,
                                  const struct cr_command *command) {
    for (size_t i = 0; i < command->option_count; i++) {
        const struct cr_option *option = &command->options[i];
        if (option->value_name != NULL && !option->is_hidden) {
            put_completion_value(out, prefix, option);
        }
    }
}

static void put_option_names(struct out *out, const struct cr_command *command) {
    const char *blank = "";
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].is_hidden) continue;
        put(out, "%s--%s", blank, command->options[i].name);
        blank = " ";
    }
}

/* Appends the completion for a program with commands: the first word is completed to a command,
 * the further words to the options and values of that command. */
static void put_completion_commands(struct out *out, const struct cr_program *program) {
    put(out, "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W \"");
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        put(out, "%s ", command_word(*c));
    }
    put(out, "--help --version\" -- \"$cur\"))\n        return\n    fi\n");
    put(out, "    case ${COMP_WORDS[1]}:${prev//_/-} in\n");
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        char prefix[32];
        (void) snprintf(prefix, sizeof(prefix), "%s:", command_word(*c));
        put_completion_values(out, prefix, *c);
    }
    put(out, "    esac\n    case ${COMP_WORDS[1]} in\n");
    for (const struct cr_command *const *c = program->commands; *c != NULL; c++) {
        put(out, "        %s) options=\"", command_word(*c));
        put_option_names(out, *c);
        put(out, "\" ;;\n");
    }
    put(out, "    esac\n");
}

static void put_completion_command(struct out *out, const struct cr_command *command) {
    put(out, "    case ${prev//_/-} in\n");
    put_completion_values(out, "", command);
    put(out, "    esac\n    options=\"");
    put_option_names(out, command);
    put(out, "\"\n");
}

int cr_program_write_completion(const struct cr_program *program, struct cr_buffer *b) {
    struct out out = {.buffer = b};
    char name[32];
    function_name(program, name);
    put(&out, "# bash completion for %s. Written by `make docs` from its tables; do not edit.\n",
        program->name);
    put(&out, "_%s() {\n%s", name, completion_words);
    if (has_commands(program)) put_completion_commands(&out, program);
    else put_completion_command(&out, program->commands[0]);
    put(&out, "    if [[ $cur == -* ]]; then\n"
              "        COMPREPLY=($(compgen -W \"$options\" -- \"${cur//_/-}\"))\n"
              "    else\n"
              "        COMPREPLY=($(compgen -f -- \"$cur\")%s)\n"
              "    fi\n"
              "}\n",
        has_commands(program) ? "" : " $(compgen -c -- \"$cur\")");
    put(&out, "complete -o bashdefault -o default -F _%s %s\n", name, program->name);
    return out.rc;
}
