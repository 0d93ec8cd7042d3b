/* The deputy: the crun that runs on a host because the starter or another deputy has started it.
 *
 * It starts the launcher of its host as a child process, and may start deputies on further hosts.
 * It reads orders from its stdin, and writes the output and the results of the launcher and of
 * these deputies to its stdout. When its stdin ends, it kills what it has started, and ends. */
#include "launcher/hosts/branches_internal.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/network/held_port.h"
#include "launcher/hosts/child_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The deputy stops reading from its launcher and its deputies when more than QUEUE_FULL bytes wait
 * to be written to stdout. It goes on reading when QUEUE_EMPTY bytes or fewer wait. */
#define QUEUE_FULL  ((size_t) 1 << 20)
#define QUEUE_EMPTY ((size_t) 64 << 10)

enum { IN, OUT, ERR, PIPES };

struct deputy {
    uv_loop_t loop;
    const struct hosts_caller *caller;
    uv_pipe_t orders, reports; /* stdin and stdout */
    struct cr_buffer received;
    char *plan_bytes; /* payload of the plan's frame; the texts of `plan` point into it */
    struct hosts_plan plan;
    struct branches branches;
    int port_fd;           /* socket that keeps a port free for the launcher; -1 if no plan has come
                            * yet */
    struct child launcher; /* this host's launcher */
    uv_pipe_t pipe[PIPES]; /* the launcher's stdin, stdout and stderr */
    bool has_started;      /* true if the launcher was started or will never start */
    bool is_paused;
    bool is_over; /* true if nothing is reported any more, because stdin has ended */
    bool is_done; /* true once the last report has been queued */
    uv_shutdown_t shutdown;
};

static uint32_t self(const struct deputy *d) { return d->plan.range.first; }

/* ---- reporting up ---- */

struct report {
    uv_write_t request;
    struct deputy *deputy;
    struct cr_buffer bytes;
};

static void read_on(struct deputy *d, bool reads);

static void on_reported(uv_write_t *request, int status) {
    struct report *r = CR_CONTAINER_OF(request, struct report, request);
    struct deputy *d = r->deputy;
    (void) status; /* ignored: if nobody reads stdout, stdin ends, too, and with it the deputy */
    cr_buffer_done(&r->bytes);
    free(r);
    size_t queued = uv_stream_get_write_queue_size((uv_stream_t *) &d->reports);
    if (d->is_paused && queued <= QUEUE_EMPTY) read_on(d, true);
}

/* Queues `bytes` to be written to stdout. If d->is_over, nothing is reported any more, and this
 * drops `bytes`. Takes over the memory of `bytes` in both cases. */
static void report(struct deputy *d, struct cr_buffer *bytes) {
    struct report *r = d->is_over ? NULL : calloc(1, sizeof(*r));
    if (r == NULL || bytes->len == 0) {
        cr_buffer_done(bytes);
        free(r);
        return;
    }
    *r = (struct report){.deputy = d, .bytes = *bytes};
    *bytes = (struct cr_buffer){0};
    uv_buf_t buf = uv_buf_init(r->bytes.data, (unsigned) r->bytes.len);
    if (uv_write(&r->request, (uv_stream_t *) &d->reports, &buf, 1, on_reported) < 0) {
        cr_buffer_done(&r->bytes);
        free(r);
        return;
    }
    size_t queued = uv_stream_get_write_queue_size((uv_stream_t *) &d->reports);
    if (!d->is_paused && queued > QUEUE_FULL) read_on(d, false);
}

static void report_bytes(struct deputy *d, enum hosts_message type, uint32_t host,
                         const char *data, size_t len) {
    struct cr_buffer frame = {0};
    (void) hosts_put_bytes(&frame, type, host, data, len);
    report(d, &frame);
}

static void report_number(struct deputy *d, enum hosts_message type, uint32_t number) {
    struct cr_buffer frame = {0};
    (void) hosts_put_number(&frame, type, self(d), number);
    report(d, &frame);
}

