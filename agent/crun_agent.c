/* crun-agent: the agent as a daemon. `serve` hosts the store and the coordinator for any number of
 * jobs, so that no training node is special; `status` asks one how its jobs are; `notify` tells nodes of
 * a job to go away with notice, `dump` asks for the flight records of its workers. */
#include "base/address.h"
#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/parse.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/server.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define DEFAULT_PORT  29400
#define USAGE         2
#define CLOSE_TIME_MS 30000
#define STATUS_MS     10000
#define NOTICE_MAX_S  1000000

__attribute__((format(printf, 2, 3)))
static int usage_error(const char *command, const char *fmt, ...) {
    char why[512];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    (void) fprintf(stderr, "crun-agent%s%s: %s; try 'crun-agent --help'\n", command[0] ? " " : "",
                   command, why);
    return USAGE;
}

/* getopt_long() stopped at one that is unknown ('?') or lacks its value (':'). */
static int option_error(const char *command, int c, int argc, char **argv) {
    const char *at = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    if (c == ':') return usage_error(command, "option '%s' needs a value", at);
    return usage_error(command, "unknown option '%s'", at);
}

/* ---- serve ---- */

struct daemon {
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct rendezvous_server *server;
    int ending;
};

static void on_server_closed(void *arg) {
    struct daemon *d = arg;
    uv_close((uv_handle_t *) &d->term, NULL);
    uv_close((uv_handle_t *) &d->interrupt, NULL);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct daemon *d = handle->data;
    if (d->ending) return;
    d->ending = 1;
    cr_info("ends on signal %d", signum);
    cr_notify("STOPPING=1");
    rendezvous_server_close(d->server, "the coordinator was told to end (crun-agent)",
                            on_server_closed, d);
}

static void watch(struct daemon *d, uv_signal_t *handle, int signum) {
    (void) uv_signal_init(&d->loop, handle);
    handle->data = d;
    (void) uv_signal_start(handle, on_signal, signum);
}

static int serve_at(const struct cr_endpoint *listen) {
    struct daemon d = {.ending = 0};
    struct cr_error err = {0};
    uint16_t port;
    int rc = uv_loop_init(&d.loop);
    if (rc < 0) {
        (void) fprintf(stderr, "crun-agent serve: cannot start: %s\n", uv_strerror(rc));
        return 1;
    }
    if (rendezvous_serve(&d.loop, listen, CLOSE_TIME_MS, &d.server, &port, &err) < 0) {
        (void) fprintf(stderr, "crun-agent serve: %s%s\n", err.text,
                       err.code == -EADDRINUSE ? "; give another port, or 0 for any free one" : "");
        (void) uv_loop_close(&d.loop);
        return 1;
    }
    cr_log_never_wait(); /* jobs wait for us */
    watch(&d, &d.term, SIGTERM);
    watch(&d, &d.interrupt, SIGINT);
    int v6 = strchr(listen->host, ':') != NULL;
    (void) printf("%s%s%s:%u\n", v6 ? "[" : "", listen->host, v6 ? "]" : "", port);
    (void) fflush(stdout);
    cr_notify("READY=1");
    cr_info("version %s, pid %d, serves on %s port %u", CRUN_VERSION, (int) getpid(), listen->host, port);
    (void) uv_run(&d.loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&d.loop);
    cr_log_flush();
    return 0;
}

