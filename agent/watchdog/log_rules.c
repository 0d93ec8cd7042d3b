/* Rules on what the workers write: implements log_rules.h. The first part reads rules, the second
 * one applies them to lines. */
#include "agent/watchdog/log_rules.h"

#include "base/text/parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX (30.0 * 24 * 3600) /* longest FIRST or EVERY: 30 days */
#define COUNT_MAX   1000000
#define MARKS       "\\^$.[]()*+?{}|" /* the characters of an expression that are not literal */
#define QUANTIFIERS "*?{"             /* marks before which a character may be absent */
#define TEXT_SHOWN  "%.200s"

/* ---- reading rules ---- */

/* Returns the text up to the next ':' as a malloc'ed string and moves *at behind the ':'. Returns
 * NULL if memory is short, or if there is no ':', in which case errno is 0. */
static char *take_field(const char **at) {
    const char *colon = strchr(*at, ':');
    errno = 0;
    if (colon == NULL) return NULL;
    char *field = strndup(*at, (size_t) (colon - *at));
    if (field == NULL) errno = ENOMEM;
    else *at = colon + 1;
    return field;
}

/* Reads FIRST or EVERY. An empty text leaves *out at 0. Returns 0, or -EINVAL and sets err. */
static int read_seconds(const char *field, const char *name, int64_t *out, struct cr_error *err) {
    double seconds;
    if (field[0] == '\0') return 0;
    if (cr_parse_double(field, &seconds) < 0 || seconds <= 0 || seconds > SECONDS_MAX) {
        return cr_fail(err, -EINVAL, "%s is '%.60s', which is not a time; give seconds, more than "
                       "zero and at most 30 days, or nothing", name, field);
    }
    *out = (int64_t) (seconds * 1000);
    if (*out == 0) *out = 1;
    return 0;
}

static int read_test(const char *field, struct log_rule *rule, struct cr_error *err) {
    static const struct { const char *sign; enum log_rule_test test; } tests[] = {
        {">=", LOG_RULE_MORE_EQUAL}, {"<=", LOG_RULE_LESS_EQUAL},
        {">", LOG_RULE_MORE}, {"<", LOG_RULE_LESS}};
    rule->test = LOG_RULE_NAN;
    if (strcmp(field, "nan") == 0) return 0;
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        size_t n = strlen(tests[i].sign);
        if (strncmp(field, tests[i].sign, n) != 0) continue;
        rule->test = tests[i].test;
        if (cr_parse_double(field + n, &rule->limit) == 0) return 0;
        break;
    }
    return cr_fail(err, -EINVAL, "TEST is '%.60s'; give nan, or >N, >=N, <N or <=N with a number N",
                   field);
}

static int read_count(const char *field, struct log_rule *rule, struct cr_error *err) {
    int64_t count = 1;
    if (field[0] != '\0' && cr_parse_i64(field, 1, COUNT_MAX, &count) < 0) {
        return cr_fail(err, -EINVAL, "COUNT is '%.60s'; give after how many bad values in a row "
                       "the round has failed, 1 to %d, or nothing for 1", field, COUNT_MAX);
    }
    rule->count = (uint32_t) count;
    return 0;
}

/* Returns the last character of the list that begins with the '[' at `at`. Returns NULL if the list
 * has a '[' in it: a class such as [:alpha:] has a ']' of its own. */
static const char *end_of_list(const char *at) {
    at += at[1] == '^' ? 2 : 1;
    if (*at == ']') at++; /* a ']' in the first place is a member of the list */
    while (*at != '\0' && *at != ']' && *at != '[') at++;
    return *at == ']' ? at : NULL;
}

/* Returns the last character of what begins with the mark at `at`: of an escape, a list or an
 * interval. Returns `at` for another mark, and NULL if the end is not found. */
static const char *end_of_mark(const char *at) {
    if (*at == '\\' && at[1] != '\0') return at + 1;
    if (*at == '[') return end_of_list(at);
    return *at == '{' ? strchr(at, '}') : at;
}

/* Returns the longest text that each line which matches the expression contains; "" if none is
 * found. It takes only characters outside of groups and lists that no quantifier follows. An
 * expression with '|' has no such text. Returns NULL if memory is short. */