static void on_frame_from_below(void *arg, const struct hosts_frame *frame) {
    report_bytes(arg, frame->type, frame->host, frame->data, frame->len);
}

/* ---- ending ---- */

static void close_handle(uv_handle_t *handle) {
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

/* If the launcher and all links are gone, closes the handles that keep the loop running. If stdin
 * has not ended, first writes the reports that are queued. */
static void check_over(struct deputy *d) {
    uv_handle_t *reports = (uv_handle_t *) &d->reports;
    if (!d->has_started || d->launcher.pid != 0 || d->branches.links != NULL) return;
    close_handle((uv_handle_t *) &d->orders);
    if (d->is_over) close_handle(reports);
    if (d->is_done || d->is_over) return;
    d->is_done = true;
    /* uv_close() would drop the reports that are still queued; uv_shutdown() first writes them. */
    if (uv_shutdown(&d->shutdown, (uv_stream_t *) reports, NULL) < 0) close_handle(reports);
}

static void on_no_links(void *arg) { check_over(arg); }

/* Call this when stdin has ended: nobody can give orders any more, so this function kills
 * everything that the deputy has started. */
static void abandon(struct deputy *d) {
    d->is_over = true;
    d->has_started = true;
    child_kill(&d->launcher, SIGKILL);
    branches_close(&d->branches);
    check_over(d);
}

/* ---- the launcher ---- */

static void give_memory(uv_handle_t *handle, size_t size, uv_buf_t *buf) {
    static char memory[HOSTS_DATA_MAX];
    (void) handle, (void) size;
    *buf = uv_buf_init(memory, sizeof(memory));
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct deputy *d = stream->data;
    bool is_out = stream == (uv_stream_t *) &d->pipe[OUT];
    if (n > 0) {
        report_bytes(d, is_out ? HOSTS_OUT : HOSTS_ERR, self(d), buf->base, (size_t) n);
    } else if (n < 0) {
        (void) uv_read_stop(stream);
    }
}

/* Starts or stops reading from the launcher and from the deputies that this deputy has started. */
static void read_on(struct deputy *d, bool reads) {
    d->is_paused = !reads;
    branches_pause(&d->branches, !reads);
    if (d->launcher.pid == 0) return;
    for (int i = OUT; i <= ERR; i++) {
        uv_stream_t *stream = (uv_stream_t *) &d->pipe[i];
        if (stream->data == NULL) continue;
        if (reads) (void) uv_read_start(stream, give_memory, on_output);
        else (void) uv_read_stop(stream);
    }
}

/* Call this when the launcher has ended. It reports the bytes that are still in the pipe. It does
 * not wait for the end of the stream, because a process that a worker has left behind may keep the
 * pipe open. */
static void drain(struct deputy *d, int which) {
    char data[4096];
    uv_os_fd_t fd;
    ssize_t n;
    if (d->pipe[which].data == NULL) return;
    if (uv_fileno((uv_handle_t *) &d->pipe[which], &fd) < 0) return;
    while ((n = read(fd, data, sizeof(data))) > 0) {
        report_bytes(d, which == OUT ? HOSTS_OUT : HOSTS_ERR, self(d), data, (size_t) n);
    }
}

static void on_launcher_ended(void *arg, int status) {
    struct deputy *d = arg;
    drain(d, OUT);
    drain(d, ERR);
    for (int i = 0; i < PIPES; i++) {
        if (d->pipe[i].data != NULL) close_handle((uv_handle_t *) &d->pipe[i]);
    }
    report_number(d, HOSTS_ENDED, (uint32_t) status);
    check_over(d);
}

static void fail(struct deputy *d, const struct cr_error *err) {
    struct cr_buffer text = {0};
    (void) cr_buffer_printf(&text, "%s: %s", d->plan.names[0], err->text);
    report_bytes(d, HOSTS_LOST, self(d), text.data, text.len);
    cr_buffer_done(&text);
    d->has_started = true;
    check_over(d);
}

/* Makes a file in memory with the job's secret, for --rdzv-token-file. Returns its descriptor, or
 * -1 if the job has no secret or the file cannot be made. */
static int open_secret(const struct hosts_plan *plan) {
    if (plan->secret_len == 0) return -1;
    int fd = memfd_create("crun-secret", MFD_CLOEXEC);
    if (fd < 0) return -1;
    /* A launcher refuses a token file that other users can read. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) < 0 ||
        write(fd, plan->secret, plan->secret_len) != (ssize_t) plan->secret_len) {
        cr_close_fd(&fd);
    }
    return fd;
}

static void open_pipe(struct deputy *d, int which, int fd) {
    if (fd < 0) return;
    (void) uv_pipe_init(&d->loop, &d->pipe[which], 0);
    d->pipe[which].data = d;
    (void) uv_pipe_open(&d->pipe[which], fd);
}

/* Returns whether this host's launcher has a pseudo terminal. */
static bool has_pty(const struct deputy *d) {
    return d->plan.has_pty != 0 && d->plan.input_host == self(d);
}

static struct winsize size_of(uint32_t number) {
    return (struct winsize){.ws_row = (unsigned short) (number >> 16),
                            .ws_col = (unsigned short) (number & 0xffff)};
}

/* Gives the launcher's terminal a new size. The kernel then sends SIGWINCH to the launcher, which
 * sends it to its workers. */
static void resize(struct deputy *d, uint32_t number) {
    const struct winsize size = size_of(number);
    uv_os_fd_t fd;
    if (!has_pty(d) || d->pipe[OUT].data == NULL) return;
    if (uv_is_closing((uv_handle_t *) &d->pipe[OUT])) return;
    if (uv_fileno((uv_handle_t *) &d->pipe[OUT], &fd) == 0) (void) ioctl(fd, TIOCSWINSZ, &size);
}

static void run_launcher(struct deputy *d, const char *const *argv, int secret_fd) {
    struct child_pipes pipes;
    struct cr_error err = {0};
    d->launcher = (struct child){.on_exit = on_launcher_ended, .arg = d};
    bool has_input = d->plan.input_host == self(d);
    enum child_input input = !has_input ? CHILD_NO_INPUT : has_pty(d) ? CHILD_PTY : CHILD_PIPE;
    struct winsize size = size_of(d->plan.pty_size);
    int rc = child_start(&d->launcher, &d->loop, argv, input, &size, secret_fd, &pipes, &err);
    if (rc < 0) {
        fail(d, &err);
        return;
    }
    open_pipe(d, IN, pipes.in);
    open_pipe(d, OUT, pipes.out);
    open_pipe(d, ERR, pipes.err);
    if (!d->is_paused) read_on(d, true);
}

static size_t length_of(const char *const *texts) {
    size_t n = 0;
    while (texts[n] != NULL) n++;
    return n;
}

/* Formats the options of the launcher that are different on each host. */
static void write_own_options(const struct deputy *d, const struct hosts_go *go, int secret_fd,
                              char *const own[5]) {
    const struct hosts_plan *p = &d->plan;
    const char *conf = p->conf;
    bool has_conf = conf[0] != '\0', meets = go->endpoint[0] != '\0';
    size_t size = CR_HOST_MAX + strlen(conf) + 64;
    for (int i = 0; i < 5; i++) own[i][0] = '\0';
    if (p->workers[0][0] != '\0') {
        (void) snprintf(own[0], size, "--nproc-per-node=%.32s", p->workers[0]);
    }
    if (self(d) < p->max_nodes) (void) snprintf(own[1], size, "--node-rank=%u", self(d));
    if (meets) (void) snprintf(own[2], size, "--rdzv-endpoint=%s", go->endpoint);
    if (meets || has_conf) {
        (void) snprintf(own[3], size, "--rdzv-conf=%s%s%s", conf, has_conf && meets ? "," : "",
                        !meets ? "" : go->hosting == self(d) ? "is_host=1" : "is_host=0");
    }
    if (secret_fd >= 0) {
        (void) snprintf(own[4], size, "--rdzv-token-file=/proc/self/fd/%d", secret_fd);
    }
}

/* Starts this host's launcher: crun with the options of the job and of this host. */
static void start_launcher(struct deputy *d, const struct hosts_go *go) {
    char path[4096], *own[5];
    const struct hosts_plan *p = &d->plan;
    size_t n = 0, size = CR_HOST_MAX + strlen(p->conf) + 64;
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
    const char **argv = calloc(length_of(p->options) + length_of(p->program) + 8, sizeof(*argv));
    CR_AUTO_FREE char *memory = malloc(5 * size);
    CR_AUTO_FD int secret_fd = open_secret(p);
    d->has_started = true;
    if (argv == NULL || memory == NULL || len < 0) {
        struct cr_error err = {0};
        (void) cr_fail(&err, -ENOMEM, "cannot start crun: no memory left");
        fail(d, &err);
        free(argv);
        return;
    }
    path[len] = '\0';
    for (int i = 0; i < 5; i++) own[i] = memory + (size_t) i * size;
    write_own_options(d, go, secret_fd, own);
    argv[n++] = path;
    for (size_t i = 0; p->options[i] != NULL; i++) argv[n++] = p->options[i];
    for (int i = 0; i < 5; i++) {
        if (own[i][0] != '\0') argv[n++] = own[i];
    }
    for (size_t i = 0; p->program[i] != NULL; i++) argv[n++] = p->program[i];
    run_launcher(d, argv, secret_fd);
    free(argv);
}

/* ---- the plan ---- */

/* Returns the range of --port-range among the launcher's options; without it, the empty range. */
static struct cr_port_range find_port_range(const struct hosts_plan *plan) {
    static const char option[] = "--port-range=";
    struct cr_port_range ports = {0};
    for (size_t i = 0; plan->options[i] != NULL; i++) {
        bool is_it = strncmp(plan->options[i], option, strlen(option)) == 0;
        /* the launcher complains about a value that is no range */
        if (is_it) (void) cr_port_range_parse(plan->options[i] + strlen(option), &ports, NULL);
    }
    return ports;
}

/* Keeps a port free until the launcher listens at it. Returns the port, or 0 if there is none. */
static uint16_t hold_port(struct deputy *d) {
    uint16_t port;
    d->port_fd = cr_hold_port(find_port_range(&d->plan), &port);
    return d->port_fd >= 0 ? port : 0;
}

/* Copies to `out` the address of this host at which the process that has started this deputy
 * reached the job daemon or sshd. For the job daemon it is CRUN_CALLED_AT, an address with a port;
 * for sshd it is the third word of SSH_CONNECTION, "client port server port". Stores "" if the
 * address is unknown, or is a loopback address, which other hosts cannot use. */
static void find_address(char out[CR_HOST_MAX]) {
    const char *text = getenv("SSH_CONNECTION"), *called_at = getenv("CRUN_CALLED_AT");
    char client[CR_HOST_MAX], port[16];
    struct cr_endpoint at;
    out[0] = '\0';
    if (called_at != NULL && cr_endpoint_parse(called_at, 0, &at, NULL) == 0) {
        memcpy(out, at.host, sizeof(at.host));
    } else if (text == NULL || sscanf(text, "%255s %15s %255s", client, port, out) != 3) {
        out[0] = '\0';
    }
    if (strncmp(out, "127.", 4) == 0 || strcmp(out, "::1") == 0) out[0] = '\0';
}

static int enter_folder(const struct hosts_plan *plan, struct cr_error *err) {
    if (chdir(plan->folder) == 0) return 0;
    return cr_fail(err, -errno,
                   "cannot enter the folder '%.300s', in which crun was called: %s; make it there, "
                   "or use a folder that all hosts share", plan->folder, strerror(errno));
}

static void set_variables(const struct hosts_plan *plan) {
    for (size_t i = 0; plan->variables[i] != NULL; i++) {
        /* putenv() keeps the pointer; the plan lives as long as this process */
        (void) putenv((char *) (uintptr_t) plan->variables[i]);
    }
}

static void take_plan(struct deputy *d) {
    char address[CR_HOST_MAX];
    struct cr_error err = {0};
    struct cr_buffer frame = {0};
    struct hosts_range below = {d->plan.range.first + 1, d->plan.range.count - 1};
    d->branches = (struct branches){.loop = &d->loop, .plan = &d->plan, .arg = d,
                                    .caller = d->caller, .on_frame = on_frame_from_below,
                                    .on_closed = on_no_links};
    set_variables(&d->plan);
    int rc = enter_folder(&d->plan, &err);
    if (branches_open(&d->branches, below) < 0 && rc == 0) {
        rc = cr_fail(&err, -ENOMEM, "no memory left to start the hosts below");
    }
    if (rc < 0) {
        fail(d, &err);
        return;
    }
    find_address(address);
    (void) hosts_put_ready(&frame, self(d), address, hold_port(d));
    report(d, &frame);
}

/* ---- orders ---- */

static void on_shut(uv_shutdown_t *request, int status) {
    (void) status;
    close_handle((uv_handle_t *) request->handle);
    free(request);
}

struct input {
    uv_write_t request;
    struct deputy *deputy;
    size_t len;
    char bytes[];
};

static void on_input_taken(uv_write_t *request, int status) {
    struct input *in = CR_CONTAINER_OF(request, struct input, request);
    (void) status; /* if the write has failed, the bytes are reported as taken, too */
    report_number(in->deputy, HOSTS_TAKEN, (uint32_t) in->len);
    free(in);
}

/* Handles a frame HOSTS_INPUT: writes its bytes to the launcher's stdin. A frame without bytes ends
 * stdin, unless stdin is a pseudo terminal: there the user ends the input by the byte ^D. */
static void give_input(struct deputy *d, const struct hosts_frame *frame) {
    uv_stream_t *to = (uv_stream_t *) &d->pipe[IN];
    bool is_open = to->data != NULL && !uv_is_closing((uv_handle_t *) to);
    if (!is_open || (frame->len == 0 && has_pty(d))) return;
    if (frame->len == 0) {
        uv_shutdown_t *request = calloc(1, sizeof(*request));
        if (request != NULL && uv_shutdown(request, to, on_shut) < 0) free(request);
        return;
    }
    struct input *in = malloc(sizeof(*in) + frame->len);
    if (in == NULL) return;
    in->deputy = d;
    in->len = frame->len;
    memcpy(in->bytes, frame->data, frame->len);
    uv_buf_t buf = uv_buf_init(in->bytes, (unsigned) frame->len);
    if (uv_write(&in->request, to, &buf, 1, on_input_taken) < 0) free(in);
}

static void pass_on(struct deputy *d, uint32_t host, const struct hosts_frame *frame) {
    struct cr_buffer copy = {0};
    (void) hosts_put_bytes(&copy, frame->type, frame->host, frame->data, frame->len);
    branches_send(&d->branches, host, &copy);
    cr_buffer_done(&copy);
}

static int obey_go(struct deputy *d, const struct hosts_frame *frame) {
    struct hosts_go go;
    if (hosts_get_go(frame, &go) < 0) return -EPROTO;
    branches_go(&d->branches, HOSTS_ALL, &go);
    if (!d->has_started) start_launcher(d, &go);
    return 0;
}

static int obey_plan(struct deputy *d, const struct hosts_frame *frame) {
    if (d->plan_bytes != NULL) return -EPROTO;
    d->plan_bytes = malloc(frame->len + 1);
    if (d->plan_bytes == NULL) return -ENOMEM;
    memcpy(d->plan_bytes, frame->data, frame->len);
    struct hosts_frame kept = *frame;
    kept.data = d->plan_bytes;
    int rc = hosts_get_plan(&kept, &d->plan);
    if (rc == 0) take_plan(d);
    return rc;
}

static int obey(struct deputy *d, const struct hosts_frame *frame) {
    uint32_t number = 0;
    if (frame->type == HOSTS_PLAN) return obey_plan(d, frame);
    if (d->plan_bytes == NULL) return -EPROTO;
    switch (frame->type) {
    case HOSTS_GO: return obey_go(d, frame);
    case HOSTS_INPUT:
        if (frame->host == self(d)) give_input(d, frame);
        else pass_on(d, frame->host, frame);
        return 0;
    case HOSTS_SIZE:
        if (hosts_get_number(frame, &number) < 0) return -EPROTO;
        if (frame->host == self(d)) resize(d, number);
        else pass_on(d, frame->host, frame);
        return 0;
    case HOSTS_SIGNAL:
        if (hosts_get_number(frame, &number) < 0 || number == 0 || number >= NSIG) return -EPROTO;
        child_kill(&d->launcher, (int) number);
        pass_on(d, HOSTS_ALL, frame);
        return 0;
    case HOSTS_PLAN:
    case HOSTS_READY:
    case HOSTS_OUT:
    case HOSTS_ERR:
    case HOSTS_ENDED:
    case HOSTS_TAKEN:
    case HOSTS_LOST: break;
    }
    return -EPROTO;
}

static int64_t take_order(void *arg, const char *data, size_t len) {
    struct deputy *d = arg;
    struct hosts_frame frame;
    int64_t size = hosts_get_frame(data, len, &frame);
    if (size == 0) return 0;
    int rc = size < 0 ? (int) size : obey(d, &frame);
    return rc < 0 ? rc : size;
}

static void on_order(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct deputy *d = stream->data;
    bool ok = n >= 0;
    if (n > 0) ok = cr_buffer_append(&d->received, buf->base, (size_t) n) == 0;
    if (n > 0 && ok) ok = cr_buffer_take_frames(&d->received, take_order, d) == 0;
    if (ok) return;
    if (n > 0) cr_log_error("cannot understand the orders of the crun that has started this one");
    (void) uv_read_stop(stream);
    abandon(d);
}

/* ---- the process ---- */

static bool is_pipe(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static int open_standard_pipes(struct deputy *d) {
    if (!is_pipe(0) || !is_pipe(1)) return -EINVAL;
    (void) uv_pipe_init(&d->loop, &d->orders, 0);
    (void) uv_pipe_init(&d->loop, &d->reports, 0);
    d->orders.data = d->reports.data = d;
    int rc = uv_pipe_open(&d->orders, 0);
    if (rc == 0) rc = uv_pipe_open(&d->reports, 1);
    return rc == 0 ? uv_read_start((uv_stream_t *) &d->orders, give_memory, on_order) : rc;
}

int hosts_run_deputy(const struct hosts_caller *caller) {
    static struct deputy d;
    struct cr_buffer greeting = {0};
    d.port_fd = -1;
    d.caller = caller;
    /* This is the name in ps(1). Because of it, nesting.c does not count a deputy as a crun. */
    (void) prctl(PR_SET_NAME, "crun-deputy");
    d.branches.on_closed = on_no_links;
    d.branches.arg = &d;
    (void) signal(SIGPIPE, SIG_IGN);
    if (uv_loop_init(&d.loop) < 0 || open_standard_pipes(&d) < 0) {
        cr_log_error("crun --deputy is not meant to be called by hand; see crun --hosts");
        return 2;
    }
    (void) cr_buffer_printf(&greeting, HOSTS_GREETING " %d " CRUN_VERSION "\n", HOSTS_PROTOCOL);
    report(&d, &greeting);
    (void) uv_run(&d.loop, UV_RUN_DEFAULT);
    cr_buffer_done(&d.received);
    branches_done(&d.branches);
    hosts_plan_done(&d.plan);
    cr_close_fd(&d.port_fd);
    return 0;
}
