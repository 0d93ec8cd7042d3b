/* Runs health checks. For each one it starts this program once more with the argv[0] HEALTH_NAME
 * and waits for the end of that process. If the process fails, the last line of its output is the
 * reason why the node is not fit. */
#include "agent/health/health.h"

#include "base/buffer.h"
#include "base/log/log.h"
#include "base/text/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <uv.h>

#define AGAIN_MIN_MS  UINT64_C(2000)  /* from a failed check to the next one */
#define AGAIN_MAX_MS  UINT64_C(60000)
#define OUTPUT_KEPT   ((size_t) 4096) /* this number of bytes at the end of the output is
                                       * kept */

/* One run of the program. Each run is allocated separately, because several may exist at a time: if
 * the process of a run cannot be killed, that run stays until health_close(), and the next run
 * begins in the meantime. */
struct run {
    LIST_ENTRY(run) entry;
    struct health *health;
    uv_process_t process;
    uv_pipe_t output;
    int open_handles;
    bool is_wanted;  /* true while the result of this run is awaited */
    bool has_ended;  /* true if the process has ended */
    bool has_output; /* true until the end of the output is read */
    int64_t status;
    int signum;
    struct cr_buffer text;
    char chunk[4096];
};

struct health {
    uv_loop_t *loop;
    const struct health_options *options;
    uv_timer_t timer; /* ends the run at its time limit, or begins the next run */
    struct run *run;  /* the run whose result is awaited; NULL if none is */
    LIST_HEAD(, run) runs;
    bool is_timer_closed;
    int rounds;
    uint64_t again_ms;
    void (*on_result)(void *arg, const char *why);
    void *arg;
    void (*on_close)(void *arg);
    void *close_arg;
};

/* ---- the end of a run ---- */

/* Call this when the timer or a run was closed. If nothing is left to close, frees `h` and calls
 * on_close. */
static void free_if_closed(struct health *h) {
    if (!h->is_timer_closed || !LIST_EMPTY(&h->runs)) return;
    void (*on_close)(void *) = h->on_close;
    void *arg = h->close_arg;
    free(h);
    on_close(arg);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct run *r = handle->data;
    struct health *h = r->health;
    if (--r->open_handles > 0) return;
    LIST_REMOVE(r, entry);
    cr_buffer_done(&r->text);
    free(r);
    free_if_closed(h);
}

static void close_process(struct run *r) {
    uv_handle_t *handle = (uv_handle_t *) &r->process;
    if (!uv_is_closing(handle)) uv_close(handle, on_handle_closed);
}

/* Ends the run: kills its process, with all processes in its Unix process group. The handle of a
 * process that still lived is not closed here, but when the process has ended, so that it leaves no
 * zombie. */
static void drop(struct run *r) {
    bool lives = r->process.pid > 0 && !r->has_ended;
    r->is_wanted = false;
    r->health->run = NULL;
    /* it has no group of its own before its first instructions have run */
    if (lives && kill(-r->process.pid, SIGKILL) < 0) (void) kill(r->process.pid, SIGKILL);
    else close_process(r);
    uv_close((uv_handle_t *) &r->output, on_handle_closed);
}

/* Writes the last line of the output that is not blank to `out`, without control characters. */
static void write_last_line(const struct cr_buffer *text, char *out, size_t room) {
    struct cr_buffer line = {0};
    size_t end = text->len;
    while (end > 0 && strchr(" \t\r\n", text->data[end - 1]) != NULL) end--;
    size_t begin = end;
    while (begin > 0 && strchr("\r\n", text->data[begin - 1]) == NULL) begin--;
    out[0] = '\0';
    if (end > begin && cr_text_append(&line, text->data + begin, end - begin, "") == 0) {
        (void) snprintf(out, room, "%.*s", (int) line.len, line.data);
    }
    cr_buffer_done(&line);
}

static void write_why(const struct run *r, char why[HEALTH_WHY_MAX]) {
    const char *name = r->health->options->what;
    why[0] = '\0';
    if (r->status == 0 && r->signum == 0) return;
    write_last_line(&r->text, why, HEALTH_WHY_MAX);
    if (why[0] != '\0') return;
    if (r->signum != 0) {
        (void) snprintf(why, HEALTH_WHY_MAX, "the %s was ended by signal %d", name, r->signum);
    } else {
        (void) snprintf(why, HEALTH_WHY_MAX, "the %s has failed with exit code %d and "
                        "has written nothing", name, (int) r->status);
    }
}

static void on_again(uv_timer_t *timer);

static void report(struct health *h, const char *why) {
    drop(h->run);
    (void) uv_timer_stop(&h->timer);
    if (why[0] != '\0') {
        (void) uv_timer_start(&h->timer, on_again, h->again_ms, 0);
        h->again_ms = 2 * h->again_ms < AGAIN_MAX_MS ? 2 * h->again_ms : AGAIN_MAX_MS;
    }
    h->on_result(h->arg, why);
}

/* Reports the result of the run if its process has ended and all of its output is read. */
static void report_if_complete(struct run *r) {
    char why[HEALTH_WHY_MAX];
    if (!r->is_wanted || !r->has_ended || r->has_output) return;
    write_why(r, why);
    report(r->health, why);
}

/* Runs when the process has ended. Kills all other processes of its Unix process group. Otherwise
 * one of them could keep the pipe open, so that the end of the output never comes. Then reports the
 * result if it is complete. */
