/* The starter: the crun that the user calls with --hosts. It starts the deputies, shows the output
 * of all hosts, and sends its own input and signals to the launchers. lead.c decides when the job
 * begins and ends.
 *
 * A signal that arrives before the first launcher was started ends the starter. Each later signal
 * is sent to the launchers of all hosts, which act on it. */
#include "launcher/hosts/branches_internal.h"

#include "agent/output/console.h"
#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/process/daemon.h"
#include "base/time/clock.h"
#include "launcher/hosts/lead_internal.h"
#include "launcher/hosts/lines_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define FLUSH_MS     50 /* time in ms without output after which an incomplete line is shown */
#define CREDIT_BYTES ((int64_t) 256 << 10) /* largest number of bytes of input that are sent and not
                                            * yet taken by the launcher */
#define RSH_WORDS    48
#define LAST_SIGNALS 4 /* the starter ends at once after this number of signals, such as SIGINT */

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
#define SIGNALS (sizeof(forwarded) / sizeof(forwarded[0]))

enum { OUT, ERR, STREAMS };

struct starter {
    uv_loop_t loop;
    const struct hosts_job *job;
    struct hosts_plan plan;
    struct branches branches;
    struct lead lead;
    uv_timer_t lead_timer, flush_timer;
    uv_signal_t signals[SIGNALS];
    int closing_signal; /* the signal that ended the starter before a launcher was started; 0 if
                         * none did */
    /* number of signals such as SIGINT and SIGTERM that were sent on to the launchers */
    unsigned end_signals;

    char (*addresses)[CR_HOST_MAX]; /* [hosts]: own address of each host, which its deputy has
                                     * reported, or "" */
    uint32_t *ports;                /* [hosts]: a free port of the host */

    struct console console[STREAMS];
    struct hosts_lines lines[STREAMS];
    char **prefixes;

    /* --pty: while a launcher has the pseudo terminal, this terminal is in raw mode */
    uv_signal_t resized;
    struct termios cooked; /* mode of this terminal before raw mode; valid if is_raw */
    bool is_raw;

    int64_t credit;       /* bytes of input that may be sent now */
    int input_epoll;      /* epoll descriptor that watches descriptor 0; -1 if none is open */
    bool input_can_block; /* false if a read of descriptor 0 never waits, as for a regular file */
    uv_poll_t input_poll;

    bool is_closing;
    struct cr_error why; /* why the starter ends, if the reason is a lost host or a lack of memory;
                          * conclude() reports this text */
};

static void step(struct starter *s);

/* ---- the console ---- */

/* Writes lines to a terminal in raw mode, which does not return to the left at the end of a line:
 * puts a carriage return before each newline. */
static void write_raw_lines(struct console *c, const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end != NULL ? (size_t) (end - text) - at : len - at;
        if (n > 0) console_write(c, text + at, n);
        if (end != NULL) console_write(c, "\r\n", 2);
        at += n + (end != NULL);
    }
}

static void write_console(struct starter *s, int which, const struct cr_buffer *text) {
    if (text->len > 0 && s->is_raw) write_raw_lines(&s->console[which], text->data, text->len);
    else if (text->len > 0) console_write(&s->console[which], text->data, text->len);
    bool is_full = console_is_full(&s->console[OUT]) || console_is_full(&s->console[ERR]);
    if (is_full) branches_pause(&s->branches, true);
}

static void on_room(void *arg) {
    struct starter *s = arg;
    bool is_full = console_is_full(&s->console[OUT]) || console_is_full(&s->console[ERR]);
    if (!is_full) branches_pause(&s->branches, false);
}

static void show(struct starter *s, int which, uint32_t host, const char *data, size_t len) {
    struct cr_buffer text = {0};
    (void) hosts_lines_add(&s->lines[which], host, data, len, &text);
    write_console(s, which, &text);
    cr_buffer_done(&text);
}

