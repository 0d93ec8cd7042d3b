/* Watches for a hang: takes samples on a timer, passes lines to the rules, tells the coordinator
 * for which reasons the workers are silent, and reports the hang. Implements hang.h. */
#include "agent/inspection/hang.h"

#include "agent/inspection/inspector_process.h"
#include "agent/watchdog/watchdog.h"
#include "base/buffer.h"
#include "base/log/log.h"
#include "base/time/clock.h"
#include "base/time/standstill.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE_SHIFT 1 /* number of the bit of rules.rules[0] in a mask of reasons */

/* For which reasons the workers of this node are silent (struct rendezvous_quiet). */
struct reasons {
    uint64_t silent, broken;
    int64_t quiet_ms;
    char what[512];
};

struct hang {
    uv_loop_t *loop;
    uv_timer_t timer;
    int64_t timer_ms; /* time at which the timer fires; INT64_MAX if it does not run */
    struct hang_options options;
    struct quiet quiet;     /* samples for --hang-timeout; used if options.limit_ms > 0 */
    bool is_quiet;          /* result of the last sample: true if the time limit is over */
    /* samples for on_quiet, a few in notice_ms; used if options.notice_ms > 0 */
    struct quiet notice;
    bool is_noticed;        /* result of the last sample of `notice` */
    struct log_rules rules;
    const struct hang_calls *calls;
    void *arg;
    bool is_begun;        /* true after the first hang_begin() */
    bool is_reporting;    /* true from the decision that the workers hang until its report */
    struct reasons reasons; /* the last reasons that check() has told the coordinator */
    struct hang_report report; /* its texts are `what` and `lines` below */
    char what[1024];
    struct cr_buffer lines;
    /* the value rule that a worker has broken, and that worker; NULL if none is broken */
    const struct log_rule *bad;
    uint32_t bad_worker;
    int64_t *cpu_ms;          /* [workers] */
    struct inspect_row *rows; /* [workers]; NULL if only bad values and notices can be reported */
    struct inspection *inspection; /* NULL if none was started in this round */
    struct inspection *ring;       /* inspection that requests torch's flight records; NULL if none
                                    * was started */
    int open_parts;                /* after hang_close(): number of parts that are not closed yet */
    void (*on_close)(void *arg);
};

static void arm(struct hang *h);

/* ---- for which reasons the workers are silent ---- */

uint64_t hang_reasons(const struct hang *h) {
    uint64_t rules = log_rules_mask(&h->rules) << RULE_SHIFT;
    return (h->options.limit_ms > 0 ? RENDEZVOUS_HANG_IDLE : 0) | rules;
}

static void copy_phrase(struct reasons *r, int64_t quiet_ms, struct cr_buffer *text) {
    r->quiet_ms = quiet_ms > 0 ? quiet_ms : 1;
    (void) snprintf(r->what, sizeof(r->what), "%s",
                    text->data != NULL ? text->data : "no memory left for the reason");
    cr_buffer_done(text);
}

static void describe_idle(const struct hang *h, struct reasons *r) {
    struct cr_buffer text = {0};
    (void) cr_buffer_printf(&text, "for %g s no output%s", (double) h->options.limit_ms / 1000,
                            h->options.only_output ? "" : ", and no use of the processor");
    copy_phrase(r, h->options.limit_ms, &text);
}

/* Describes the first rule in the mask `broken`. */
static void describe_rule(const struct hang *h, uint64_t broken, int64_t now_ms,
                          struct reasons *r) {
    struct cr_buffer text = {0};
    const struct log_rule *rule = &h->rules.rules[__builtin_ctzll(broken)];
    (void) log_rule_describe_silence(&h->rules, rule, h->calls->first_rank(h->arg), now_ms, &text);
    copy_phrase(r, now_ms - (rule->is_seen ? rule->seen_ms : h->rules.began_ms), &text);
}

static void find_reasons(const struct hang *h, struct reasons *r) {
    struct log_rules_look look;
    int64_t now_ms = cr_monotonic_ms();
    uint64_t idle = h->is_quiet ? RENDEZVOUS_HANG_IDLE : 0;
    log_rules_look(&h->rules, now_ms, &look);
    *r = (struct reasons){.silent = idle | look.silent << RULE_SHIFT,
                          .broken = idle | look.broken << RULE_SHIFT};
    if (look.broken != 0) describe_rule(h, look.broken, now_ms, r);
    else if (h->is_quiet) describe_idle(h, r);
}

/* Tells the coordinator for which reasons the workers of this node are silent. Returns false if
 * this node has to decide by itself. */
static bool tell(struct hang *h, const struct reasons *r) {
    const struct rendezvous_quiet quiet = {.silent = r->silent, .broken = r->broken,
                                           .quiet_ms = r->quiet_ms, .what = r->what};
    return h->calls->tell(h->arg, &quiet);
}

