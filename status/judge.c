/* Finds the rank that holds a job up: status_judge() of snapshot.h. Pure: no I/O. */
#include "status/snapshot.h"

#include <stdio.h>
#include <string.h>

#define STALE_MIN_S 5.0 /* see pace.stale_s */
#define STALE_STEPS 5.0 /* see pace.stale_s */

/* Facts about all ranks of a job, which judge_rank() needs to judge one of them. */
struct pace {
    json_int_t first; /* the largest number of steps that a rank has made; -1 if no rank counts
                       * steps */
    double stale_s;   /* A rank is stale if its last step is more than this many s ago. The limit is
                       * the duration of STALE_STEPS average steps of the slowest rank, but at least
                       * STALE_MIN_S. */
    size_t counting, stale;
};

static json_int_t step_of(const json_t *rank) {
    const json_t *step = json_object_get(rank, "step");
    return json_is_integer(step) ? json_integer_value(step) : -1;
}

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name)); /* 0 if it is no number */
}

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static bool is_stale(const json_t *rank, const struct pace *pace) {
    return step_of(rank) >= 0 && number_of(rank, "step_age_s") > pace->stale_s;
}

static struct pace pace_of(const json_t *ranks) {
    struct pace pace = {.first = -1, .stale_s = STALE_MIN_S};
    size_t i;
    json_t *rank;
    json_array_foreach(ranks, i, rank) {
        double rate = number_of(rank, "steps_per_s");
        if (step_of(rank) < 0) continue;
        pace.counting++;
        if (step_of(rank) > pace.first) pace.first = step_of(rank);
        if (rate > 0 && STALE_STEPS / rate > pace.stale_s) pace.stale_s = STALE_STEPS / rate;
    }
    json_array_foreach(ranks, i, rank) pace.stale += is_stale(rank, &pace) ? 1 : 0;
    return pace;
}

/* Returns 0 if the rank does not hold the job up. Otherwise returns a positive number, which is
 * larger the worse the rank's state is, and writes the reason into `why`. */
static double judge_rank(const json_t *rank, const struct pace *pace, char why[160]) {
    const char *kernel = text_of(rank, "kernel_state"), *where = text_of(rank, "wait_channel");
    json_int_t behind = step_of(rank) >= 0 ? pace->first - step_of(rank) : 0;
    double age_s = number_of(rank, "step_age_s");
    if (strcmp(text_of(rank, "state"), "hung") == 0) {
        (void) snprintf(why, 160, "hung: no step for %.0f s", age_s);
        return 4e9;
    }
    if (strcmp(kernel, "D") == 0) {
        (void) snprintf(why, 160, "in a system call that cannot be interrupted (%.60s)", where);
        return 3e9;
    }
    if (strcmp(kernel, "T") == 0 || strcmp(kernel, "t") == 0) {
        (void) snprintf(why, 160, "stopped by a signal or a debugger");
        return 2e9;
    }
    bool is_late = behind >= 2 || (behind == 1 && is_stale(rank, pace));
    if (!is_late) return 0;
    (void) snprintf(why, 160, "%lld step%s behind, no step for %.1f s", (long long) behind,
                    behind == 1 ? "" : "s", age_s);
    return 1e6 * (double) behind + (age_s < 1e5 ? age_s : 1e5);
}

static json_t *find_odd(const json_t *ranks, const struct pace *pace) {
    json_t *rank, *odd = NULL;
    char why[160], worst_why[160] = "";
    double worst = 0;
    size_t i;
    json_array_foreach(ranks, i, rank) {
        double badness = judge_rank(rank, pace, why);
        if (badness <= worst) continue;
        worst = badness;
        odd = rank;
        memcpy(worst_why, why, sizeof(why));
    }
    if (odd != NULL) {
        return json_pack("{s:O, s:s}", "rank", json_object_get(odd, "rank"), "why", worst_why);
    }
    if (pace->counting == 0 || pace->stale < pace->counting) return json_null();
    (void) snprintf(why, sizeof(why), "no rank has made a step for %.0f s", pace->stale_s);
    return json_pack("{s:n, s:s}", "rank", "why", why);
}

void status_judge(json_t *job) {
    json_t *ranks = json_object_get(job, "ranks"), *rank, *slowest = NULL;
    struct pace pace = pace_of(ranks);
    size_t i;
    json_array_foreach(ranks, i, rank) {
        if (step_of(rank) < 0) continue;
        (void) json_object_set_new(rank, "behind", json_integer(pace.first - step_of(rank)));
        bool is_slower = slowest == NULL || step_of(rank) < step_of(slowest) ||
                         (step_of(rank) == step_of(slowest) &&
                          number_of(rank, "step_age_s") > number_of(slowest, "step_age_s"));
        if (is_slower) slowest = rank;
    }
    if (slowest == NULL) (void) json_object_set_new(job, "slowest", json_null());
    else (void) json_object_set(job, "slowest", json_object_get(slowest, "rank"));
    (void) json_object_set_new(job, "odd", find_odd(ranks, &pace));
}