static void on_flush(uv_timer_t *timer) {
    struct starter *s = timer->data;
    for (int which = OUT; which <= ERR; which++) {
        struct cr_buffer text = {0};
        for (uint32_t host = 0; host < s->plan.range.count; host++) {
            (void) hosts_lines_flush(&s->lines[which], host, &text);
        }
        write_console(s, which, &text);
        cr_buffer_done(&text);
    }
}

/* Shows output of the pseudo terminal as it is, because it may move the cursor. */
static void show_raw(struct starter *s, const struct hosts_frame *frame) {
    if (frame->len > 0) console_write(&s->console[OUT], frame->data, frame->len);
    if (console_is_full(&s->console[OUT])) branches_pause(&s->branches, true);
}

static void show_output(struct starter *s, const struct hosts_frame *frame) {
    int which = frame->type == HOSTS_OUT ? OUT : ERR;
    if (s->job->has_pty && frame->host == s->plan.input_host && which == OUT) {
        show_raw(s, frame);
        return;
    }
    show(s, which, frame->host, frame->data, frame->len);
    if (s->lines[which].streams[frame->host].kept.len > 0) {
        (void) uv_timer_start(&s->flush_timer, on_flush, FLUSH_MS, 0);
    }
}

/* Writes a message of the starter itself to stderr, after "crun: ". */
static void say(struct starter *s, const char *text) {
    struct cr_buffer line = {0};
    (void) hosts_lines_end(&s->lines[ERR], &line);
    (void) cr_buffer_printf(&line, "crun: %s\n", text);
    write_console(s, ERR, &line);
    cr_buffer_done(&line);
}

/* ---- input ---- */

static void end_input(struct starter *s) {
    if (s->input_epoll < 0) return;
    cr_close_fd(&s->input_epoll);
    if (s->input_can_block) uv_close((uv_handle_t *) &s->input_poll, NULL);
}

/* Reads descriptor 0 once, and sends the bytes to the launcher that gets the input. Returns true if
 * bytes were sent; false if there is nothing to read now or the input has ended. */
static bool read_input(struct starter *s) {
    static char data[HOSTS_DATA_MAX];
    struct cr_buffer frame = {0};
    struct pollfd p = {.fd = 0, .events = POLLIN};
    if (s->input_can_block && poll(&p, 1, 0) <= 0) return false;
    size_t room = s->credit < (int64_t) sizeof(data) ? (size_t) s->credit : sizeof(data);
    ssize_t n = read(0, data, room);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    (void) hosts_put_bytes(&frame, HOSTS_INPUT, s->plan.input_host, data, n > 0 ? (size_t) n : 0);
    branches_send(&s->branches, s->plan.input_host, &frame);
    cr_buffer_done(&frame);
    if (n <= 0) end_input(s);
    else s->credit -= n;
    return n > 0;
}

static void on_input(uv_poll_t *poll, int status, int events) {
    struct starter *s = poll->data;
    (void) status, (void) events;
    (void) read_input(s);
    if (s->credit <= 0 && s->input_epoll >= 0) (void) uv_poll_stop(poll);
}

/* Reads input while there is credit. */
static void pump_input(struct starter *s) {
    if (s->input_epoll < 0 || s->credit <= 0) return;
    if (s->input_can_block) (void) uv_poll_start(&s->input_poll, UV_READABLE, on_input);
    else while (s->input_epoll >= 0 && s->credit > 0 && read_input(s)) continue;
}

/* Begins to read descriptor 0, whose bytes are sent to a launcher. libuv watches an epoll
 * descriptor that watches descriptor 0: if libuv watched descriptor 0 itself, it would make it
 * non-blocking, also for other processes that share it. If crun runs in the background of a
 * terminal, descriptor 0 is not read, because the kernel would stop crun. */