static char *find_literal(const char *regex) {
    const char *best = regex, *run = regex;
    size_t best_len = 0, depth = 0;
    if (strchr(regex, '|') != NULL) return strdup("");
    for (const char *at = regex; at != NULL; at = *at != '\0' ? at + 1 : NULL) {
        if (*at != '\0' && depth == 0 && strchr(MARKS, *at) == NULL) continue;
        size_t len = (size_t) (at - run);
        bool is_optional = *at != '\0' && strchr(QUANTIFIERS, *at) != NULL;
        if (len > 0 && is_optional) len--; /* the quantifier belongs to the last character */
        if (len > best_len) best = run, best_len = len;
        if (*at == '\0') break;
        if (*at == '(') depth++;
        if (*at == ')' && depth > 0) depth--;
        at = end_of_mark(at);
        if (at == NULL) break;
        run = at + 1;
    }
    return strndup(best, best_len);
}

static int compile(struct log_rule *rule, const char *regex, struct cr_error *err) {
    char why[120];
    if (regex[0] == '\0') {
        return cr_fail(err, -EINVAL, "REGEX is empty, so each line would match; give an extended "
                       "regular expression");
    }
    int code = regcomp(&rule->regex, regex, REG_EXTENDED);
    if (code != 0) {
        (void) regerror(code, &rule->regex, why, sizeof(why));
        return cr_fail(err, code == REG_ESPACE ? -ENOMEM : -EINVAL,
                       "REGEX '%.100s' is not an extended regular expression: %s", regex, why);
    }
    if (rule->kind == LOG_RULE_VALUE && rule->regex.re_nsub == 0) {
        regfree(&rule->regex);
        return cr_fail(err, -EINVAL, "REGEX '%.100s' has no group; put the value in parentheses, "
                       "as in 'loss=([^ ]+)'", regex);
    }
    rule->literal = find_literal(regex);
    if (rule->literal != NULL) return 0;
    regfree(&rule->regex);
    return cr_fail(err, -ENOMEM, "no memory left");
}

static int read_fields(struct log_rule *rule, const char *first, const char *second,
                       struct cr_error *err) {
    if (rule->kind == LOG_RULE_VALUE) {
        int rc = read_test(first, rule, err);
        return rc < 0 ? rc : read_count(second, rule, err);
    }
    int rc = read_seconds(first, "FIRST", &rule->first_ms, err);
    if (rc == 0) rc = read_seconds(second, "EVERY", &rule->every_ms, err);
    if (rc == 0 && rule->first_ms == 0 && rule->every_ms == 0) {
        rc = cr_fail(err, -EINVAL, "FIRST and EVERY are both empty; give at least one of them");
    }
    return rc;
}

/* Reads the two fields before REGEX and compiles REGEX. Returns 0, or a negative errno and sets
 * err. */
static int read_rule(struct log_rule *rule, bool is_value, struct cr_error *err) {
    const char *at = rule->text;
    rule->kind = is_value ? LOG_RULE_VALUE : LOG_RULE_HANG;
    if (!is_value && strncmp(at, "end:", 4) == 0) {
        rule->kind = LOG_RULE_END;
        return compile(rule, at + 4, err);
    }
    char *first = take_field(&at), *second = first != NULL ? take_field(&at) : NULL;
    int rc = second != NULL ? 0
             : errno == ENOMEM ? cr_fail(err, -ENOMEM, "no memory left")
             : cr_fail(err, -EINVAL, "it has fewer than two ':'; give %s",
                       is_value ? "TEST:COUNT:REGEX" : "FIRST:EVERY:REGEX or end:REGEX");
    if (rc == 0) rc = read_fields(rule, first, second, err);
    free(first);
    free(second);
    return rc < 0 ? rc : compile(rule, at, err);
}

static int add_rule(struct log_rules *r, bool is_value, const char *text, size_t len,
                    struct cr_error *err) {
    struct log_rule *rule = &r->rules[r->count];
    if (r->count == LOG_RULES_MAX) {
        return cr_fail(err, -EINVAL, "there are more than %d rules", LOG_RULES_MAX);
    }
    *rule = (struct log_rule){.text = strndup(text, len)};
    int rc = rule->text == NULL ? cr_fail(err, -ENOMEM, "no memory left")
                                : read_rule(rule, is_value, err);
    if (rc == 0) {
        r->count++;
        return 0;
    }
    if (rule->text != NULL) (void) cr_wrap(err, "the rule '" TEXT_SHOWN "'", rule->text);
    free(rule->text);
    return rc;
}