static int command_serve(int argc, char **argv) {
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'}, {0}};
    struct cr_endpoint listen = {.host = "0.0.0.0", .port = DEFAULT_PORT};
    struct cr_error err = {0};
    for (int c; (c = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (c != 'l') return option_error("serve", c, argc, argv);
        if (cr_endpoint_parse(optarg, DEFAULT_PORT, &listen, &err) < 0) {
            return usage_error("serve", "--listen: %s", err.text);
        }
    }
    if (optind < argc) {
        return usage_error("serve", "'%s' is one word too many; give --listen=HOST:PORT", argv[optind]);
    }
    cr_raise_descriptor_limit();
    (void) signal(SIGPIPE, SIG_IGN);
    return serve_at(&listen);
}

/* The one word behind the options; 0 or the exit status. */
static int parse_where(const char *command, int argc, char **argv, struct cr_endpoint *out) {
    struct cr_error err = {0};
    if (argc == optind) return usage_error(command, "no HOST:PORT given");
    if (argc - optind > 1) {
        return usage_error(command, "'%s' is one word too many; give one HOST:PORT", argv[optind + 1]);
    }
    if (cr_endpoint_parse(argv[optind], DEFAULT_PORT, out, &err) < 0) {
        return usage_error(command, "%s", err.text);
    }
    return 0;
}

/* ---- status ---- */

static const char *const phase_names[] = {
#define P(name) #name,
    COORDINATOR_PHASES(P)
#undef P
};
static const char *const state_names[] = {
#define S(name) #name,
    SEAT_STATES(S)
#undef S
};

static const char *phase_name(uint32_t phase) {
    return phase < CR_ARRAY_LEN(phase_names) ? phase_names[phase] : "?";
}
static const char *state_name(uint32_t state) {
    return state < CR_ARRAY_LEN(state_names) ? state_names[state] : "?";
}

static void print_job(void *arg, const struct rdzv_status_job *j) {
    ++*(int *) arg;
    (void) printf("job '%s': %s, round %" PRId64 ", %" PRIu32 " of %" PRIu32 ":%" PRIu32
                  " nodes, %" PRIu32 " workers, restart %" PRIu32 " of %" PRIu32,
                  j->run_id, phase_name(j->phase), (int64_t) j->rounds - 1, j->nodes, j->min_nodes,
                  j->max_nodes, j->world_size, j->restart_count, j->max_restarts);
    if (j->awaited > 0) (void) printf(", %" PRIu32 " awaited", j->awaited);
    (void) printf("%s%s\n", j->why[0] ? "; last: " : "", j->why);
}

static void print_node(void *arg, const struct rdzv_status_node *n) {
    (void) arg;
    (void) printf("  %s (%s, process %" PRIu64 "): %s", n->host, n->addr, n->pid, state_name(n->state));
    if (n->group_rank >= 0) {
        (void) printf(", group rank %" PRId64 ", ranks %" PRIu32 "-%" PRIu32, n->group_rank,
                      n->first_rank, n->first_rank + n->local_world_size - 1);
    }
    (void) printf(", role %s, heard %.1f s ago\n", n->role, (double) n->silent_ms / 1000);
}

static void add_job(void *arg, const struct rdzv_status_job *j) {
    json_t *job = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:[]}", "id", j->run_id, "phase",
        phase_name(j->phase), "round", (json_int_t) j->rounds - 1, "restarts",
        (json_int_t) j->restart_count, "max_restarts", (json_int_t) j->max_restarts, "min_nodes",
        (json_int_t) j->min_nodes, "max_nodes", (json_int_t) j->max_nodes, "group_world_size",
        (json_int_t) j->group_world_size, "world_size", (json_int_t) j->world_size, "awaited",
        (json_int_t) j->awaited, "why", j->why, "members");
    if (job != NULL) (void) json_array_append_new(arg, job);
}

static void add_node(void *arg, const struct rdzv_status_node *n) {
    size_t jobs = json_array_size(arg);
    json_t *node = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:I, s:I, s:I, s:f}", "host", n->host, "addr", n->addr, "pid",
        (json_int_t) n->pid, "role", n->role, "state", state_name(n->state), "group_rank",
        (json_int_t) n->group_rank, "first_rank", (json_int_t) n->first_rank, "local_world_size",
        (json_int_t) n->local_world_size, "heard_s_ago", (double) n->silent_ms / 1000);
    if (node == NULL || jobs == 0) return;
    (void) json_array_append_new(json_object_get(json_array_get(arg, jobs - 1), "members"), node);
}

static int show_text(const struct cr_endpoint *where, struct cr_error *err) {
    static const struct rendezvous_status_events events = {print_job, print_node};
    int jobs = 0;
    int rc = rendezvous_status(where, STATUS_MS, &events, &jobs, err);
    if (rc == 0 && jobs == 0) (void) printf("no jobs\n");
    return rc;
}

static int show_json(const struct cr_endpoint *where, struct cr_error *err) {
    static const struct rendezvous_status_events events = {add_job, add_node};
    json_auto_t *jobs = json_array();
    int rc = rendezvous_status(where, STATUS_MS, &events, jobs, err);
    if (rc < 0) return rc;
    json_auto_t *answer = json_pack("{s:O}", "jobs", jobs);
    (void) json_dumpf(answer, stdout, JSON_INDENT(2));
    (void) printf("\n");
    return 0;
}