static void begin_input(struct starter *s) {
    struct epoll_event event = {.events = EPOLLIN};
    if (s->input_epoll >= 0 || s->is_closing) return;
    if (isatty(0) && tcgetpgrp(0) != getpgrp()) return;
    s->input_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->input_epoll < 0) return;
    s->input_can_block = epoll_ctl(s->input_epoll, EPOLL_CTL_ADD, 0, &event) == 0;
    if (s->input_can_block) {
        (void) uv_poll_init(&s->loop, &s->input_poll, s->input_epoll);
        s->input_poll.data = s;
    }
    s->credit = CREDIT_BYTES;
    pump_input(s);
}

/* ---- the pseudo terminal of --pty ---- */

/* Returns the size of this terminal as HOSTS_SIZE has it; 0 if it is unknown. */
static uint32_t read_size(void) {
    struct winsize size = {0};
    (void) ioctl(1, TIOCGWINSZ, &size);
    return (uint32_t) size.ws_row << 16 | size.ws_col;
}

static void on_resized(uv_signal_t *handle, int signum) {
    struct starter *s = handle->data;
    struct cr_buffer frame = {0};
    (void) signum;
    (void) hosts_put_number(&frame, HOSTS_SIZE, s->plan.input_host, read_size());
    branches_send(&s->branches, s->plan.input_host, &frame);
    cr_buffer_done(&frame);
}

/* Call this when the launcher with the pseudo terminal runs. Sets this terminal to raw mode, so
 * that it passes on every byte unchanged, also ^C: the pseudo terminal interprets the bytes, and
 * processes the output. Sends the size, which may have changed since the plan was sent. */
static void begin_pty(struct starter *s) {
    struct termios raw;
    if (!s->job->has_pty || s->is_raw || tcgetattr(0, &s->cooked) < 0) return;
    raw = s->cooked;
    cfmakeraw(&raw);
    s->is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
    (void) uv_signal_start(&s->resized, on_resized, SIGWINCH);
    on_resized(&s->resized, SIGWINCH);
}

static void end_pty(struct starter *s) {
    if (s->is_raw) (void) tcsetattr(0, TCSADRAIN, &s->cooked);
    s->is_raw = false;
}

/* ---- frames from the hosts ---- */

static void take_ready(struct starter *s, const struct hosts_frame *frame) {
    uint32_t port = 0;
    if (hosts_get_ready(frame, s->addresses[frame->host], &port) < 0) return;
    s->ports[frame->host] = port;
    lead_ready(&s->lead, frame->host, cr_monotonic_ms());
}

static void take_lost(struct starter *s, const struct hosts_frame *frame) {
    char text[CR_ERROR_TEXT_MAX];
    (void) snprintf(text, sizeof(text), "%.*s", (int) frame->len, frame->data);
    lead_lost(&s->lead, frame->host, cr_monotonic_ms());
    /* If the starter ends because of the lost host, `text` becomes the starter's error. Otherwise
     * it is shown now. */
    enum lead_action next = lead_next(&s->lead, cr_monotonic_ms());
    bool is_end = next == LEAD_GIVE_UP || next == LEAD_FINISH;
    if (is_end && s->why.code == 0) (void) cr_fail(&s->why, -EHOSTUNREACH, "%s", text);
    else say(s, text);
}

static void on_frame(void *arg, const struct hosts_frame *frame) {
    struct starter *s = arg;
    uint32_t number = 0;
    if (s->is_closing && frame->type != HOSTS_OUT && frame->type != HOSTS_ERR) return;
    switch (frame->type) {
    case HOSTS_OUT:
    case HOSTS_ERR: show_output(s, frame); return;
    case HOSTS_READY: take_ready(s, frame); break;
    case HOSTS_LOST: take_lost(s, frame); break;
    case HOSTS_ENDED:
        if (hosts_get_number(frame, &number) < 0) return;
        lead_ended(&s->lead, frame->host, (int) number, cr_monotonic_ms());
        break;
    case HOSTS_TAKEN:
        if (hosts_get_number(frame, &number) == 0) s->credit += number;
        pump_input(s);
        return;
    case HOSTS_PLAN:
    case HOSTS_GO:
    case HOSTS_INPUT:
    case HOSTS_SIZE:
    case HOSTS_SIGNAL: return;
    }
    step(s);
}

