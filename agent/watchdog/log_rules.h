/* Rules on what the workers of a node write: which line must come, and within which time
 * (--hang-rule), and which values lines may show (--value-rule). A face of the room agent/, because
 * the launcher checks the rules of its command line with log_rules_check().
 *
 *   hang rule    FIRST:EVERY:REGEX   a line that matches REGEX must come within FIRST seconds from
 *                                    the start of the workers, and after each such line the next
 *                                    one within EVERY seconds; FIRST or EVERY may be empty
 *                end:REGEX           after a line that matches, no hang rule holds in this round
 *   value rule   TEST:COUNT:REGEX    COUNT matching lines of a worker in a row show a bad value.
 *                                    The value is the text of the first group of REGEX. It is bad
 *                                    if it is no finite number; or if TEST, one of >N >=N <N <=N,
 *                                    is true for it. The TEST "nan" is true for no number
 *
 * REGEX is an extended POSIX regular expression; it may match anywhere in the line. Several rules
 * may stand in one text, with a newline between two of them. Pure: no I/O and no clock. */
#ifndef AGENT_LOG_RULES_H
#define AGENT_LOG_RULES_H

#include "base/buffer.h"
#include "base/error.h"

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_RULES_MAX 32 /* largest number of rules of a job */
/* number of bytes at the beginning of a line in which a rule searches; longer lines are cut */
#define LOG_RULE_LINE_MAX ((size_t) 8192)

enum log_rule_kind {
    LOG_RULE_HANG, /* FIRST:EVERY:REGEX */
    LOG_RULE_END,  /* end:REGEX */
    LOG_RULE_VALUE /* TEST:COUNT:REGEX */
};

enum log_rule_test {
    LOG_RULE_NAN, LOG_RULE_MORE, LOG_RULE_MORE_EQUAL, LOG_RULE_LESS, LOG_RULE_LESS_EQUAL
};

/* What a value rule knows about one worker in this round. */
struct log_rule_values {
    uint32_t bad;  /* number of bad values in a row */
    char last[64]; /* the last bad value; cut if it is too long */
};

struct log_rule {
    enum log_rule_kind kind;
    char *text;    /* the rule as the user has written it */
    regex_t regex;
    /* a text that each matching line contains, because REGEX has it outside of groups and
     * repetitions; "" if there is none. Searching for it is much faster than REGEX. */
    char *literal;
    int64_t first_ms, every_ms; /* of a hang rule: FIRST and EVERY in ms; 0 if empty */
    enum log_rule_test test;    /* of a value rule */
    double limit;               /* of a value rule: the N of TEST */
    uint32_t count;             /* of a value rule: COUNT */

    /* ---- in this round: four fields of a hang rule, and `values` of a value rule ---- */
    bool is_seen;          /* true if a line has matched */
    bool is_released;      /* true if the worker of the last matching line has ended */
    int64_t seen_ms;       /* time of the last matching line (ms, monotonic clock) */
    uint32_t seen_by;      /* local rank of the worker that wrote it */
    struct log_rule_values *values; /* [workers] */
};

/* The rules of a job, as one node applies them to its workers. Zero-initialise the struct. */
struct log_rules {
    struct log_rule rules[LOG_RULES_MAX];
    size_t count;
    size_t workers;
    int64_t began_ms; /* start of the workers (ms, monotonic clock) */
    bool is_over;     /* true if a line has matched a rule "end:REGEX" in this round */
};

/* Adds the rules in `text`: value rules if is_value is true, else hang rules. Returns 0, -ENOMEM,
 * or -EINVAL; on error sets err to a text that names the rule, the error in it, and the remedy. */
int log_rules_add(struct log_rules *r, bool is_value, const char *text, struct cr_error *err);
/* Checks such a text as log_rules_add() does. */
int log_rules_check(bool is_value, const char *text, struct cr_error *err);
/* Prepares the rules for this number of workers. Call this once, after the last log_rules_add().
 * Returns 0 or -ENOMEM. */
int log_rules_open(struct log_rules *r, size_t workers);
void log_rules_done(struct log_rules *r);

/* Call this when the workers of a round have been started. Forgets the lines of the last round. */
void log_rules_begin(struct log_rules *r, int64_t now_ms);

/* Call this when `ms` milliseconds do not count, because nobody could read lines in them. */
void log_rules_leave_out(struct log_rules *r, int64_t ms);

/* Processes a line that the worker with this local rank has written. Returns the value rule that
 * the line breaks, or NULL. Sets *changes to true if log_rules_look() may have another result now;
 * otherwise leaves it as it is. */
const struct log_rule *log_rules_line(struct log_rules *r, uint32_t worker, const char *line,
                                      size_t len, int64_t now_ms, bool *changes);
/* Call this when a worker has ended. Hang rules whose last line came from this worker hold no more:
 * nobody is left who would write the next line. */
void log_rules_worker_ended(struct log_rules *r, uint32_t worker);

/* Bit i of a mask belongs to rules[i]. */
struct log_rules_look {
    uint64_t silent;  /* hang rules for which no line of this node has come in time */
    /* rules in `silent` that are broken as far as this node knows, because FIRST or EVERY is over.
     * Before its first line, a rule without FIRST is silent, but not broken. */
    uint64_t broken;
    int64_t next_ms;  /* time at which a bit may become 1 (ms, monotonic clock); INT64_MAX = none */
};
void log_rules_look(const struct log_rules *r, int64_t now_ms, struct log_rules_look *out);
/* Returns the mask of all hang rules. */
uint64_t log_rules_mask(const struct log_rules *r);

/* Append what is wrong, as one phrase: which rule was broken, what it demands, and what was seen
 * last. first_rank is the rank of the worker with local rank 0. Return 0 or -ENOMEM. */
int log_rule_describe_silence(const struct log_rules *r, const struct log_rule *rule,
                              uint32_t first_rank, int64_t now_ms, struct cr_buffer *out);
int log_rule_describe_value(const struct log_rule *rule, uint32_t worker, struct cr_buffer *out);

#endif