static int command_status(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    struct cr_endpoint where;
    struct cr_error err = {0};
    int json = 0;
    for (int c; (c = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (c != 'j') return option_error("status", c, argc, argv);
        json = 1;
    }
    int rc = parse_where("status", argc, argv, &where);
    if (rc != 0) return rc;
    rc = json ? show_json(&where, &err) : show_text(&where, &err);
    if (rc < 0) (void) fprintf(stderr, "crun-agent status: %s\n", err.text);
    return rc < 0 ? 1 : 0;
}

/* ---- notify, dump ---- */

static uint32_t kind_of(const char *text) {
    static const char *const kinds[] = {[RENDEZVOUS_CHANGE_LEAVE] = "leave",
                                        [RENDEZVOUS_CHANGE_PREEMPTION] = "preemption",
                                        [RENDEZVOUS_CHANGE_MAINTENANCE] = "maintenance"};
    for (uint32_t k = RENDEZVOUS_CHANGE_LEAVE; k < CR_ARRAY_LEN(kinds); k++) {
        if (strcmp(text, kinds[k]) == 0) return k;
    }
    return 0;
}

static int operate_at(const char *command, const struct cr_endpoint *where,
                      const struct rdzv_operate *what) {
    struct cr_error err = {0};
    uint32_t nodes;
    if (rendezvous_operate(where, STATUS_MS, what, &nodes, &err) < 0) {
        (void) fprintf(stderr, "crun-agent %s: %s\n", command, err.text);
        return 1;
    }
    (void) printf("%" PRIu32 " node%s told\n", nodes, nodes == 1 ? " was" : "s were");
    return 0;
}

/* One option of notify; 0 or the exit status. */
static int take_notify_option(int c, struct rdzv_operate *o) {
    int64_t seconds = 0;
    if (c == 'w') {
        o->why = optarg;
    } else if (c == 'k') {
        o->kind = kind_of(optarg);
        if (o->kind != 0) return 0;
        return usage_error("notify", "--kind: '%s' is not known; give leave, preemption or maintenance",
                           optarg);
    } else if (cr_parse_i64(optarg, 0, NOTICE_MAX_S, &seconds) < 0) {
        return usage_error("notify", "--in: '%s' is not a time; give whole seconds, 0 to %d", optarg,
                           NOTICE_MAX_S);
    } else {
        o->left_ms = seconds * 1000;
    }
    return 0;
}

/* dump has --job and --node only. */
static int take_operate_option(const char *command, int c, int argc, char **argv,
                               struct rdzv_operate *o) {
    if (c == 'j') return o->run_id = optarg, 0;
    if (c == 'n') return o->host = optarg, 0;
    if (c == ':' || c == '?') return option_error(command, c, argc, argv);
    if (strcmp(command, "dump") == 0) return usage_error(command, "it takes --job and --node only");
    return take_notify_option(c, o);
}

static int command_operate(const char *command, int argc, char **argv) {
    static const struct option options[] = {
        {"job", required_argument, NULL, 'j'},  {"node", required_argument, NULL, 'n'},
        {"kind", required_argument, NULL, 'k'}, {"in", required_argument, NULL, 'i'},
        {"why", required_argument, NULL, 'w'},  {0}};
    int is_dump = strcmp(command, "dump") == 0;
    struct rdzv_operate o = {.run_id = "", .host = "", .why = "asked for by an operator",
                             .kind = is_dump ? 0 : RENDEZVOUS_CHANGE_MAINTENANCE, .left_ms = 60000};
    struct cr_endpoint where;
    for (int c; (c = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        int rc = take_operate_option(command, c, argc, argv, &o);
        if (rc != 0) return rc;
    }
    int rc = parse_where(command, argc, argv, &where);
    if (rc != 0) return rc;
    if (o.run_id[0] == '\0') return usage_error(command, "--job is missing: which job is meant?");
    if (!is_dump && o.host[0] == '\0') {
        return usage_error(command, "--node is missing: which node is to go away?");
    }
    return operate_at(command, &where, &o);
}

/* ---- the command line ---- */

static void print_help(void) {
    (void) printf(
        "usage: crun-agent COMMAND [options]\n\n"
        "  serve [--listen=HOST:PORT]      host the rendezvous and the stores of any number of jobs\n"
        "                                  (default: all interfaces, port %d; port 0: any free one).\n"
        "                                  The first line on stdout is the address; SIGTERM or SIGINT\n"
        "                                  ends it. Launch with crun --rdzv-backend=c10d\n"
        "                                  --rdzv-endpoint=HOST:PORT --rdzv-conf=is_host=0\n"
        "  status [--json] HOST:PORT       jobs, rounds and nodes of the coordinator at HOST:PORT,\n"
        "                                  a crun-agent or a launcher that hosts\n"
        "  notify HOST:PORT --job ID --node HOST [--kind leave|preemption|maintenance]\n"
        "         [--in SECONDS] [--why TEXT]\n"
        "                                  the nodes of that host name go away within SECONDS (60):\n"
        "                                  workers may save, then the others go on without them\n"
        "  dump HOST:PORT --job ID [--node HOST]\n"
        "                                  workers that have the worker runtime write their flight\n"
        "                                  records\n\n"
        "Exit status: 0; 1: not done, the reason is on stderr; 2: the line cannot be understood.\n"
        "LOGLEVEL=info logs every round to stderr. More: man crun-agent\n", DEFAULT_PORT);
}

static int is_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

/* An answer that could not be written is no answer. */
static int finish(int status) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return status;
    (void) fprintf(stderr, "crun-agent: cannot write to stdout: %s\n", strerror(errno));
    return 1;
}

static int run_command(const char *name, int argc, char **argv) {
    if (strcmp(name, "serve") == 0) return command_serve(argc, argv);
    if (strcmp(name, "status") == 0) return command_status(argc, argv);
    if (strcmp(name, "notify") == 0 || strcmp(name, "dump") == 0) {
        return command_operate(name, argc, argv);
    }
    return usage_error("", "unknown command '%s'; give serve, status, notify or dump", name);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    cr_keep_standard_files();
    cr_log_setup("crun-agent", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    if (argc < 2) return usage_error("", "no command given");
    if (is_help(name) || strcmp(name, "help") == 0 || (argc == 3 && is_help(argv[2]))) {
        print_help();
        return finish(0);
    }
    if (strcmp(name, "--version") == 0) {
        (void) printf("crun-agent %s\n", CRUN_VERSION);
        return finish(0);
    }
    return finish(run_command(name, argc - 1, argv + 1));
}
