/* Watches for a hang: takes samples on a timer, and runs an inspection when the node is quiet. */
#include "agent/hang.h"

#include "agent/inspection.h"
#include "agent/watchdog/watchdog.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

struct hang {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct quiet quiet;
    const struct hang_calls *calls;
    void *arg;
    int64_t *cpu_ms;          /* [workers] */
    struct inspect_row *rows; /* [workers] */
    struct inspection *inspection; /* NULL if none was started in this round */
    int open_parts;                /* number of parts not closed yet; valid after hang_close() */
    void (*on_close)(void *arg);
};

/* ---- the inspection ---- */

/* Runs when an inspection is over. Reports the hang only if workers still run that can hang, and if
 * none has written output since the inspection began. */
static void on_rows(void *arg, struct inspect_row *rows, size_t count) {
    struct hang *h = arg;
    uint64_t output;
    if (!h->calls->sample(h->arg, h->cpu_ms, &output)) return;
    if (output != h->quiet.output) {
        quiet_begin(&h->quiet, cr_monotonic_ms());
        return;
    }
    h->calls->on_hang(h->arg, h->quiet.limit_ms, rows, count);
}

static void inspect(struct hang *h) {
    struct cr_error err = {0};
    if (h->inspection != NULL) inspection_close(h->inspection, NULL, NULL);
    h->inspection = NULL;
    size_t count = h->calls->list(h->arg, h->rows);
    if (inspection_start(h->loop, h->rows, count, on_rows, h, &h->inspection, &err) < 0) {
        cr_warn("%s", err.text);
        h->calls->on_hang(h->arg, h->quiet.limit_ms, h->rows, count);
    }
}

/* ---- samples ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct hang *h) {
    int64_t left_ms = quiet_next_ms(&h->quiet) - cr_monotonic_ms();
    uv_update_time(h->loop);
    (void) uv_timer_start(&h->timer, on_timer, left_ms > 0 ? (uint64_t) left_ms : 0, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct hang *h = timer->data;
    uint64_t output;
    if (!h->calls->sample(h->arg, h->cpu_ms, &output)) return; /* hang_begin() goes on */
    if (quiet_sample(&h->quiet, cr_monotonic_ms(), h->cpu_ms, output)) {
        inspect(h);
        quiet_begin(&h->quiet, cr_monotonic_ms());
    }
    arm(h);
}

void hang_begin(struct hang *h) {
    quiet_begin(&h->quiet, cr_monotonic_ms());
    arm(h);
}

/* ---- opening and closing ---- */

static void hang_free(struct hang *h) {
    quiet_done(&h->quiet);
    free(h->cpu_ms);
    free(h->rows);
    free(h);
}

int hang_open(uv_loop_t *loop, int64_t limit_ms, bool only_output, size_t workers,
              const struct hang_calls *calls, void *arg, struct hang **out,
              struct cr_error *err) {
    struct hang *h = calloc(1, sizeof(*h));
    int rc = h == NULL ? -ENOMEM : quiet_init(&h->quiet, limit_ms, only_output, workers);
    if (rc == 0) {
        h->cpu_ms = calloc(workers, sizeof(*h->cpu_ms));
        h->rows = calloc(workers, sizeof(*h->rows));
        if (h->cpu_ms == NULL || h->rows == NULL) rc = -ENOMEM;
    }
    if (rc < 0) {
        if (h != NULL) hang_free(h);
        return cr_fail(err, rc, "cannot watch for a hang: no memory left");
    }
    h->loop = loop;
    h->calls = calls;
    h->arg = arg;
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
    h->open_parts = 1 + (h->inspection != NULL);
    if (h->inspection != NULL) inspection_close(h->inspection, on_part_closed, h);
    uv_close((uv_handle_t *) &h->timer, on_timer_closed);
}
