/* Parsing by the table. What argparse does for torchrun, less its rough edges: the dashed and the
 * underscored spelling of one option never make a prefix ambiguous, and an unknown option is
 * answered with the nearest known one. */
#include "launcher/options.h"

#include "base/cleanup.h"
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 48

enum option_group {
#define X(id, title) GROUP_##id,
    OPTION_GROUPS(X)
#undef X
};

const struct option_spec option_specs[OPTION_COUNT] = {
#define X(id, name, letter, kind, value, def, pet, group, words, help)                             \
    [OPTION_##id] = {name, letter, OPTION_##kind, value, def, pet, GROUP_##group, words, help},
    OPTIONS(X)
#undef X
};

/* ---- names ---- */

void option_variable(enum option_id id, char out[OPTION_LABEL_MAX]) {
    size_t n = (size_t) snprintf(out, OPTION_LABEL_MAX, "PET_%s", option_specs[id].name);
    for (size_t i = 4; i < n; i++) {
        out[i] = out[i] == '-' ? '_' : (char) toupper((unsigned char) out[i]);
    }
}

const char *option_label(const struct options *o, enum option_id id, char out[OPTION_LABEL_MAX]) {
    if (o->source[id] == OPTION_FROM_VARIABLE) {
        option_variable(id, out);
    } else {
        (void) snprintf(out, OPTION_LABEL_MAX, "--%s", option_specs[id].name);
    }
    return out;
}

/* Copies the name in "--name[=value]", underscores as dashes. -EINVAL if no option is that long. */
static int read_name(const char *arg, char out[NAME_MAX_BYTES]) {
    size_t n = strcspn(arg + 2, "=");
    if (n >= NAME_MAX_BYTES) return -EINVAL;
    for (size_t i = 0; i < n; i++) out[i] = arg[2 + i] == '_' ? '-' : arg[2 + i];
    out[n] = '\0';
    return 0;
}

/* Edit distance, for names shorter than NAME_MAX_BYTES. */
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

static int fail_unknown(const char *arg, const char *name, struct cr_error *err) {
    const char *nearest = NULL;
    size_t best = NAME_MAX_BYTES;
    for (int i = 0; name != NULL && i < OPTION_COUNT; i++) {
        size_t d = distance(name, option_specs[i].name);
        if (d < best) {
            best = d;
            nearest = option_specs[i].name;
        }
    }
    if (nearest != NULL && best <= 1 + strlen(name) / 4) {
        return cr_fail(err, -EINVAL, "unrecognized arguments: '%.200s'; did you mean '--%s'?", arg,
                       nearest);
    }
    return cr_fail(err, -EINVAL,
                   "unrecognized arguments: '%.200s'; 'crun --help' lists the options, and what is "
                   "meant for the program stands after it",
                   arg);
}

static int fail_ambiguous(const char *arg, const char *name, struct cr_error *err) {
    char list[512] = "";
    size_t n = 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strncmp(option_specs[i].name, name, strlen(name)) != 0) continue;
        int wrote = snprintf(list + n, sizeof(list) - n, "%s--%s", n == 0 ? "" : ", ",
                             option_specs[i].name);
        if (wrote < 0 || (size_t) wrote >= sizeof(list) - n) break;
        n += (size_t) wrote;
    }
    return cr_fail(err, -EINVAL, "ambiguous option '%.60s': it could be %s", arg, list);
}

/* The option that "--name[=value]" means: the exact name, else the only one that begins so. */
static int find_long(const char *arg, int *out, struct cr_error *err) {
    char name[NAME_MAX_BYTES];
    if (read_name(arg, name) < 0) return fail_unknown(arg, NULL, err);
    int found = -1, matches = 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strcmp(option_specs[i].name, name) == 0) return *out = i, 0;
        if (strncmp(option_specs[i].name, name, strlen(name)) == 0) {
            found = i;
            matches++;
        }
    }
    if (matches > 1) return fail_ambiguous(arg, name, err);
    if (matches == 0) return fail_unknown(arg, name, err);
    *out = found;
    return 0;
}

static int find_letter(char letter) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (option_specs[i].letter == letter) return i;
    }
    return -1;
}

/* ---- the command line ---- */

/* argparse's rule for what cannot be a value: it begins with a dash, is not a lone dash, no
 * negative number, and holds no blank. */
static int looks_like_option(const char *arg) {
    double number;
    if (arg[0] != '-' || arg[1] == '\0' || strchr(arg, ' ') != NULL) return 0;
    return cr_parse_double(arg, &number) < 0;
}

/* Notes an option. `inlined` is the text after '=' (or after the letter), NULL if none; otherwise
 * the value is the next argument, and *argv moves on to it. */
