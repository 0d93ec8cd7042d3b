/* Runs an inspection: starts this program once more, with an argv[0] that makes it an inspector
 * (inspect/inspector.h), and reads the rows from its stdout through a pipe. */
#include "agent/inspection/inspector_process.h"

#include "inspect/inspector.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENT_MAX 72                    /* bytes of RANK:LOCAL_RANK:PID, NUL included */
#define OUTPUT_MAX   ((size_t) 64 << 20)   /* limit of the output in bytes; enough for all
                                            * workers */

struct inspection {
    uv_process_t process;
    uv_pipe_t output;
    uv_timer_t timer;
    bool has_process; /* true until the process's exit callback has run */
    bool is_done;     /* true if on_done has run */
    bool rings;       /* true if the process requests flight records and writes no rows */
    int open_handles;
    struct cr_buffer input;
    struct inspect_row *rows;
    size_t count;
    void (*on_done)(void *arg, struct inspect_row *rows, size_t count);
    void *arg;
    void (*on_close)(void *arg);
    void *close_arg;
    char chunk[65536];
};

/* ---- the result ---- */

static void take_row(struct inspection *s, const char *line, size_t len) {
    struct inspect_row row;
    if (inspect_row_read(&row, line, len) < 0) return;
    for (size_t i = 0; i < s->count; i++) {
        struct inspect_row *own = &s->rows[i];
        if (own->local_rank != row.local_rank) continue;
        memcpy(row.host, own->host, sizeof(row.host));
        *own = row;
    }
}

static void take_rows(struct inspection *s) {
    size_t at = 0;
    for (const char *end; s->input.len > at; at = (size_t) (end + 1 - s->input.data)) {
        end = memchr(s->input.data + at, '\n', s->input.len - at);
        if (end == NULL) break;
        take_row(s, s->input.data + at, (size_t) (end - (s->input.data + at)));
    }
}

static void finish(struct inspection *s) {
    if (s->is_done) return;
    s->is_done = true;
    (void) uv_timer_stop(&s->timer);
    (void) uv_read_stop((uv_stream_t *) &s->output);
    take_rows(s);
    s->on_done(s->arg, s->rows, s->count);
}

/* ---- callbacks of the loop ---- */

static void on_timer(uv_timer_t *timer) { finish(timer->data); }

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct inspection *s = handle->data;
    (void) suggested;
    *buf = uv_buf_init(s->chunk, sizeof(s->chunk));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct inspection *s = stream->data;
    if (n == 0) return;
    bool full = n > 0 && s->input.len + (size_t) n > OUTPUT_MAX;
    if (n < 0 || full || cr_buffer_append(&s->input, buf->base, (size_t) n) < 0) finish(s);
}

static void free_if_closed(struct inspection *s) {
    if (s->open_handles > 0) return;
    void (*on_close)(void *) = s->on_close;
    void *arg = s->close_arg;
    cr_buffer_done(&s->input);
    free(s->rows);
    free(s);
    if (on_close != NULL) on_close(arg);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct inspection *s = handle->data;
    s->open_handles--;
    free_if_closed(s);
}

static void on_exit_of(uv_process_t *process, int64_t status, int signum) {
    struct inspection *s = process->data;
    (void) status, (void) signum;
    s->has_process = false;
    uv_close((uv_handle_t *) process, on_handle_closed);
}

/* ---- starting and closing ---- */

static int spawn(struct inspection *s, uv_loop_t *loop) {
    char (*texts)[ARGUMENT_MAX] = calloc(s->count, sizeof(*texts));
    char **argv = calloc(s->count + 3, sizeof(*argv));
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = (uv_stdio_flags) (UV_CREATE_PIPE | UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *) &s->output},
        {.flags = UV_IGNORE}};
    int rc = texts == NULL || argv == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < s->count; i++) {
        const struct inspect_row *row = &s->rows[i];
        (void) snprintf(texts[i], sizeof(texts[i]), "%" PRId64 ":%" PRId64 ":%" PRId64, row->rank,
                        row->local_rank, row->pid);
        argv[i + 1] = texts[i];
    }
    if (rc == 0) {
        char name[] = INSPECTOR_NAME, ring[] = INSPECTOR_RING;
        argv[0] = name;
        if (s->rings) argv[s->count + 1] = ring;
        const uv_process_options_t options = {.file = "/proc/self/exe", .args = argv,
                                              .exit_cb = on_exit_of, .stdio = stdio,
                                              .stdio_count = 3};
        s->open_handles++;
        rc = uv_spawn(loop, &s->process, &options);
        /* a failed uv_spawn() leaves a handle that has to be closed */
        if (rc < 0) uv_close((uv_handle_t *) &s->process, on_handle_closed);
    }
    free(argv);
    free(texts);
    return rc;
}

typedef void (*done_fn)(void *arg, struct inspect_row *rows, size_t count);

static int begin(uv_loop_t *loop, bool rings, const struct inspect_row *rows, size_t count,
                 done_fn on_done, void *arg, struct inspection **out, struct cr_error *err) {
    struct inspection *s = calloc(1, sizeof(*s));
    if (s != NULL) s->rows = calloc(count + 1, sizeof(*rows));
    if (s == NULL || s->rows == NULL) {
        free(s);
        return cr_fail(err, -ENOMEM, "cannot look into the workers: no memory left");
    }
    memcpy(s->rows, rows, count * sizeof(*rows));
    s->count = count;
    s->rings = rings;
    s->on_done = on_done;
    s->arg = arg;
    (void) uv_pipe_init(loop, &s->output, 0);
    (void) uv_timer_init(loop, &s->timer);
    s->output.data = s->timer.data = s->process.data = s;
    s->open_handles = 2;
    int rc = spawn(s, loop);
    s->has_process = rc == 0;
    if (rc < 0) {
        inspection_close(s, NULL, NULL);
        return cr_fail(err, rc, "cannot start the program that looks into the workers: %s",
                       uv_strerror(rc));
    }
    (void) uv_timer_start(&s->timer, on_timer, INSPECTION_MAX_MS, 0);
    (void) uv_read_start((uv_stream_t *) &s->output, on_alloc, on_read);
    *out = s;
    return 0;
}

int inspection_start(uv_loop_t *loop, const struct inspect_row *rows, size_t count,
                     void (*on_done)(void *arg, struct inspect_row *rows, size_t count), void *arg,
                     struct inspection **out, struct cr_error *err) {
    return begin(loop, false, rows, count, on_done, arg, out, err);
}

int inspection_ring(uv_loop_t *loop, const struct inspect_row *rows, size_t count,
                    void (*on_done)(void *arg, struct inspect_row *rows, size_t count), void *arg,
                    struct inspection **out, struct cr_error *err) {
    return begin(loop, true, rows, count, on_done, arg, out, err);
}

void inspection_close(struct inspection *s, void (*on_close)(void *arg), void *arg) {
    s->is_done = true;
    s->on_close = on_close;
    s->close_arg = arg;
    if (s->has_process) (void) uv_process_kill(&s->process, SIGKILL);
    uv_close((uv_handle_t *) &s->output, on_handle_closed);
    uv_close((uv_handle_t *) &s->timer, on_handle_closed);
}
