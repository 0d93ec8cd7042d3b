/* Parses command lines; base/program/command_line.h describes the grammar. The parser follows
 * Python's argparse with two differences. "--log-dir" and "--log_dir" are one option here, so a
 * prefix that fits both is not ambiguous. The error about an unknown option proposes the known
 * option with the most similar name. */
#include "base/program/command_line.h"

#include "base/text/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 48 /* bytes of the longest option name, NUL included */

/* The state of one call of cr_command_line_parse(). */
struct parser {
    const struct cr_command *command;
    struct cr_command_line *line;
    char **next; /* points into argv at the next word to parse; *next is NULL at the end */
    struct cr_error *err;
};

/* ---- finding options and commands by name ---- */

const char *cr_option_variable(const struct cr_command *command, int option,
                               char out[CR_OPTION_LABEL_MAX]) {
    const char *prefix = command->variable_prefix;
    (void) snprintf(out, CR_OPTION_LABEL_MAX, "%s%s", prefix, command->options[option].name);
    for (char *at = out + strlen(prefix); *at != '\0'; at++) {
        *at = *at == '-' ? '_' : (char) toupper((unsigned char) *at);
    }
    return out;
}

const char *cr_option_label(const struct cr_command *command, const struct cr_command_line *line,
                            int option, char out[CR_OPTION_LABEL_MAX]) {
    if (line->source[option] == CR_FROM_VARIABLE) return cr_option_variable(command, option, out);
    (void) snprintf(out, CR_OPTION_LABEL_MAX, "--%s", command->options[option].name);
    return out;
}

int cr_option_find(const struct cr_command *command, const char *name) {
    for (size_t i = 0; i < command->option_count; i++) {
        if (strcmp(command->options[i].name, name) == 0) return (int) i;
    }
    return -1;
}

/* Copies the name from `word`, "--name[=value]", to `out` and replaces its underscores by dashes.
 * Returns 0, or -EINVAL if the name is longer than any option's name can be. */
static int read_name(const char *word, char out[NAME_MAX_BYTES]) {
    size_t n = strcspn(word + 2, "=");
    if (n >= NAME_MAX_BYTES) return -EINVAL;
    for (size_t i = 0; i < n; i++) out[i] = word[2 + i] == '_' ? '-' : word[2 + i];
    out[n] = '\0';
    return 0;
}

/* Returns the edit distance (Levenshtein) of two names, both shorter than NAME_MAX_BYTES. */
static size_t distance(const char *a, const char *b) {
    size_t row[NAME_MAX_BYTES], b_len = strlen(b);
    for (size_t j = 0; j <= b_len; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_len];
}

/* Returns the option name with the smallest edit distance to `name`, for a proposal in an error
 * text. Returns NULL if all names differ too much. */
static const char *similar_name(const struct cr_command *command, const char *name) {
    const char *nearest = NULL;
    size_t best = 2 + strlen(name) / 4; /* a name at this distance or more is not proposed */
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].is_hidden) continue;
        size_t d = distance(name, command->options[i].name);
        if (d >= best) continue;
        best = d;
        nearest = command->options[i].name;
    }
    return nearest;
}

/* Sets the error "`word` is an unknown option" and returns -EINVAL. If the name of a known option
 * is similar to `name`, the text proposes that option; if `name` is NULL, it proposes none. */
static int fail_unknown(const struct parser *p, const char *word, const char *name) {
    const char *what = p->command->unknown_option, *advice = p->command->unknown_advice;
    const char *similar = name == NULL ? NULL : similar_name(p->command, name);
    if (what == NULL) what = "unknown option";
    if (similar != NULL) {
        return cr_fail(p->err, -EINVAL, "%s '%.200s'; did you mean '--%s'?", what, word, similar);
    }
    return cr_fail(p->err, -EINVAL, "%s '%.200s'%s%s", what, word, advice == NULL ? "" : "; ",
                   advice == NULL ? "" : advice);
}

static bool matches_prefix(const struct cr_option *option, const char *name) {
    if (option->is_hidden || option->needs_whole_name) return false;
    return strncmp(option->name, name, strlen(name)) == 0;
}

static int fail_ambiguous(const struct parser *p, const char *word, const char *name,
                          bool gives_way) {
    char list[512] = "";
    size_t n = 0;
    for (size_t i = 0; i < p->command->option_count; i++) {
        const struct cr_option *option = &p->command->options[i];
        if (option->gives_way != gives_way || !matches_prefix(option, name)) continue;
        int wrote =
            snprintf(list + n, sizeof(list) - n, "%s--%s", n == 0 ? "" : ", ", option->name);
        if (wrote < 0 || (size_t) wrote >= sizeof(list) - n) break;
        n += (size_t) wrote;
    }
    return cr_fail(p->err, -EINVAL, "ambiguous option '%.60s': it could be %s", word, list);
}

