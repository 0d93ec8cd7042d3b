/* Links to the deputies of hosts: see branches_internal.h. */
#include "launcher/hosts/branches_internal.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/text/text.h"
#include "launcher/hosts/child_internal.h"
#include "launcher/hosts/way_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_ERROR "crun: error: "
#define WORDS_MAX 2048 /* number of bytes of ssh's stderr that are kept: the last ones */

enum { IN, OUT, ERR, PIPES };

struct link {
    struct branches *b;
    struct link *next;
    struct hosts_range range; /* this link's host, and the hosts that its deputy starts */
    enum hosts_way way;
    bool is_local; /* started without rsh */
    struct child child;
    uv_pipe_t pipe[PIPES];
    int open;  /* number of pipes that are open, plus 1 while the process runs */
    bool out_ended, has_exited;
    int status; /* exit status of the process; valid if has_exited is true */
    bool greeted;
    bool is_planned; /* true if the plan has been sent */
    bool is_broken;  /* true if the deputy cannot be used; `why` says why */
    struct cr_error why;
    struct cr_buffer received;
    char words[WORDS_MAX]; /* the last bytes that the process has written to stderr */
    size_t words_len;
};

static const char *name_of(const struct link *k) {
    const struct hosts_plan *plan = k->b->plan;
    return plan->names[k->range.first - plan->range.first];
}

/* Returns true if the link is to call the job daemon of its host. */
static bool calls_daemon(const struct link *k) {
    return !k->is_local && strcmp(k->b->plan->rsh[0], HOSTS_SELF) == 0;
}

/* ---- the program file, for --copy-crun ---- */

/* Reads the file of the running program into *out, whose memory the caller frees. Returns 0 or a
 * negative errno. */
static int read_self(struct cr_buffer *out) {
    struct stat st;
    CR_AUTO_FD int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) return -errno;
    int rc = cr_buffer_reserve(out, (size_t) st.st_size);
    while (rc == 0 && out->len < (size_t) st.st_size) {
        ssize_t n = read(fd, out->data + out->len, (size_t) st.st_size - out->len);
        if (n <= 0) return n < 0 ? -errno : -EIO;
        out->len += (size_t) n;
    }
    return rc;
}

/* Returns the FNV-1a hash of crun's file. The name of a copy contains this hash, so each build of
 * crun has a copy of its own. */