/* ---- what lead.c wants done ---- */

static const char *host_of(const char *name) {
    const char *at = strrchr(name, '@');
    return at == NULL ? name : at + 1;
}

/* Stores in *go at which endpoint the nodes meet: at the free port of `host`, which hosts the
 * rendezvous. Stores "" if the user's options give the endpoint. */
static void write_endpoint(const struct starter *s, uint32_t host, struct hosts_go *go) {
    const char *address = s->addresses[host];
    char own[CR_HOST_MAX] = "";
    go->hosting = host;
    go->endpoint[0] = '\0';
    if (s->job->user_meets) return;
    if (address[0] == '\0') address = host_of(s->plan.names[host]);
    bool is_local = strcmp(address, "localhost") == 0 && s->job->starts_local;
    if (is_local && s->job->host_count > 1 && gethostname(own, sizeof(own) - 1) == 0) address = own;
    (void) snprintf(go->endpoint, sizeof(go->endpoint),
                    strchr(address, ':') != NULL ? "[%s]:%u" : "%s:%u", address, s->ports[host]);
}

/* Starts the launchers. The first call sends the order to start to all hosts; a host that is not
 * ready yet gets the order when it is. Later calls send nothing: they only record which hosts now
 * run. */
static void begin(struct starter *s) {
    struct hosts_go go = s->branches.go;
    if (!s->lead.has_begun) {
        write_endpoint(s, lead_hosting(&s->lead), &go);
        branches_go(&s->branches, HOSTS_ALL, &go);
    }
    lead_went(&s->lead);
    if (s->lead.states[s->plan.input_host] != LEAD_RUNNING) return;
    begin_pty(s);
    begin_input(s);
}

static void pass_signal(struct starter *s, int signum) {
    struct cr_buffer frame = {0};
    (void) hosts_put_number(&frame, HOSTS_SIGNAL, 0, (uint32_t) signum);
    branches_send(&s->branches, HOSTS_ALL, &frame);
    cr_buffer_done(&frame);
}

static void stop(struct starter *s) {
    char text[128];
    (void) snprintf(text, sizeof(text),
                    "fewer than the %u nodes that the job needs are left; ending it",
                    s->lead.min_nodes);
    say(s, text);
    pass_signal(s, SIGTERM);
    lead_stopped(&s->lead);
}

static void finish(struct starter *s) {
    if (s->is_closing) return;
    s->is_closing = true;
    end_input(s);
    uv_close((uv_handle_t *) &s->resized, NULL);
    uv_close((uv_handle_t *) &s->lead_timer, NULL);
    for (size_t i = 0; i < SIGNALS; i++) uv_close((uv_handle_t *) &s->signals[i], NULL);
    branches_close(&s->branches);
}

static void on_lead_timer(uv_timer_t *timer) { step(timer->data); }

static void arm(struct starter *s) {
    int64_t deadline_ms = lead_deadline(&s->lead);
    (void) uv_timer_stop(&s->lead_timer);
    if (deadline_ms == CR_FOREVER) return;
    uv_update_time(&s->loop);
    (void) uv_timer_start(&s->lead_timer, on_lead_timer, (uint64_t) cr_time_left_ms(deadline_ms),
                          0);
}

static void step(struct starter *s) {
    while (!s->is_closing) {
        switch (lead_next(&s->lead, cr_monotonic_ms())) {
        case LEAD_GO: begin(s); break;
        case LEAD_STOP: stop(s); break;
        case LEAD_GIVE_UP:
        case LEAD_FINISH: finish(s); return;
        case LEAD_WAIT: arm(s); return;
        }
    }
}

/* ---- signals ---- */