/* Counts the options whose name begins with `name` and whose flag gives_way equals `gives_way`.
 * Returns their number, and stores the index of the last one in *found. */
static int count_matches(const struct cr_command *command, const char *name, bool gives_way,
                         int *found) {
    int matches = 0;
    for (size_t i = 0; i < command->option_count; i++) {
        const struct cr_option *option = &command->options[i];
        if (option->gives_way != gives_way || !matches_prefix(option, name)) continue;
        *found = (int) i;
        matches++;
    }
    return matches;
}

/* Finds the option for the word "--name[=value]": the option with exactly this name; if there is
 * none, the only option whose name begins with `name`. Options with the flag gives_way are only
 * considered if no other option fits. Returns the option's index; or -EINVAL, and sets the
 * error. */
static int find_long(const struct parser *p, const char *word) {
    char name[NAME_MAX_BYTES];
    if (read_name(word, name) < 0) return fail_unknown(p, word, NULL);
    int found = cr_option_find(p->command, name);
    if (found >= 0) return found;
    int matches = count_matches(p->command, name, false, &found);
    bool gives_way = matches == 0;
    if (gives_way) matches = count_matches(p->command, name, true, &found);
    if (matches > 1) return fail_ambiguous(p, word, name, gives_way);
    return matches == 1 ? found : fail_unknown(p, word, name);
}

static int find_letter(const struct cr_command *command, char letter) {
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].letter == letter) return (int) i;
    }
    return -1;
}

/* ---- reading one option ---- */

/* Returns whether argparse would read this word as an option. Such a word cannot be the value of
 * the option in front of it. A lone "-", a negative number and a word with a blank can be
 * values. */
static bool looks_like_option(const char *word) {
    double number;
    if (word[0] != '-' || word[1] == '\0' || strchr(word, ' ') != NULL) return false;
    return cr_parse_double(word, &number) < 0;
}

static int take_repeated(struct parser *p, int i, const char *value) {
    struct cr_command_line *line = p->line;
    if (line->repeated_count == line->repeated_max) {
        return cr_fail(p->err, -E2BIG, "--%s is given too often: options that may be given several "
                       "times can have %zu values together", p->command->options[i].name,
                       line->repeated_max);
    }
    if (line->repeated_of != NULL) line->repeated_of[line->repeated_count] = i;
    line->repeated[line->repeated_count++] = value;
    return 0;
}

/* Stores option number i with its value. `joined` is the value in the word of the option, after '='
 * or after the letter. If `joined` is NULL and the option takes a value, the next word is the
 * value. Returns 0; or -EINVAL, and sets the error. */
static int take_option(struct parser *p, int i, const char *joined) {
    const struct cr_option *option = &p->command->options[i];
    p->line->source[i] = CR_FROM_LINE;
    if (option->is_request) p->line->request = i;
    if (option->value_name == NULL) {
        p->line->value[i] = "1";
        if (joined == NULL) return 0;
        return cr_fail(p->err, -EINVAL, "--%s takes no value, but '%.200s' was given", option->name,
                       joined);
    }
    if (joined == NULL) {
        if (*p->next == NULL || looks_like_option(*p->next)) {
            return cr_fail(p->err, -EINVAL, "--%s needs a value: --%s %s", option->name,
                           option->name, option->value_name);
        }
        joined = *p->next++;
    }
    p->line->value[i] = joined;
    return option->repeats ? take_repeated(p, i, joined) : 0;
}

static int take_long(struct parser *p, const char *word) {
    const char *equals = strchr(word, '=');
    int i = find_long(p, word);
    return i < 0 ? i : take_option(p, i, equals == NULL ? NULL : equals + 1);
}

/* Parses a word such as "-np" or "-np=4" if an option has this word as its second form. Returns 1
 * if an option was parsed, 0 if no option has the word; or -EINVAL, and sets the error. */