static uint64_t hash_of(const struct cr_buffer *file) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < file->len; i++) {
        hash = (hash ^ (unsigned char) file->data[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* ---- writing down ---- */

struct write {
    uv_write_t request;
    char bytes[];
};

static void on_written(uv_write_t *request, int status) {
    /* A failed write is not reported here, because on_gone() reports that the process has ended. */
    (void) status;
    free(CR_CONTAINER_OF(request, struct write, request));
}

static void write_down(struct link *k, const void *data, size_t len) {
    uv_stream_t *to = (uv_stream_t *) &k->pipe[IN];
    struct write *w = k->open > 0 && !uv_is_closing((uv_handle_t *) to) ? malloc(sizeof(*w) + len)
                                                                         : NULL;
    if (w == NULL) return;
    memcpy(w->bytes, data, len);
    uv_buf_t buf = uv_buf_init(w->bytes, (unsigned) len);
    if (uv_write(&w->request, to, &buf, 1, on_written) < 0) free(w);
}

/* Sends the plan to the deputy. If the order to start has been given before, sends that order,
 * too. */
static void send_plan(struct link *k) {
    struct cr_buffer frame = {0};
    int rc = hosts_put_plan(&frame, k->b->plan, k->range);
    if (rc == 0 && k->b->go.hosting != HOSTS_ALL) rc = hosts_put_go(&frame, &k->b->go);
    if (rc == 0) {
        write_down(k, frame.data, frame.len);
    } else {
        k->is_broken = true;
        (void) cr_fail(&k->why, rc, "cannot describe the job to '%s': %s", name_of(k),
                       strerror(-rc));
        child_kill(&k->child, SIGKILL);
    }
    k->is_planned = true;
    cr_buffer_done(&frame);
}

static void send_program(struct link *k) {
    struct cr_buffer file = {0};
    if (read_self(&file) == 0) write_down(k, file.data, file.len);
    cr_buffer_done(&file);
}

/* ---- reports about hosts ---- */

static void deliver_text(struct branches *b, enum hosts_message type, uint32_t host,
                         const char *text, size_t len) {
    struct hosts_frame frame = {.type = type, .host = host, .data = text, .len = len};
    b->on_frame(b->arg, &frame);
}

static void lose(struct branches *b, uint32_t host, const char *why) {
    uint8_t *over = &b->over[host - b->plan->range.first];
    if (*over) return;
    *over = 1;
    deliver_text(b, HOSTS_LOST, host, why, strlen(why));
}

/* Writes to k->why how the process of ssh has ended, and the last line that it has written to
 * stderr. */
static void explain(struct link *k) {
    char line[512], how[64];
    if (k->is_broken) return;
    hosts_last_line(k->words, k->words_len, line, sizeof(line));
    /* If the process is "crun --call", its line begins with "crun: error: ". This beginning is
     * cut. */
    size_t prefix = strncmp(line, OWN_ERROR, strlen(OWN_ERROR)) == 0 ? strlen(OWN_ERROR) : 0;
    bool is_signal = k->status > 128 && k->status - 128 < NSIG; /* 255 is a status of ssh itself */
    (void) snprintf(how, sizeof(how), is_signal ? "was ended by signal %d" : "ended with status %d",
                    is_signal ? k->status - 128 : k->status);
    const char *rsh = k->is_local || calls_daemon(k) ? "crun" : k->b->plan->rsh[0];
    (void) cr_fail(&k->why, -EHOSTUNREACH, "%s '%s': %s%s%s %s%s%s",
                   k->greeted ? "lost the connection to" : "cannot start crun on", name_of(k),
                   line + prefix, line[0] != '\0' ? " (" : "", rsh, how, line[0] != '\0' ? ")" : "",
                   !k->greeted && (k->status == 127 || k->status == 126)
                       ? "; install crun there, or give --copy-crun"
                       : "");
}

/* ---- receiving ---- */

static void break_off(struct link *k, const char *text) {
    if (!k->is_broken) (void) cr_fail(&k->why, -EPROTO, "%s", text);
    k->is_broken = true;
    child_kill(&k->child, SIGKILL);
}

static int64_t take_frame(void *arg, const char *data, size_t len) {
    struct link *k = arg;
    struct hosts_frame frame;
    int64_t size = hosts_get_frame(data, len, &frame);
    if (size == 0) return 0;
    if (size < 0 || frame.type < HOSTS_READY || !hosts_range_has(k->range, frame.host)) {
        char text[CR_HOST_MAX + 64];
        (void) snprintf(text, sizeof(text), "'%s' has sent something that is no message of crun",
                        name_of(k));
        break_off(k, text);
        return -EPROTO;
    }
    if (frame.type == HOSTS_ENDED || frame.type == HOSTS_LOST) {
        k->b->over[frame.host - k->b->plan->range.first] = 1;
    }
    k->b->on_frame(k->b->arg, &frame);
    return size;
}

static void check_version(struct link *k, uint32_t protocol, const char *version) {
    if (protocol == HOSTS_PROTOCOL && strcmp(version, CRUN_VERSION) == 0) {
        k->greeted = true;
        /* Show the user what ssh has printed before the greeting, such as a warning about a host
         * key. */
        deliver_text(k->b, HOSTS_ERR, k->range.first, k->words, k->words_len);
        if (!k->is_planned) send_plan(k);
        return;
    }
    char text[CR_HOST_MAX + 256], safe[64];
    (void) cr_text_copy(safe, sizeof(safe), version, strlen(version));
    (void) snprintf(text, sizeof(text),
                    "'%s' has crun %s, but this is crun %s; install the same version there, or "
                    "give --copy-crun", name_of(k), safe, CRUN_VERSION);
    k->status = HOSTS_OTHER_VERSION;
    break_off(k, text);
}

/* Handles a line that has come on the stdout of ssh before the first frame: the deputy's greeting,
 * or a line before it. Returns the length of the line with its newline, or 0 if the line is not
 * complete. */
static int64_t take_line(void *arg, const char *data, size_t len) {
    struct link *k = arg;
    char line[256];
    uint32_t protocol = 0;
    const char *version = NULL, *newline = memchr(data, '\n', len);
    if (newline == NULL) return 0;
    size_t n = (size_t) (newline - data);
    (void) snprintf(line, sizeof(line), "%.*s", (int) (n < sizeof(line) ? n : sizeof(line) - 1),
                    data);
    switch (hosts_read_greeting(line, &protocol, &version)) {
    case HOSTS_NEEDS_CRUN: send_program(k); break;
    case HOSTS_GREETS: check_version(k, protocol, version); break;
    case HOSTS_HAS_CRUN:
    case HOSTS_NO_GREETING: break;
    }
    return (int64_t) n + 1;
}

static int64_t take(void *arg, const char *data, size_t len) {
    struct link *k = arg;
    if (k->is_broken || k->b->is_closing) return (int64_t) len;
    return k->greeted ? take_frame(arg, data, len) : take_line(arg, data, len);
}

static void give_memory(uv_handle_t *handle, size_t size, uv_buf_t *buf) {
    static char memory[HOSTS_DATA_MAX];
    (void) handle, (void) size;
    *buf = uv_buf_init(memory, sizeof(memory));
}

static void check_over(struct link *k);

static void on_out(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct link *k = stream->data;
    if (n > 0 && cr_buffer_append(&k->received, buf->base, (size_t) n) == 0) {
        (void) cr_buffer_take_frames(&k->received, take, k);
    } else if (n < 0) {
        (void) uv_read_stop(stream);
        k->out_ended = true;
        check_over(k);
    }
}

static void keep_words(struct link *k, const char *data, size_t len) {
    if (len > WORDS_MAX) data += len - WORDS_MAX, len = WORDS_MAX;
    size_t keep = k->words_len < WORDS_MAX - len ? k->words_len : WORDS_MAX - len;
    memmove(k->words, k->words + k->words_len - keep, keep);
    memcpy(k->words + keep, data, len);
    k->words_len = keep + len;
}

static void on_err(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct link *k = stream->data;
    if (n < 0) (void) uv_read_stop(stream);
    if (n <= 0) return;
    keep_words(k, buf->base, (size_t) n);
    if (k->greeted && !k->b->is_closing) {
        deliver_text(k->b, HOSTS_ERR, k->range.first, buf->base, (size_t) n);
    }
}

/* ---- starting and ending ---- */

static int start(struct link *k);

static void remove_link(struct link *k) {
    struct branches *b = k->b;
    struct link **at = &b->links;
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    cr_buffer_done(&k->received);
    free(k);
    if (b->links == NULL) b->on_closed(b->arg);
}

static int add_link(struct branches *b, struct hosts_range range);

static void adopt(struct branches *b, struct hosts_range range) {
    uint32_t parts = range.count == 0 ? 0 : hosts_range_parts(range, b->plan->fan_out);
    for (uint32_t i = 0; i < parts && !b->is_closing; i++) {
        struct hosts_range part = hosts_range_part(range, b->plan->fan_out, i);
        if (add_link(b, part) == 0) continue;
        for (uint32_t host = 0; host < part.count; host++) {
            lose(b, part.first + host, "no memory left to start the host");
        }
    }
}

/* Call this when the process of a link has ended and its pipes are closed. It tries the next way to
 * start the deputy. If there is no other way, it reports the host as lost, and removes the link. If
 * the deputy never sent its greeting, this process itself starts the hosts that the deputy was to
 * start. */
static void on_gone(struct link *k) {
    struct branches *b = k->b;
    enum hosts_way next = k->greeted || k->is_local || b->is_closing
                              ? HOSTS_NO_WAY
                              : hosts_way_next(k->way, k->status, b->plan->copies_crun);
    if (next != HOSTS_NO_WAY) {
        k->way = next;
        if (start(k) == 0) return;
    }
    explain(k);
    if (!b->is_closing) {
        bool greeted = k->greeted;
        for (uint32_t i = 0; i < (greeted ? k->range.count : 1); i++) {
            lose(b, k->range.first + i, k->why.text);
        }
        if (!greeted) adopt(b, (struct hosts_range){k->range.first + 1, k->range.count - 1});
    }
    remove_link(k);
}

static void on_part_closed(struct link *k) {
    if (--k->open == 0) on_gone(k);
}

static void on_pipe_closed(uv_handle_t *handle) { on_part_closed(handle->data); }

static void close_pipes(struct link *k) {
    for (int i = 0; i < PIPES; i++) {
        uv_handle_t *handle = (uv_handle_t *) &k->pipe[i];
        if (!uv_is_closing(handle)) uv_close(handle, on_pipe_closed);
    }
}

/* Closes the pipes of the link if its process has ended and all output was read or is not
 * wanted. */
static void check_over(struct link *k) {
    bool is_read = k->out_ended || k->is_broken || k->b->is_closing;
    if (k->has_exited && is_read) close_pipes(k);
}

static void on_exit_of(void *arg, int status) {
    struct link *k = arg;
    k->has_exited = true;
    if (!k->is_broken) k->status = status;
    /* If another process keeps the pipes open, the deputy may still run although ssh has ended. The
     * deputy ends when its stdin ends, so this end of its stdin is closed. */
    if (!uv_is_closing((uv_handle_t *) &k->pipe[IN])) {
        uv_close((uv_handle_t *) &k->pipe[IN], on_pipe_closed);
    }
    check_over(k);
    on_part_closed(k);
}

static bool is_this_machine(const char *name) {
    char host[CR_HOST_MAX] = "";
    (void) gethostname(host, sizeof(host) - 1);
    size_t n = strcspn(host, ".");
    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
        strcmp(name, "::1") == 0) {
        return true;
    }
    return strcasecmp(name, host) == 0 || (strlen(name) == n && strncasecmp(name, host, n) == 0);
}

static int open_pipes(struct link *k, const struct child_pipes *pipes) {
    const int fds[PIPES] = {pipes->in, pipes->out, pipes->err};
    int rc = 0;
    for (int i = 0; i < PIPES; i++) {
        (void) uv_pipe_init(k->b->loop, &k->pipe[i], 0);
        k->pipe[i].data = k;
        int result = uv_pipe_open(&k->pipe[i], fds[i]);
        if (result < 0) rc = result;
    }
    return rc;
}

static int start_process(struct link *k, const char *const *argv) {
    struct child_pipes pipes;
    const struct hosts_caller *caller = calls_daemon(k) ? k->b->caller : NULL;
    int rc = caller != NULL ? caller->prepare(&k->why) : 0;
    if (caller != NULL) k->child.run = caller->call;
    if (rc == 0) {
        rc = child_start(&k->child, k->b->loop, argv, CHILD_PIPE, NULL, -1, &pipes, &k->why);
    }
    if (rc < 0) {
        k->is_broken = true;
        (void) cr_wrap(&k->why, "cannot start crun on '%s'", name_of(k));
        return rc;
    }
    k->open = 1 + PIPES;
    (void) open_pipes(k, &pipes);
    (void) uv_read_start((uv_stream_t *) &k->pipe[ERR], give_memory, on_err);
    if (!k->b->is_paused) (void) uv_read_start((uv_stream_t *) &k->pipe[OUT], give_memory, on_out);
    if (k->way != HOSTS_COPY) send_plan(k);
    return 0;
}

/* Starts the process of the link: ssh, or the deputy itself if it is local. Returns 0; or a
 * negative errno, and sets k->why. */
static int start(struct link *k) {
    const struct hosts_plan *plan = k->b->plan;
    struct cr_buffer command = {0}, file = {0};
    const char *argv[64];
    size_t n = 0;
    k->out_ended = k->has_exited = k->greeted = k->is_planned = k->is_broken = false;
    k->words_len = 0;
    k->status = 0;
    k->child = (struct child){.on_exit = on_exit_of, .arg = k};
    cr_buffer_clear(&k->received);
    int rc = k->way == HOSTS_COPY ? read_self(&file) : 0;
    if (rc == 0) {
        rc = hosts_way_command(k->way, plan->crun, hash_of(&file), file.len, &command);
    }
    if (k->is_local) {
        argv[n++] = plan->crun;
        argv[n++] = "--deputy";
    } else {
        for (; n < CR_ARRAY_LEN(argv) - 3 && plan->rsh[n] != NULL; n++) argv[n] = plan->rsh[n];
        argv[n++] = name_of(k);
        argv[n++] = command.data;
    }
    argv[n] = NULL;
    rc = rc < 0 ? cr_fail(&k->why, rc, "cannot copy crun: %s", strerror(-rc))
                : start_process(k, argv);
    cr_buffer_done(&command);
    cr_buffer_done(&file);
    return rc;
}

static int add_link(struct branches *b, struct hosts_range range) {
    struct link *k = calloc(1, sizeof(*k));
    if (k == NULL) return -ENOMEM;
    k->b = b;
    k->range = range;
    k->is_local = b->starts_local && is_this_machine(name_of(k));
    k->next = b->links;
    b->links = k;
    if (start(k) < 0) on_gone(k);
    return 0;
}

int branches_open(struct branches *b, struct hosts_range range) {
    b->over = calloc(b->plan->range.count, 1);
    b->go.hosting = HOSTS_ALL;
    if (b->over == NULL) return -ENOMEM;
    adopt(b, range);
    return 0;
}

void branches_send(struct branches *b, uint32_t host, const struct cr_buffer *frame) {
    for (struct link *k = b->links; k != NULL; k = k->next) {
        bool is_meant = host == HOSTS_ALL || hosts_range_has(k->range, host);
        if (is_meant && k->is_planned) write_down(k, frame->data, frame->len);
    }
}

void branches_go(struct branches *b, uint32_t host, const struct hosts_go *go) {
    struct cr_buffer frame = {0};
    b->go = *go;
    if (hosts_put_go(&frame, go) == 0) branches_send(b, host, &frame);
    cr_buffer_done(&frame);
}

void branches_pause(struct branches *b, bool is_paused) {
    if (b->is_paused == is_paused) return;
    b->is_paused = is_paused;
    for (struct link *k = b->links; k != NULL; k = k->next) {
        uv_stream_t *out = (uv_stream_t *) &k->pipe[OUT];
        if (k->open == 0 || k->out_ended || uv_is_closing((uv_handle_t *) out)) continue;
        if (is_paused) (void) uv_read_stop(out);
        else (void) uv_read_start(out, give_memory, on_out);
    }
}

void branches_close(struct branches *b) {
    if (b->is_closing) return;
    b->is_closing = true;
    if (b->links == NULL) b->on_closed(b->arg);
    for (struct link *k = b->links; k != NULL; k = k->next) {
        uv_handle_t *in = (uv_handle_t *) &k->pipe[IN];
        if (k->open == 0) continue; /* its loss is just being reported */
        if (!uv_is_closing(in)) uv_close(in, on_pipe_closed);
        child_kill(&k->child, SIGKILL);
        check_over(k);
    }
}

void branches_done(struct branches *b) {
    free(b->over);
    b->over = NULL;
}