int log_rules_add(struct log_rules *r, bool is_value, const char *text, struct cr_error *err) {
    if (text[0] == '\0') return 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, "\n");
        int rc = len > 0 ? add_rule(r, is_value, at, len, err) : 0;
        if (rc < 0) return rc;
        at += len;
        if (*at == '\0') return 0;
    }
}

int log_rules_check(bool is_value, const char *text, struct cr_error *err) {
    struct log_rules *r = calloc(1, sizeof(*r));
    if (r == NULL) return cr_fail(err, -ENOMEM, "no memory left");
    int rc = log_rules_add(r, is_value, text, err);
    log_rules_done(r);
    free(r);
    return rc;
}

int log_rules_open(struct log_rules *r, size_t workers) {
    r->workers = workers;
    for (size_t i = 0; i < r->count; i++) {
        if (r->rules[i].kind != LOG_RULE_VALUE) continue;
        r->rules[i].values = calloc(workers, sizeof(*r->rules[i].values));
        if (r->rules[i].values == NULL) return -ENOMEM;
    }
    return 0;
}

void log_rules_done(struct log_rules *r) {
    for (size_t i = 0; i < r->count; i++) {
        regfree(&r->rules[i].regex);
        free(r->rules[i].literal);
        free(r->rules[i].text);
        free(r->rules[i].values);
    }
    *r = (struct log_rules){0};
}

/* ---- lines ---- */

void log_rules_begin(struct log_rules *r, int64_t now_ms) {
    r->began_ms = now_ms;
    r->is_over = false;
    for (size_t i = 0; i < r->count; i++) {
        struct log_rule *rule = &r->rules[i];
        rule->is_seen = rule->is_released = false;
        if (rule->values != NULL) memset(rule->values, 0, r->workers * sizeof(*rule->values));
    }
}

void log_rules_leave_out(struct log_rules *r, int64_t ms) {
    r->began_ms += ms;
    for (size_t i = 0; i < r->count; i++) r->rules[i].seen_ms += ms;
}

/* A line, and the string that regexec() needs; the string is made when a rule needs it. */
struct subject {
    const char *line;
    size_t len;
    bool is_made;
    char text[LOG_RULE_LINE_MAX + 1];
};

/* Returns whether the line matches. Stores the places of the whole match and of the first group in
 * `found`; they are places in s->text. */
static bool matches(const struct log_rule *rule, struct subject *s, regmatch_t found[2]) {
    size_t literal_len = strlen(rule->literal);
    bool has_literal = memmem(s->line, s->len, rule->literal, literal_len) != NULL;
    if (literal_len > 0 && !has_literal) return false;
    if (!s->is_made) {
        memcpy(s->text, s->line, s->len);
        s->text[s->len] = '\0';
        s->is_made = true;
    }
    return regexec(&rule->regex, s->text, 2, found, 0) == 0;
}

/* Returns whether the value is bad. What follows the number, such as a comma or a unit, is
 * ignored. */
static bool is_bad(const struct log_rule *rule, const char *value) {
    char *end;
    double number = strtod(value, &end);
    if (end == value || !isfinite(number)) return true;
    switch (rule->test) {
    case LOG_RULE_NAN: return false;
    case LOG_RULE_MORE: return number > rule->limit;
    case LOG_RULE_MORE_EQUAL: return number >= rule->limit;
    case LOG_RULE_LESS: return number < rule->limit;
    case LOG_RULE_LESS_EQUAL: return number <= rule->limit;
    }
    return false;
}

/* Returns whether the value that `group` shows in the line breaks the rule. */
static bool take_value(struct log_rule *rule, struct log_rule_values *of, const char *line,
                       const regmatch_t *group) {
    char value[sizeof(of->last)];
    if (group->rm_so < 0) return false; /* the group is optional, and the line lacks it */
    size_t len = (size_t) (group->rm_eo - group->rm_so);
    if (len >= sizeof(value)) len = sizeof(value) - 1;
    memcpy(value, line + group->rm_so, len);
    value[len] = '\0';
    if (!is_bad(rule, value)) {
        of->bad = 0;
        return false;
    }
    memcpy(of->last, value, len + 1);
    return ++of->bad == rule->count;
}