static void on_exit_of(uv_process_t *process, int64_t status, int signum) {
    struct run *r = process->data;
    (void) kill(-process->pid, SIGKILL);
    r->has_ended = true;
    r->status = status;
    r->signum = signum;
    if (r->is_wanted) report_if_complete(r);
    else close_process(r);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct run *r = handle->data;
    (void) suggested;
    *buf = uv_buf_init(r->chunk, sizeof(r->chunk));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct run *r = stream->data;
    if (n > 0 && cr_buffer_append(&r->text, buf->base, (size_t) n) == 0) {
        if (r->text.len > OUTPUT_KEPT) cr_buffer_consume(&r->text, r->text.len - OUTPUT_KEPT);
        return;
    }
    if (n == 0) return;
    (void) uv_read_stop(stream);
    r->has_output = false;
    report_if_complete(r);
}

static void on_late(uv_timer_t *timer) {
    struct health *h = timer->data;
    char why[HEALTH_WHY_MAX], line[160];
    write_last_line(&h->run->text, line, sizeof(line));
    (void) snprintf(why, sizeof(why), "the %s has not ended within %g s%s%s", h->options->what,
                    (double) h->options->timeout_ms / 1000,
                    line[0] != '\0' ? "; it wrote last: " : "", line);
    report(h, why);
}

/* ---- the start of a run ---- */

static int spawn(struct health *h, struct run *r) {
    const struct health_options *o = h->options;
    char name[] = HEALTH_NAME, mask[16], workers[16], rounds[16], none[] = "";
    char *folder = o->folder != NULL ? (char *) (uintptr_t) o->folder : none;
    char *addr = o->addr != NULL ? (char *) (uintptr_t) o->addr : none;
    char *segments = o->segments != NULL ? (char *) (uintptr_t) o->segments : none;
    char *service = o->service != NULL ? (char *) (uintptr_t) o->service : none;
    char *command = o->command != NULL ? (char *) (uintptr_t) o->command : none;
    char *argv[] = {name, mask, workers, rounds, folder, addr, segments,
                    service, command, NULL};
    (void) snprintf(mask, sizeof(mask), "%u", o->builtin);
    (void) snprintf(workers, sizeof(workers), "%u", o->workers);
    (void) snprintf(rounds, sizeof(rounds), "%d", h->rounds);
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = (uv_stdio_flags) (UV_CREATE_PIPE | UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *) &r->output},
        {.flags = UV_INHERIT_FD, .data.fd = 2}};
    const uv_process_options_t options = {.file = "/proc/self/exe", .args = argv,
                                          .env = o->environment, .exit_cb = on_exit_of,
                                          .stdio = stdio, .stdio_count = 3};
    (void) uv_pipe_init(h->loop, &r->output, 0);
    r->output.data = r->process.data = r;
    r->open_handles = 2;
    int rc = uv_spawn(h->loop, &r->process, &options);
    if (rc < 0) {
        r->process.pid = 0;
        return rc;
    }
    return uv_read_start((uv_stream_t *) &r->output, on_alloc, on_read);
}

static void on_unstarted(uv_timer_t *timer) {
    struct health *h = timer->data;
    char why[HEALTH_WHY_MAX];
    (void) snprintf(why, sizeof(why), "the %s could not be started: no memory or no process left",
                    h->options->what);
    report(h, why);
}

static void begin(struct health *h) {
    struct run *r = calloc(1, sizeof(*r));
    if (r == NULL) { /* no memory: try again later, because the node joins only after a check */
        (void) uv_timer_start(&h->timer, on_again, AGAIN_MIN_MS, 0);
        return;
    }
    h->run = r;
    LIST_INSERT_HEAD(&h->runs, r, entry);
    r->health = h;
    r->is_wanted = r->has_output = true;
    uv_update_time(h->loop);
    bool started = spawn(h, r) == 0;
    (void) uv_timer_start(&h->timer, started ? on_late : on_unstarted,
                          started ? (uint64_t) h->options->timeout_ms : 0, 0);
}

static void on_again(uv_timer_t *timer) { begin(timer->data); }

/* ---- the calls of health.h ---- */

struct health *health_open(uv_loop_t *loop, const struct health_options *options,
                           void (*on_result)(void *arg, const char *why), void *arg) {
    struct health *h = calloc(1, sizeof(*h));
    if (h == NULL) return NULL;
    h->loop = loop;
    h->options = options;
    h->on_result = on_result;
    h->arg = arg;
    (void) uv_timer_init(loop, &h->timer);
    h->timer.data = h;
    return h;
}

void health_begin(struct health *h, int rounds) {
    health_stop(h);
    h->rounds = rounds;
    h->again_ms = AGAIN_MIN_MS;
    begin(h);
}

void health_stop(struct health *h) {
    (void) uv_timer_stop(&h->timer);
    if (h->run != NULL) drop(h->run);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct health *h = handle->data;
    h->is_timer_closed = true;
    free_if_closed(h);
}

void health_close(struct health *h, void (*on_close)(void *arg), void *arg) {
    struct run *r;
    health_stop(h);
    h->on_close = on_close;
    h->close_arg = arg;
    LIST_FOREACH(r, &h->runs, entry) close_process(r);
    uv_close((uv_handle_t *) &h->timer, on_timer_closed);
}