static int take_word(struct parser *p, const char *word) {
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < p->command->option_count; i++) {
        const char *known = p->command->options[i].word;
        if (known == NULL || strlen(known) != n || strncmp(known, word, n) != 0) continue;
        int rc = take_option(p, (int) i, word[n] == '=' ? word + n + 1 : NULL);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

/* Parses a word of short options: "-m", "-r3", "-r=3", or "-mr3", in which the flag m is followed
 * by the option r with the value 3. Returns 0; or -EINVAL, and sets the error. */
static int take_letters(struct parser *p, const char *word) {
    int taken = take_word(p, word);
    if (taken != 0) return taken < 0 ? taken : 0;
    for (const char *at = word + 1; *at != '\0'; at++) {
        int i = find_letter(p->command, *at);
        if (i < 0) return fail_unknown(p, word, NULL);
        bool is_flag = p->command->options[i].value_name == NULL;
        const char *joined = at[1] == '=' ? at + 2 : at[1] == '\0' || is_flag ? NULL : at + 1;
        int rc = take_option(p, i, joined);
        if (rc < 0 || !is_flag) return rc;
    }
    return 0;
}

static bool is_option(const struct cr_command *command, const char *word) {
    if (word[0] != '-' || word[1] == '\0') return false;
    if (word[1] == '-' || command->has_short_options) return true;
    return word[2] == '\0' && find_letter(command, word[1]) >= 0;
}

/* ---- reading all words of the command line ---- */

/* Appends an argument to line->arguments. That array uses the first elements of argv: the words in
 * them have been parsed already, so they can be overwritten. */
static void take_argument(struct parser *p, char *word) {
    p->line->arguments[p->line->argument_count++] = word;
}

static bool options_are_over(const struct parser *p) {
    int last = p->command->options_end_after;
    return p->line->dashes_seen || (last > 0 && p->line->argument_count >= last);
}

static int read_words(struct parser *p) {
    int rc = 0;
    while (*p->next != NULL && rc == 0 && p->line->request < 0) {
        char *word = *p->next++;
        if (options_are_over(p) || (strcmp(word, "--") != 0 && !is_option(p->command, word))) {
            take_argument(p, word);
        } else if (strcmp(word, "--") == 0) {
            p->line->dashes_seen = true;
        } else {
            rc = word[1] == '-' ? take_long(p, word) : take_letters(p, word);
        }
    }
    p->line->arguments[p->line->argument_count] = NULL;
    return rc;
}

/* Returns -EINVAL, and sets the error to a text that names the first missing argument and all
 * arguments of the command: "no KEY given; give HOST:PORT KEY". */
static int fail_missing(const struct parser *p) {
    const char *name = p->command->arguments;
    for (int i = 0; i < p->line->argument_count; i++) {
        name += strcspn(name, " ");
        name += strspn(name, " ");
    }
    return cr_fail(p->err, -EINVAL, "no %.*s given; give %s", (int) strcspn(name, " ."), name,
                   p->command->arguments);
}

static int check_arguments(const struct parser *p) {
    const struct cr_command_line *line = p->line;
    if (line->argument_count < p->command->min_arguments) return fail_missing(p);
    if (line->argument_count <= p->command->max_arguments) return 0;
    return cr_fail(p->err, -EINVAL, "unexpected argument '%.200s'",
                   line->arguments[p->command->max_arguments]);
}

/* ---- variables and defaults ---- */

/* Stores the value of option i from its environment variable, unless the command line has set the
 * option. If the option is a flag, its variable must be an integer (0 means off). As in torchrun, a
 * wrong variable of a flag is an error even if the command line has set the flag. */
static int read_variable(struct parser *p, int i, cr_getenv_fn lookup, void *lookup_arg) {
    const struct cr_option *option = &p->command->options[i];
    char name[CR_OPTION_LABEL_MAX];
    const char *text = lookup(lookup_arg, cr_option_variable(p->command, i, name));
    if (text == NULL && option->old_variable != NULL) {
        text = lookup(lookup_arg, option->old_variable);
    }
    if (text == NULL) return 0;
    if (option->empty_is_on && text[0] == '\0') text = "1";
    if (option->value_name == NULL) {
        int64_t number = 0;
        if (cr_parse_i64(text, INT64_MIN, INT64_MAX, &number) < 0) {
            return cr_fail(p->err, -EINVAL,
                           "%s='%.200s' is not an integer; write 1 for yes, 0 for no", name, text);
        }
        text = number != 0 ? "1" : NULL;
    }
    if (p->line->source[i] == CR_FROM_LINE) return 0;
    p->line->source[i] = CR_FROM_VARIABLE;
    p->line->value[i] = text;
    return 0;
}

static int fill_in_defaults(struct parser *p, cr_getenv_fn lookup, void *lookup_arg) {
    for (int i = 0; i < (int) p->command->option_count; i++) {
        const struct cr_option *option = &p->command->options[i];
        if (option->has_variable) {
            int rc = read_variable(p, i, lookup, lookup_arg);
            if (rc < 0) return rc;
        }
        if (p->line->source[i] == CR_FROM_DEFAULT) p->line->value[i] = option->default_value;
    }
    return 0;
}

int cr_command_line_parse(const struct cr_command *command, char **argv, cr_getenv_fn lookup,
                          void *lookup_arg, struct cr_command_line *line, struct cr_error *err) {
    struct parser p = {.command = command, .line = line, .next = argv + 1, .err = err};
    for (size_t i = 0; i < command->option_count; i++) {
        line->value[i] = NULL;
        line->source[i] = CR_FROM_DEFAULT;
    }
    line->request = -1;
    line->repeated_count = 0;
    line->dashes_seen = false;
    line->arguments = argv + 1;
    line->argument_count = 0;
    int rc = read_words(&p);
    if (rc < 0 || line->request >= 0) return rc;
    rc = check_arguments(&p);
    return rc < 0 ? rc : fill_in_defaults(&p, lookup, lookup_arg);
}