/* ---- the report ---- */

static void report(struct hang *h) {
    h->is_reporting = false;
    h->report.what = h->what;
    h->report.lines = h->lines.data != NULL ? h->lines.data : "";
    h->calls->on_hang(h->arg, &h->report);
}

/* Runs when torch's flight records were requested. Reports the hang, unless no worker runs any more
 * or the workers are being stopped already. */
static void on_rung(void *arg, struct inspect_row *rows, size_t count) {
    struct hang *h = arg;
    uint64_t output;
    (void) rows, (void) count;
    if (h->calls->sample(h->arg, h->cpu_ms, &output)) report(h);
}

/* Requests the flight records of stock torch; on_rung() then reports the hang. The records come
 * first, because the report ends the workers. */
static void ring(struct hang *h) {
    struct cr_error err = {0};
    if (h->ring != NULL) inspection_close(h->ring, NULL, NULL);
    h->ring = NULL;
    size_t count = h->calls->list(h->arg, h->rows);
    if (inspection_ring(h->loop, h->rows, count, on_rung, h, &h->ring, &err) < 0) {
        cr_warn("%s", err.text);
        report(h);
    }
}

/* Returns whether none of these reasons holds any more, because a worker has written output since
 * the last sample, or a line that matches the rule. If so, the time without activity begins
 * anew. */
static bool has_gone_on(struct hang *h, uint64_t reasons, uint64_t output) {
    struct log_rules_look look;
    log_rules_look(&h->rules, cr_monotonic_ms(), &look);
    bool is_idle = h->is_quiet && output == h->quiet.output;
    uint64_t now = (is_idle ? RENDEZVOUS_HANG_IDLE : 0) | look.silent << RULE_SHIFT;
    if ((now & reasons) != 0) return false;
    h->is_reporting = h->is_quiet = false;
    quiet_begin(&h->quiet, cr_monotonic_ms());
    arm(h);
    return true;
}

bool hang_decided(struct hang *h, const struct hang_report *decided) {
    struct reasons r;
    uint64_t output;
    if (h->is_reporting || !h->calls->sample(h->arg, h->cpu_ms, &output)) return false;
    if (has_gone_on(h, decided->reasons, output)) {
        find_reasons(h, &r);
        (void) tell(h, &r);
        return false;
    }
    h->is_reporting = true;
    h->report = *decided;
    (void) snprintf(h->what, sizeof(h->what), "%s", decided->what);
    cr_buffer_clear(&h->lines);
    (void) cr_buffer_printf(&h->lines, "%s", decided->lines);
    ring(h);
    return true;
}

/* ---- a decision of this node alone ---- */

/* Fills in h->report from the rows of this node's workers. Sorts the rows, so that the row of the
 * odd rank is the first one. */
static void describe(struct hang *h, struct inspect_row *rows, size_t count) {
    struct cr_buffer line = {0};
    int rc = inspect_write_line(&line, rows, count);
    cr_buffer_clear(&h->lines);
    if (rc == 0) rc = inspect_write_groups(&h->lines, rows, count, "  ");
    if (rc < 0) cr_buffer_clear(&h->lines);
    (void) cr_buffer_printf(&h->lines, "%s", ""); /* a NUL behind the text */
    h->report = (struct hang_report){
        .quiet_ms = h->reasons.quiet_ms, .pid = count > 0 ? rows[0].pid : 0,
        .rank = count > 0 ? (uint32_t) rows[0].rank : h->calls->first_rank(h->arg)};
    (void) snprintf(h->what, sizeof(h->what), "the workers on %s hang (%s): %s",
                    count > 0 ? rows[0].host : "this host", h->reasons.what,
                    rc == 0 && line.data != NULL ? line.data : "no memory left");
    cr_buffer_done(&line);
}

/* Runs when an inspection is over. Calls ring(), which leads to the report of the hang. There is no
 * report if no worker runs any more, if the workers are being stopped already, or if the workers
 * have gone on since the inspection began. */
static void on_rows(void *arg, struct inspect_row *rows, size_t count) {
    struct hang *h = arg;
    uint64_t output;
    if (!h->calls->sample(h->arg, h->cpu_ms, &output)) return;
    if (has_gone_on(h, h->reasons.broken, output)) return;
    describe(h, rows, count);
    ring(h);
}

static void inspect(struct hang *h) {
    struct cr_error err = {0};
    if (h->inspection != NULL) inspection_close(h->inspection, NULL, NULL);
    h->inspection = NULL;
    h->is_reporting = true;
    size_t count = h->calls->list(h->arg, h->rows);
    if (inspection_start(h->loop, h->rows, count, on_rows, h, &h->inspection, &err) < 0) {
        cr_warn("%s", err.text);
        describe(h, h->rows, count);
        report(h);
    }
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer);

