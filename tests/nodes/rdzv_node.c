/* A node without workers, for tests of the rendezvous that need no real workers. The program uses
 * the public interface rendezvous.h. It reads commands as lines from stdin (join, fail, succeed,
 * leave, quit) and prints what the rendezvous reports as lines on stdout.
 *
 *     rdzv_node BACKEND ENDPOINT KEY=VALUE…
 *
 * It joins by itself at the start and after every stop, unless manual=1. */
#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/text/parse.h"
#include "base/time/clock.h"
#include "launcher/options/values.h"
#include "rendezvous/rendezvous.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uv_loop_t loop;
static struct rendezvous *r;
static uv_pipe_t input;
static char line[256];
static size_t line_len;
static uint64_t current_round;
static int manual, ended;

static const struct setting {
    const char *name;
    size_t offset;
    int size;
} settings[] = {
#define S(field)                                                                                   \
    {#field, offsetof(struct rendezvous_options, field),                                           \
     (int) sizeof(((struct rendezvous_options *) 0)->field)},
    S(min_nodes) S(max_nodes) S(node_rank) S(local_world_size) S(max_restarts) S(join_timeout_ms)
    S(last_call_timeout_ms) S(close_timeout_ms) S(keep_alive_interval_ms) S(keep_alive_max_attempt)
    S(read_timeout_ms) S(coordinator_wait_ms) S(is_host)
#undef S
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void) vprintf(fmt, ap);
    va_end(ap);
    (void) printf("\n");
    (void) fflush(stdout);
}

static void die(const char *what, const char *why) {
    (void) fprintf(stderr, "rdzv_node: %s: %s\n", what, why);
    exit(2);
}

static void close_all(void) {
    if (ended++ > 0) return;
    rendezvous_close(r, NULL);
    uv_close((uv_handle_t *) &input, NULL);
}

static void on_round(void *arg, const struct rendezvous_round *x) {
    (void) arg;
    current_round = x->round;
    say("round %" PRIu64 " restart %u group %u of %u rank %u of %u role %u of %u store %s %u",
        x->round, x->restart_count, x->group_rank, x->group_world_size, x->first_rank,
        x->world_size, x->first_role_rank, x->role_world_size, x->master_addr, x->master_port);
}

static void on_stop(void *arg, int64_t grace_max_ms, const char *why) {
    (void) arg;
    say("stop %" PRId64 " %s", grace_max_ms == CR_FOREVER ? -1 : grace_max_ms, why);
    if (!manual) rendezvous_join(r, 0);
}

static void on_end(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err) {
    (void) arg;
    say("end %d %s", (int) outcome, err->text);
    close_all();
}

static const struct rendezvous_events events = {
    .on_round = on_round, .on_stop = on_stop, .on_end = on_end};

static void obey(const char *command) {
    if (strcmp(command, "join") == 0) rendezvous_join(r, 0);
    else if (strcmp(command, "succeed") == 0) rendezvous_succeeded(r, current_round);
    else if (strcmp(command, "leave") == 0) rendezvous_leave(r);
    else if (strcmp(command, "quit") == 0) close_all();
    else if (strcmp(command, "fail") == 0) {
        rendezvous_failed(r, current_round, "rank 0 here: exit code 7", false);
        if (!manual) rendezvous_join(r, 0);
    } else {
        die(command, "unknown command");
    }
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf) {
    (void) handle;
    (void) size;
    *buf = uv_buf_init(line + line_len, (unsigned) (sizeof(line) - line_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    (void) stream;
    (void) buf;
    if (n < 0) {
        close_all();
        return;
    }
    line_len += (size_t) n;
    for (char *end; !ended && (end = memchr(line, '\n', line_len)) != NULL;) {
        *end++ = '\0';
        obey(line);
        line_len -= (size_t) (end - line);
        memmove(line, end, line_len);
    }
}

/* Sets an option of the backend etcd; `text` has the form of an item of --rdzv-conf. */
static void set_etcd(struct rendezvous_options *o, const char *text) {
    char unknown[VALUE_NAME_MAX];
    struct cr_error err = {0};
    if (value_rdzv_conf(text, o, unknown, &err) < 0) die(text, err.text);
    if (unknown[0] != '\0') die(text, "unknown");
}

static void set(struct rendezvous_options *o, const char *text) {
    char name[64] = "";
    const char *value = strchr(text, '=');
    int64_t number = 0;
    if (value == NULL || (size_t) (value - text) >= sizeof(name)) die(text, "not KEY=VALUE");
    memcpy(name, text, (size_t) (value++ - text));
    if (strcmp(name, "role") == 0) o->role = value;
    else if (strcmp(name, "run_id") == 0) o->run_id = value;
    else if (strcmp(name, "local_addr") == 0) o->local_addr = value;
    else if (strncmp(name, "etcd.", 5) == 0) set_etcd(o, text + 5);
    else if (cr_parse_i64(value, -1, INT64_MAX, &number) < 0) die(text, "not a number");
    if (strcmp(name, "manual") == 0) manual = (int) number;
    for (size_t i = 0; i < CR_ARRAY_LEN(settings); i++) {
        char *field = (char *) o + settings[i].offset;
        if (strcmp(name, settings[i].name) != 0) continue;
        if (settings[i].size == 8) memcpy(field, &number, 8);
        else *(uint32_t *) (void *) field = (uint32_t) number;
    }
}

int main(int argc, char **argv) {
    struct cr_error err = {0};
    struct rendezvous_options o = {
        .run_id = "job", .min_nodes = 1, .max_nodes = 1, .node_rank = -1, .role = "default",
        .local_world_size = 1, .join_timeout_ms = 600000, .last_call_timeout_ms = 300,
        .close_timeout_ms = 5000, .heartbeat_timeout_ms = 5000, .keep_alive_interval_ms = 5000,
        .keep_alive_max_attempt = 3, .read_timeout_ms = 60000, .is_host = -1,
        .etcd = {.is_candidate = -1, .prefix = "crun/rendezvous/"}};
    if (argc < 3) die("usage", "rdzv_node BACKEND ENDPOINT KEY=VALUE…");
    cr_log_setup("rdzv_node", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    (void) signal(SIGPIPE, SIG_IGN);
    o.backend = argv[1];
    for (int i = 3; i < argc; i++) set(&o, argv[i]);
    if (strcmp(o.backend, "etcd") == 0) {
        if (value_etcd_endpoints(argv[2], &o.etcd, &err) < 0) die(argv[2], err.text);
        o.endpoint = o.etcd.endpoints[0];
    } else if (cr_endpoint_parse(argv[2], 0, &o.endpoint, &err) < 0) {
        die(argv[2], err.text);
    }
    if (uv_loop_init(&loop) < 0) die("loop", "cannot start");
    if (rendezvous_open(&loop, &o, &events, NULL, &r, &err) < 0) die("open", err.text);
    (void) uv_pipe_init(&loop, &input, 0);
    (void) uv_pipe_open(&input, STDIN_FILENO);
    (void) uv_read_start((uv_stream_t *) &input, on_alloc, on_read);
    if (!manual) rendezvous_join(r, 0);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&loop);
    if (rc < 0) die("a handle is left", uv_strerror(rc));
    return 0;
}
