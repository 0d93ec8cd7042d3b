/* Shows in the live line of the terminal what crun waits for, and for how many seconds. */
#include "agent/output/log_relay_internal.h"
#include "base/log/log.h"
#include "base/time/clock.h"

#include <stdlib.h>
#include <string.h>

/* Writes the seconds and the text to the live line. The seconds come first, because a narrow
 * terminal cuts the end of the line. */
static void draw(struct log_relay *r) {
    struct cr_buffer line = {0}, clean = {0};
    int64_t now_ms = cr_monotonic_ms();
    int64_t left_ms = r->wait_until_ms > now_ms ? r->wait_until_ms - now_ms : 0;
    int rc = cr_buffer_printf(&line, "crun: waiting (%.0f s so far",
                              (double) (now_ms - r->wait_since_ms) / 1000);
    if (rc == 0 && r->wait_until_ms >= 0) {
        rc = cr_buffer_printf(&line, ", %.0f s left", (double) left_ms / 1000);
    }
    if (rc == 0) rc = cr_buffer_printf(&line, ") %s", r->wait_text.data);
    if (rc == 0) rc = live_line_clean(&clean, line.data, line.len);
    if (rc == 0) live_line_set(&r->live, &r->wait_text, clean.data, clean.len, now_ms);
    cr_buffer_done(&line);
    cr_buffer_done(&clean);
}

static void on_second(uv_timer_t *timer) { draw(timer->data); }

static void end_wait(struct log_relay *r) {
    (void) uv_timer_stop(&r->wait_timer);
    live_line_clear(&r->live, &r->wait_text);
    cr_buffer_clear(&r->wait_text);
}

/* Shows in the live line what crun waits for. The log calls this function when a wait begins or
 * changes, and with text == NULL when it ends. Returns false if memory is short, so that the wait
 * is not shown; otherwise true. */
static bool show(void *arg, const char *text, int64_t waited_ms, int64_t left_ms) {
    struct log_relay *r = arg;
    int64_t now_ms = cr_monotonic_ms();
    if (text == NULL) {
        end_wait(r);
        return true;
    }
    cr_buffer_clear(&r->wait_text);
    if (cr_buffer_printf(&r->wait_text, "%s", text) < 0) return false;
    r->wait_since_ms = now_ms - waited_ms;
    r->wait_until_ms = left_ms >= 0 ? now_ms + left_ms : -1;
    draw(r);
    (void) uv_timer_start(&r->wait_timer, on_second, 1000, 1000);
    return true;
}

void waiting_line_open(struct log_relay *r) {
    if (r->live.console != NULL && r->carries_log) cr_log_show_waiting(show, r);
}

void waiting_line_close(struct log_relay *r) {
    if (r->live.console == NULL || !r->carries_log) return;
    cr_log_show_waiting(NULL, NULL);
    end_wait(r);
}