static void on_signal(uv_signal_t *handle, int signum) {
    struct starter *s = handle->data;
    if (!s->lead.has_begun) {
        s->closing_signal = signum;
        finish(s);
        return;
    }
    pass_signal(s, signum);
    if (signum == SIGUSR1 || signum == SIGUSR2) return;
    if (++s->end_signals < 2) return;
    /* After a second signal, the starter does not wait any more for a console that takes no
     * output. */
    for (int which = OUT; which <= ERR; which++) {
        console_kill(&s->console[which]);
        (void) uv_poll_stop(&s->console[which].poll);
    }
    on_room(s);
    if (s->end_signals >= LAST_SIGNALS) finish(s);
}

/* Starts handling the signals of forwarded[], even if they were ignored when crun started. (A
 * script ignores SIGINT for a command that it starts in the background.) Only SIGHUP stays ignored
 * if it was, as under nohup(1). launcher/crun.c does the same for a job on one host. */
static void watch_signals(struct starter *s) {
    (void) uv_signal_init(&s->loop, &s->resized); /* begin_pty() starts it */
    s->resized.data = s;
    uv_unref((uv_handle_t *) &s->resized);
    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction old;
        (void) uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        uv_unref((uv_handle_t *) &s->signals[i]);
        bool is_left_ignored = forwarded[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 &&
                               old.sa_handler == SIG_IGN;
        if (!is_left_ignored) (void) uv_signal_start(&s->signals[i], on_signal, forwarded[i]);
    }
}

/* ---- the plan ---- */

/* Splits `text`, the value of --rsh, at its blanks; changes `text`. If the value is just "ssh",
 * adds options with which ssh asks for no password (several processes of ssh cannot ask at once),
 * gives up if a host does not answer for 15 s, and notices when a host has disappeared. */
static void split_rsh(char *text, const char *words[RSH_WORDS]) {
    static const char *const options[] = {"-x", "-T", "-o", "BatchMode=yes", "-o",
                                          "ConnectTimeout=15", "-o", "ServerAliveInterval=15"};
    size_t n = 0;
    char *rest = NULL;
    bool is_plain = strcmp(text, "ssh") == 0;
    for (char *at = strtok_r(text, " \t", &rest); at != NULL && n < RSH_WORDS - 1;
         at = strtok_r(NULL, " \t", &rest)) {
        words[n++] = at;
    }
    for (size_t i = 0; is_plain && i < CR_ARRAY_LEN(options); i++) words[n++] = options[i];
    words[n] = NULL;
}

/* If stdout is a terminal, writes "COLUMNS=N" to `out`. N is the number of columns that are left
 * for a worker's line behind the longest host name. If stdout is no terminal, or N would be small,
 * writes "". With --pty writes "TERM=..." instead: the workers can ask the pseudo terminal for its
 * size, and COLUMNS would hide later sizes. */
static void write_columns(const struct starter *s, char *out, size_t cap) {
    struct winsize size = {0};
    size_t longest = 0;
    out[0] = '\0';
    if (s->job->has_pty) {
        const char *term = getenv("TERM");
        if (term != NULL && strlen(term) + 6 <= cap) (void) snprintf(out, cap, "TERM=%s", term);
        return;
    }
    if (!isatty(1) || ioctl(1, TIOCGWINSZ, &size) < 0 || size.ws_col == 0) return;
    for (uint32_t i = 0; i < s->plan.range.count; i++) {
        size_t n = strlen(s->prefixes[i]);
        if (n > longest) longest = n;
    }
    if (longest + 20 > size.ws_col) return;
    (void) snprintf(out, cap, "COLUMNS=%zu", size.ws_col - longest);
}

static size_t length_of(const char *const *texts) {
    size_t n = 0;
    while (texts[n] != NULL) n++;
    return n;
}

/* The memory of a plan. */
struct plan_texts {
    const char **names, **workers, **variables;
    const char *rsh_words[RSH_WORDS];
    char *rsh, columns[128], folder[4096], crun[4096];
};