static void set_timer(struct hang *h, int64_t when_ms) {
    int64_t now_ms = cr_monotonic_ms();
    if (when_ms < now_ms) when_ms = now_ms;
    if (when_ms >= h->timer_ms) return;
    h->timer_ms = when_ms;
    uv_update_time(h->loop);
    (void) uv_timer_start(&h->timer, on_timer, (uint64_t) (when_ms - now_ms), 0);
}

/* Makes the timer fire when the next sample is due or a rule may be broken. It may fire earlier: a
 * line that matches moves the time of its rule, but not the timer. */
static void arm(struct hang *h) {
    struct log_rules_look look;
    log_rules_look(&h->rules, cr_monotonic_ms(), &look);
    int64_t when_ms = look.next_ms;
    if (h->options.limit_ms > 0 && quiet_next_ms(&h->quiet) < when_ms) {
        when_ms = quiet_next_ms(&h->quiet);
    }
    if (h->options.notice_ms > 0 && quiet_next_ms(&h->notice) < when_ms) {
        when_ms = quiet_next_ms(&h->notice);
    }
    set_timer(h, when_ms);
}

/* If a sample of h->notice is due, takes it; calls on_quiet if it shows that no worker has been
 * active for notice_ms. */
static void check_notice(struct hang *h, int64_t now_ms, uint64_t output) {
    if (h->options.notice_ms == 0 || now_ms < quiet_next_ms(&h->notice)) return;
    bool is_quiet = quiet_sample(&h->notice, now_ms, h->cpu_ms, output);
    if (is_quiet && !h->is_noticed) h->calls->on_quiet(h->arg, h->options.notice_ms);
    h->is_noticed = is_quiet;
}

static void report_bad_value(struct hang *h) {
    struct cr_buffer text = {0};
    (void) log_rule_describe_value(h->bad, h->bad_worker, &text);
    h->bad = NULL;
    h->calls->on_bad_value(h->arg, h->bad_worker,
                           text.data != NULL ? text.data : "a value rule is broken");
    cr_buffer_done(&text);
}

/* Tells the coordinator for which reasons the workers are silent. If the coordinator does not
 * decide, and the time of a reason is over, this node decides that the workers hang. */
static void check(struct hang *h) {
    find_reasons(h, &h->reasons);
    if (!tell(h, &h->reasons) && h->reasons.broken != 0) inspect(h);
    else arm(h);
}

/* If the timer has fired late_ms too late because this process stood still, leaves out that time,
 * and returns true. The workers may have stood still, too; or they have written lines that this
 * process has not read yet. So nothing is decided now: the checks that were due come later. */
static bool has_stood_still(struct hang *h, int64_t late_ms) {
    int64_t gap_ms = cr_standstill_ms(late_ms);
    if (gap_ms == 0) return false;
    cr_debug("the time of hangs goes on after a gap of %lld ms", (long long) late_ms);
    quiet_leave_out(&h->quiet, gap_ms);
    quiet_leave_out(&h->notice, gap_ms);
    log_rules_leave_out(&h->rules, gap_ms);
    arm(h);
    return true;
}

static void on_timer(uv_timer_t *timer) {
    struct hang *h = timer->data;
    uint64_t output;
    int64_t now_ms = cr_monotonic_ms(), late_ms = now_ms - h->timer_ms;
    h->timer_ms = INT64_MAX;
    if (h->bad == NULL && !h->is_reporting && has_stood_still(h, late_ms)) return;
    /* without workers nothing is checked, until hang_begin() starts the timer again */
    if (!h->calls->sample(h->arg, h->cpu_ms, &output)) return;
    if (h->bad != NULL) {
        report_bad_value(h);
        return;
    }
    if (h->is_reporting) return;
    check_notice(h, now_ms, output);
    bool is_due = h->options.limit_ms > 0 && now_ms >= quiet_next_ms(&h->quiet);
    if (is_due) h->is_quiet = quiet_sample(&h->quiet, now_ms, h->cpu_ms, output);
    check(h);
}

void hang_begin(struct hang *h) {
    if (h->inspection != NULL) inspection_close(h->inspection, NULL, NULL);
    if (h->ring != NULL) inspection_close(h->ring, NULL, NULL);
    h->inspection = h->ring = NULL;
    h->is_reporting = h->is_quiet = false;
    h->is_begun = true;
    h->bad = NULL;
    h->is_noticed = false;
    quiet_begin(&h->quiet, cr_monotonic_ms());
    quiet_begin(&h->notice, cr_monotonic_ms());
    log_rules_begin(&h->rules, cr_monotonic_ms());
    /* the coordinator assumes these reasons before the first report of a round */
    h->reasons = (struct reasons){.silent = log_rules_mask(&h->rules) << RULE_SHIFT};
    h->timer_ms = INT64_MAX;
    arm(h);
}

