/* Watches for suspensions of this machine without polling. The kernel cancels a timer of the wall
 * clock (TFD_TIMER_CANCEL_ON_SET) whenever that clock is set, and also when the machine resumes.
 * After each cancelling, a comparison of the boot-time clock with the monotonic clock, which stands
 * still during a suspension, shows whether the machine was suspended. */
#include "agent/suspension.h"

#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define FAR_S INT64_C(4000000000) /* time at which the timer would fire, in s since 1970; so late
                                   * that it never comes */

static int64_t boottime_ns(void) {
    struct timespec ts = {0};
    (void) clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t) ts.tv_sec * CR_NS_PER_S + ts.tv_nsec;
}

/* Runs when the kernel has cancelled the timer. Calls on_resumed if this machine was suspended.
 * read(2) fails with ECANCELED here, but it must be called: only after it can the kernel cancel the
 * timer again. */
static void on_canceled(uv_poll_t *poll, int status, int events) {
    struct suspension_watch *s = poll->data;
    uint64_t expirations;
    (void) status, (void) events;
    (void) !read(s->timer_fd, &expirations, sizeof(expirations));
    int64_t slept_ms = cr_suspension_passed_ms(&s->clocks, boottime_ns(), cr_monotonic_ns());
    if (slept_ms > 0) s->on_resumed(s->arg, slept_ms);
}

static int open_timer(void) {
    const struct itimerspec far = {.it_value.tv_sec = FAR_S};
    int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    int flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
    if (fd >= 0 && timerfd_settime(fd, flags, &far, NULL) < 0) cr_close_fd(&fd);
    return fd;
}

void suspension_watch_open(struct suspension_watch *s, uv_loop_t *loop,
                           void (*on_resumed)(void *arg, int64_t slept_ms), void *arg) {
    *s = (struct suspension_watch){.on_resumed = on_resumed, .arg = arg, .timer_fd = open_timer()};
    cr_suspension_init(&s->clocks, boottime_ns(), cr_monotonic_ns());
    if (s->timer_fd < 0) return;
    if (uv_poll_init(loop, &s->poll, s->timer_fd) < 0) {
        cr_close_fd(&s->timer_fd);
        return;
    }
    s->poll.data = s;
    (void) uv_poll_start(&s->poll, UV_READABLE, on_canceled);
}

static void on_closed(uv_handle_t *handle) {
    struct suspension_watch *s = handle->data;
    s->on_close(s->arg);
}

bool suspension_watch_close(struct suspension_watch *s, void (*on_close)(void *arg)) {
    if (s->timer_fd < 0) return false;
    s->on_close = on_close;
    uv_close((uv_handle_t *) &s->poll, on_closed);
    cr_close_fd(&s->timer_fd);
    return true;
}