const struct log_rule *log_rules_line(struct log_rules *r, uint32_t worker, const char *line,
                                      size_t len, int64_t now_ms, bool *changes) {
    const struct log_rule *broken = NULL;
    regmatch_t found[2];
    struct subject s;
    s.line = line;
    s.len = len < LOG_RULE_LINE_MAX ? len : LOG_RULE_LINE_MAX;
    s.is_made = false; /* the other fields need no value: a text of 8 KiB is not cleared */
    for (size_t i = 0; i < r->count; i++) {
        struct log_rule *rule = &r->rules[i];
        if (!matches(rule, &s, found)) continue;
        if (rule->kind == LOG_RULE_VALUE) {
            bool breaks = take_value(rule, &rule->values[worker], s.text, &found[1]);
            if (breaks && broken == NULL) broken = rule;
            continue;
        }
        *changes = true;
        if (rule->kind == LOG_RULE_END) r->is_over = true;
        rule->is_seen = true;
        rule->is_released = false;
        rule->seen_ms = now_ms;
        rule->seen_by = worker;
    }
    return broken;
}

void log_rules_worker_ended(struct log_rules *r, uint32_t worker) {
    for (size_t i = 0; i < r->count; i++) {
        struct log_rule *rule = &r->rules[i];
        if (rule->is_seen && rule->seen_by == worker) rule->is_released = true;
    }
}

uint64_t log_rules_mask(const struct log_rules *r) {
    uint64_t mask = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->rules[i].kind == LOG_RULE_HANG) mask |= UINT64_C(1) << i;
    }
    return mask;
}

/* Returns the time (ms, monotonic clock) at which the rule is broken unless a line comes before;
 * INT64_MAX if the rule waits for no line. */
static int64_t deadline_of(const struct log_rules *r, const struct log_rule *rule) {
    if (rule->is_seen && (rule->is_released || rule->every_ms == 0)) return INT64_MAX;
    if (rule->is_seen) return rule->seen_ms + rule->every_ms;
    return rule->first_ms > 0 ? r->began_ms + rule->first_ms : INT64_MAX;
}

void log_rules_look(const struct log_rules *r, int64_t now_ms, struct log_rules_look *out) {
    *out = (struct log_rules_look){.next_ms = INT64_MAX};
    for (size_t i = 0; i < r->count && !r->is_over; i++) {
        const struct log_rule *rule = &r->rules[i];
        uint64_t bit = UINT64_C(1) << i;
        if (rule->kind != LOG_RULE_HANG) continue;
        int64_t until_ms = deadline_of(r, rule);
        if (now_ms >= until_ms) out->broken |= bit;
        else if (until_ms < out->next_ms) out->next_ms = until_ms;
        if (now_ms >= until_ms || !rule->is_seen) out->silent |= bit;
    }
}

/* ---- texts ---- */

int log_rule_describe_silence(const struct log_rules *r, const struct log_rule *rule,
                              uint32_t first_rank, int64_t now_ms, struct cr_buffer *out) {
    if (!rule->is_seen) {
        return cr_buffer_printf(out, "no line has matched --hang-rule '" TEXT_SHOWN "' since the "
                                "workers were started %g s ago; the first one was expected within "
                                "%g s", rule->text, (double) (now_ms - r->began_ms) / 1000,
                                (double) rule->first_ms / 1000);
    }
    return cr_buffer_printf(out, "no line has matched --hang-rule '" TEXT_SHOWN "' for %g s, and "
                            "one was expected every %g s; the last one came from rank %u",
                            rule->text,
                            (double) (now_ms - rule->seen_ms) / 1000,
                            (double) rule->every_ms / 1000, first_rank + rule->seen_by);
}

int log_rule_describe_value(const struct log_rule *rule, uint32_t worker, struct cr_buffer *out) {
    const struct log_rule_values *of = &rule->values[worker];
    return cr_buffer_printf(out, "%u line%s in a row showed a bad value, last '%s', for "
                            "--value-rule '" TEXT_SHOWN "'", of->bad, of->bad == 1 ? "" : "s",
                            of->last, rule->text);
}