static int make_lists(struct starter *s, struct plan_texts *t) {
    const struct hosts_job *job = s->job;
    size_t n = length_of(job->variables);
    t->names = calloc(job->host_count, sizeof(*t->names));
    t->workers = calloc(job->host_count, sizeof(*t->workers));
    t->variables = calloc(n + 2, sizeof(*t->variables));
    t->rsh = strdup(job->rsh);
    if (t->names == NULL || t->workers == NULL || t->variables == NULL || t->rsh == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < job->host_count; i++) {
        t->names[i] = job->hosts[i].name;
        t->workers[i] = job->workers[i] != NULL ? job->workers[i] : "";
    }
    for (size_t i = 0; i < n; i++) t->variables[i] = job->variables[i];
    split_rsh(t->rsh, t->rsh_words);
    s->plan.range.count = (uint32_t) job->host_count;
    write_columns(s, t->columns, sizeof(t->columns));
    if (t->columns[0] != '\0') t->variables[n] = t->columns;
    return 0;
}

static int make_plan(struct starter *s, struct plan_texts *t, struct cr_error *err) {
    const struct hosts_job *job = s->job;
    ssize_t len = readlink("/proc/self/exe", t->crun, sizeof(t->crun) - 1);
    if (len < 0) return cr_fail_errno(err, "cannot find the path of crun");
    if (getcwd(t->folder, sizeof(t->folder)) == NULL) {
        return cr_fail_errno(err, "cannot find out the current folder");
    }
    if (make_lists(s, t) < 0) return cr_fail(err, -ENOMEM, "no memory left to start hosts");
    if (t->rsh_words[0] == NULL) return cr_fail(err, -EINVAL, "--rsh is empty; give a command");
    s->plan = (struct hosts_plan){
        .range = {0, (uint32_t) job->host_count}, .names = t->names, .workers = t->workers,
        .max_nodes = job->max_nodes, .fan_out = job->fan_out, .copies_crun = job->copy_crun,
        .has_pty = job->has_pty, .pty_size = job->has_pty ? read_size() : 0,
        .folder = t->folder, .crun = t->crun, .conf = job->conf, .rsh = t->rsh_words,
        .options = job->options, .program = job->program, .variables = t->variables,
        .secret = job->secret == NULL ? "" : job->secret, .secret_len = job->secret_len};
    return 0;
}

static void free_texts(struct plan_texts *t) {
    free(t->names);
    free(t->workers);
    free(t->variables);
    free(t->rsh);
}

/* ---- one run ---- */

static void on_console_closed(uv_handle_t *handle) { (void) handle; }

static void close_console(struct starter *s, int which) {
    struct cr_buffer text = {0};
    for (uint32_t host = 0; host < s->plan.range.count; host++) {
        (void) hosts_lines_flush(&s->lines[which], host, &text);
    }
    (void) hosts_lines_end(&s->lines[which], &text);
    write_console(s, which, &text);
    cr_buffer_done(&text);
}

static void on_links_closed(void *arg) {
    struct starter *s = arg;
    if (s->is_closing && !uv_is_closing((uv_handle_t *) &s->flush_timer)) {
        uv_close((uv_handle_t *) &s->flush_timer, NULL);
    }
}

static int allocate(struct starter *s) {
    size_t n = s->job->host_count;
    s->lead.states = calloc(n, 1);
    s->addresses = calloc(n, sizeof(*s->addresses));
    s->ports = calloc(n, sizeof(*s->ports));
    s->prefixes = calloc(n, sizeof(*s->prefixes));
    bool ok = s->lead.states != NULL && s->addresses != NULL && s->ports != NULL &&
              s->prefixes != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        s->prefixes[i] = cr_asprintf("[%s] ", host_of(s->job->hosts[i].name));
        ok = s->prefixes[i] != NULL;
    }
    for (int which = OUT; ok && which <= ERR; which++) {
        s->lines[which] = (struct hosts_lines){.streams = calloc(n, sizeof(struct hosts_stream)),
                                               .prefixes = (const char *const *) s->prefixes,
                                               .open = -1};
        ok = s->lines[which].streams != NULL;
    }
    return ok ? 0 : -ENOMEM;
}