static int take(struct options *o, int id, const char *inlined, char *const **argv,
                struct cr_error *err) {
    const struct option_spec *spec = &option_specs[id];
    o->source[id] = OPTION_FROM_LINE;
    if (spec->kind == OPTION_FLAG) {
        if (inlined != NULL) {
            return cr_fail(err, -EINVAL, "--%s takes no value, but '%.200s' was given", spec->name,
                           inlined);
        }
        o->value[id] = "1";
        return 0;
    }
    if (inlined == NULL) {
        char *const *next = *argv + 1;
        if (*next == NULL || looks_like_option(*next)) {
            return cr_fail(err, -EINVAL, "--%s needs a value: --%s %s", spec->name, spec->name,
                           spec->value_name);
        }
        *argv = next;
        inlined = *next;
    }
    o->value[id] = inlined;
    return 0;
}

static int take_long(struct options *o, char *const **argv, struct cr_error *err) {
    const char *arg = **argv, *equals = strchr(arg, '=');
    int id = 0;
    int rc = find_long(arg, &id, err);
    return rc < 0 ? rc : take(o, id, equals == NULL ? NULL : equals + 1, argv, err);
}

/* "-m", "-r3", "-r=3", "-mr3". */
static int take_letters(struct options *o, char *const **argv, struct cr_error *err) {
    const char *arg = **argv;
    for (const char *at = arg + 1; *at != '\0'; at++) {
        int id = find_letter(*at);
        if (id < 0) return fail_unknown(arg, NULL, err);
        const char *rest = at[1] == '\0' ? NULL : at + 1;
        if (option_specs[id].kind == OPTION_FLAG) {
            int rc = take(o, id, rest != NULL && *rest == '=' ? rest + 1 : NULL, argv, err);
            if (rc < 0) return rc;
            continue;
        }
        return take(o, id, rest != NULL && *rest == '=' ? rest + 1 : rest, argv, err);
    }
    return 0;
}

/* Is a text asked for instead of a job? */
static int read_wanted(struct options *o, struct cr_error *err) {
    const char *shell = o->value[OPTION_PRINT_COMPLETION];
    if (o->value[OPTION_HELP] != NULL)
        o->wanted = OPTIONS_HELP;
    else if (o->value[OPTION_VERSION] != NULL)
        o->wanted = OPTIONS_VERSION;
    else if (shell != NULL)
        o->wanted = OPTIONS_COMPLETION;
    if (o->wanted != OPTIONS_COMPLETION || strcmp(shell, "bash") == 0) return 0;
    return cr_fail(err, -EINVAL, "--print-completion: there is none for '%.200s'; give bash",
                   shell);
}

static int read_line(struct options *o, char *const *argv, struct cr_error *err) {
    int swallowed = 0;
    for (argv++; *argv != NULL; argv++) {
        const char *arg = *argv;
        if (strcmp(arg, "--") == 0) {
            swallowed = 1;
            argv++;
            break;
        }
        if (arg[0] != '-' || arg[1] == '\0') break;
        int rc = arg[1] == '-' ? take_long(o, &argv, err) : take_letters(o, &argv, err);
        if (rc < 0) return rc;
        rc = read_wanted(o, err);
        if (rc < 0 || o->wanted != OPTIONS_RUN) return rc;
    }
    if (*argv == NULL) {
        return cr_fail(err, -EINVAL,
                       "no program given; usage: crun [options] PROGRAM [arguments] "
                       "(try 'crun --help')");
    }
    o->program = *argv++;
    if (!swallowed && *argv != NULL && strcmp(*argv, "--") == 0) argv++;
    o->args = argv;
    return 0;
}

/* ---- the environment and the defaults ---- */

static int read_variable(struct options *o, enum option_id id, options_getenv_fn lookup,
                         void *lookup_arg, struct cr_error *err) {
    char name[OPTION_LABEL_MAX];
    option_variable(id, name);
    const char *text = lookup(lookup_arg, name);
    if (text == NULL) return 0;
    int64_t number = 0;
    if (option_specs[id].kind == OPTION_FLAG &&
        cr_parse_i64(text, INT64_MIN, INT64_MAX, &number) < 0) {
        return cr_fail(err, -EINVAL, "%s='%.200s' is not an integer; write 1 for yes, 0 for no",
                       name, text);
    }
    if (o->source[id] == OPTION_FROM_LINE) return 0;
    o->source[id] = OPTION_FROM_VARIABLE;
    o->value[id] = option_specs[id].kind == OPTION_VALUE ? text : number != 0 ? "1" : NULL;
    return 0;
}

static int fill_in(struct options *o, options_getenv_fn lookup, void *lookup_arg,
                   struct cr_error *err) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        enum option_id id = (enum option_id) i;
        if (option_specs[i].has_variable) {
            int rc = read_variable(o, id, lookup, lookup_arg, err);
            if (rc < 0) return rc;
        }
        if (o->source[i] == OPTION_FROM_DEFAULT) o->value[i] = option_specs[i].default_value;
    }
    return 0;
}

int options_parse(char *const *argv, options_getenv_fn lookup, void *lookup_arg,
                  struct options *out, struct cr_error *err) {
    struct options o = {.wanted = OPTIONS_RUN};
    int rc = read_line(&o, argv, err);
    if (rc < 0) return rc;
    if (o.wanted == OPTIONS_RUN) {
        rc = fill_in(&o, lookup, lookup_arg, err);
        if (rc < 0) return rc;
    }
    *out = o;
    return 0;
}
