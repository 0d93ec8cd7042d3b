/* Implements agent/trainjob/status_internal.h. */
#include "agent/trainjob/status_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AUTHORITY_MAX (CR_HOST_MAX + 16)

static const char scheme[] = "https://";

static bool is_visible(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
    }
    return len > 0;
}

int trainjob_parse_url(const char *url, struct cr_endpoint *to, const char **path,
                       struct cr_error *err) {
    char authority[AUTHORITY_MAX];
    if (strncmp(url, scheme, strlen(scheme)) != 0 || !is_visible(url, strlen(url))) {
        return cr_fail(err, -EINVAL, "'%.200s' is not an https URL", url);
    }
    const char *begin = url + strlen(scheme);
    size_t len = strcspn(begin, "/");
    if (len == 0 || len >= sizeof(authority) || begin[len] != '/') {
        return cr_fail(err, -EINVAL, "'%.200s' has no host or no path", url);
    }
    (void) snprintf(authority, sizeof(authority), "%.*s", (int) len, begin);
    *path = begin + len;
    return cr_endpoint_parse(authority, 443, to, err);
}

/* ---- the body ---- */

/* Appends the two estimates. They need the total number of steps, and steps that count from the
 * training's begin. Workers count their steps from the begin of the round, and only they know at
 * which step a checkpoint lets them go on. So after the first round there are no estimates. */
static int append_estimates(const struct trainjob_progress *p, uint32_t total,
                            struct cr_buffer *out) {
    if (p->is_done) {
        return cr_buffer_printf(out, "\"progressPercentage\": 100, "
                                     "\"estimatedRemainingSeconds\": 0, ");
    }
    if (total == 0 || p->round > 0 || p->steps == 0) return 0;
    uint64_t made = p->steps < total ? p->steps : total;
    uint64_t percent = made * 100 / total;
    int rc = cr_buffer_printf(out, "\"progressPercentage\": %u, ",
                              (unsigned) (percent < 99 ? percent : 99));
    double left_s = p->steps_per_s > 0 ? ceil((double) (total - made) / p->steps_per_s) : -1;
    if (rc < 0 || left_s < 0 || left_s > INT32_MAX) return rc;
    return cr_buffer_printf(out, "\"estimatedRemainingSeconds\": %.0f, ", left_s);
}

static int append_metrics(const struct trainjob_progress *p, struct cr_buffer *out) {
    int rc = cr_buffer_printf(out,
                              "\"metrics\": [{\"name\": \"crun_round\", \"value\": \"%llu\"}, "
                              "{\"name\": \"crun_restarts\", \"value\": \"%u\"}, "
                              "{\"name\": \"crun_workers\", \"value\": \"%u\"}",
                              (unsigned long long) p->round, p->restarts, p->workers);
    if (rc == 0 && p->steps > 0) {
        rc = cr_buffer_printf(out, ", {\"name\": \"crun_steps\", \"value\": \"%llu\"}",
                              (unsigned long long) p->steps);
    }
    if (rc == 0 && p->steps > 0 && p->steps_per_s > 0) {
        rc = cr_buffer_printf(out, ", {\"name\": \"crun_steps_per_second\", \"value\": \"%.4g\"}",
                              p->steps_per_s);
    }
    return rc < 0 ? rc : cr_buffer_printf(out, "], ");
}

int trainjob_write_body(const struct trainjob_progress *p, uint32_t total_steps, int64_t wall_ns,
                        struct cr_buffer *out) {
    char when[CR_UTC_TEXT_MAX];
    cr_utc_text(when, wall_ns, 3);
    int rc = cr_buffer_printf(out, "{\"trainerStatus\": {");
    if (rc == 0) rc = append_estimates(p, total_steps, out);
    if (rc == 0) rc = append_metrics(p, out);
    return rc < 0 ? rc : cr_buffer_printf(out, "\"lastUpdatedTime\": \"%s\"}}", when);
}