/* ---- lines ---- */

bool hang_needs_lines(const struct hang *h) { return h->rules.count > 0; }

/* Call this when the state of a rule has changed. Tells the coordinator only if a mask has changed,
 * because a job may write many lines that match. */
static void note_change(struct hang *h) {
    struct log_rules_look look;
    log_rules_look(&h->rules, cr_monotonic_ms(), &look);
    uint64_t told = h->reasons.silent >> RULE_SHIFT;
    if (look.silent != told) set_timer(h, cr_monotonic_ms());
    else arm(h);
}

void hang_line(struct hang *h, uint32_t local_rank, const char *line, size_t len) {
    bool changes = false;
    if (!h->is_begun) return;
    const struct log_rule *bad =
        log_rules_line(&h->rules, local_rank, line, len, cr_monotonic_ms(), &changes);
    if (bad != NULL && h->bad == NULL) {
        h->bad = bad;
        h->bad_worker = local_rank;
        set_timer(h, cr_monotonic_ms());
    }
    if (changes && !h->is_reporting) note_change(h);
}

void hang_worker_ended(struct hang *h, uint32_t local_rank) {
    log_rules_worker_ended(&h->rules, local_rank);
}

/* ---- opening and closing ---- */

static void hang_free(struct hang *h) {
    quiet_done(&h->quiet);
    quiet_done(&h->notice);
    log_rules_done(&h->rules);
    cr_buffer_done(&h->lines);
    free(h->cpu_ms);
    free(h->rows);
    free(h);
}

static int add_rules(struct log_rules *rules, bool is_value, char *const *texts,
                     struct cr_error *err) {
    int rc = 0;
    for (; rc == 0 && texts != NULL && *texts != NULL; texts++) {
        rc = log_rules_add(rules, is_value, *texts, err);
    }
    return rc;
}

static int init(struct hang *h, const struct hang_options *options, struct cr_error *err) {
    h->options = *options;
    h->cpu_ms = calloc(options->workers, sizeof(*h->cpu_ms));
    bool may_hang = options->limit_ms > 0 || options->hang_rules != NULL;
    if (may_hang) h->rows = calloc(options->workers, sizeof(*h->rows));
    int rc = add_rules(&h->rules, false, options->hang_rules, err);
    if (rc == 0) rc = add_rules(&h->rules, true, options->value_rules, err);
    if (rc < 0) return rc;
    rc = log_rules_open(&h->rules, options->workers);
    if (rc == 0) {
        rc = quiet_init(&h->quiet, options->limit_ms, options->only_output, options->workers);
    }
    if (rc == 0) rc = quiet_init(&h->notice, options->notice_ms, false, options->workers);
    h->notice.interval_ms = options->notice_ms;
    if (rc == 0 && (h->cpu_ms == NULL || (may_hang && h->rows == NULL))) rc = -ENOMEM;
    return rc < 0 ? cr_fail(err, rc, "cannot watch for a hang: no memory left") : 0;
}

int hang_open(uv_loop_t *loop, const struct hang_options *options, const struct hang_calls *calls,
              void *arg, struct hang **out, struct cr_error *err) {
    struct hang *h = calloc(1, sizeof(*h));
    int rc = h == NULL ? cr_fail(err, -ENOMEM, "cannot watch for a hang: no memory left")
                       : init(h, options, err);
    if (rc < 0) {
        if (h != NULL) hang_free(h);
        return rc;
    }
    h->loop = loop;
    h->calls = calls;
    h->arg = arg;
    h->timer_ms = INT64_MAX;
    (void) uv_timer_init(loop, &h->timer);
    h->timer.data = h;
    *out = h;
    return 0;
}

static void on_part_closed(void *arg) {
    struct hang *h = arg;
    if (--h->open_parts > 0) return;
    void (*on_close)(void *) = h->on_close;
    void *close_arg = h->arg;
    hang_free(h);
    on_close(close_arg);
}

static void on_timer_closed(uv_handle_t *handle) { on_part_closed(handle->data); }

void hang_close(struct hang *h, void (*on_close)(void *arg)) {
    h->on_close = on_close;
    h->open_parts = 1 + (h->inspection != NULL) + (h->ring != NULL);
    if (h->inspection != NULL) inspection_close(h->inspection, on_part_closed, h);
    if (h->ring != NULL) inspection_close(h->ring, on_part_closed, h);
    uv_close((uv_handle_t *) &h->timer, on_timer_closed);
}