static void release(struct starter *s) {
    for (size_t i = 0; s->prefixes != NULL && i < s->job->host_count; i++) free(s->prefixes[i]);
    for (int which = OUT; which <= ERR; which++) {
        struct hosts_stream *streams = s->lines[which].streams;
        for (size_t i = 0; streams != NULL && i < s->job->host_count; i++) {
            cr_buffer_done(&streams[i].kept);
        }
        free(streams);
    }
    free(s->prefixes);
    free(s->ports);
    free(s->addresses);
    free(s->lead.states);
    branches_done(&s->branches);
}

static int open_loop(struct starter *s, struct cr_error *err) {
    int rc = uv_loop_init(&s->loop);
    for (int which = OUT; rc == 0 && which <= ERR; which++) {
        rc = console_open(&s->console[which], &s->loop, 1 + which, on_room, s);
    }
    if (rc < 0) return cr_fail(err, rc, "cannot start the event loop: %s", uv_strerror(rc));
    (void) uv_timer_init(&s->loop, &s->lead_timer);
    (void) uv_timer_init(&s->loop, &s->flush_timer);
    s->lead_timer.data = s->flush_timer.data = s;
    watch_signals(s);
    return 0;
}

/* Runs the loop until all links are closed and the console has taken all output. */
static void run_loop(struct starter *s) {
    if (s->job->host_count > 0 && branches_open(&s->branches, s->plan.range) < 0) {
        (void) cr_fail(&s->why, -ENOMEM, "no memory left to start hosts");
        finish(s);
    }
    step(s);
    (void) uv_run(&s->loop, UV_RUN_DEFAULT);
    for (int which = OUT; which <= ERR; which++) close_console(s, which);
    (void) uv_run(&s->loop, UV_RUN_DEFAULT);
    for (int which = OUT; which <= ERR; which++) {
        console_close(&s->console[which], on_console_closed);
    }
    (void) uv_run(&s->loop, UV_RUN_DEFAULT);
    end_pty(s);
    (void) uv_loop_close(&s->loop);
}

/* Returns the exit status of the starter. If a lost host has made the job fail, and the user has
 * not been told so yet, sets err and returns a negative errno instead. */
static int conclude(const struct starter *s, struct cr_error *err) {
    if (s->closing_signal != 0) cr_die_by(s->closing_signal);
    if (s->why.code == 0 || s->lead.succeeded >= s->lead.min_nodes) return lead_status(&s->lead);
    *err = s->why;
    return s->why.code;
}

int hosts_run(const struct hosts_job *job, struct cr_error *err) {
    static struct plan_texts texts;
    static struct starter s;
    s = (struct starter){.job = job, .input_epoll = -1};
    texts = (struct plan_texts){0};
    if (job->has_pty && (!isatty(0) || !isatty(1) || tcgetpgrp(0) != getpgrp())) {
        return cr_fail(err, -ENOTTY, "--pty needs a terminal as stdin and stdout, and crun in its "
                       "foreground; leave --pty out");
    }
    int rc = allocate(&s);
    if (rc < 0) rc = cr_fail(err, rc, "no memory left to start hosts");
    if (rc == 0) rc = make_plan(&s, &texts, err);
    if (rc == 0) rc = open_loop(&s, err);
    if (rc == 0) {
        (void) signal(SIGPIPE, SIG_IGN);
        s.branches = (struct branches){.loop = &s.loop, .plan = &s.plan, .on_frame = on_frame,
                                       .starts_local = job->starts_local,
                                       .caller = job->caller,
                                       .on_closed = on_links_closed, .arg = &s};
        lead_init(&s.lead, s.lead.states, s.plan.range.count, job->min_nodes, job->last_call_ms);
        run_loop(&s);
        rc = conclude(&s, err);
    }
    release(&s);
    free_texts(&texts);
    return rc;
}
