/* Runs this node's part of paired tests (--pair-check): a health check whose command has, in its
 * environment, the partner's host and address and a port at which the two can meet. The port is
 * kept free for the command, which can listen at it if it sets SO_REUSEADDR (held_port.h). */
#include "agent/health/health.h"

#include "base/network/held_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define VARIABLES    4   /* number of variables that a paired test gets */
#define VARIABLE_MAX 320 /* size in bytes of a variable with its name and value, NUL included */

extern char **environ;

struct paired {
    struct health *health;
    struct health_options options;
    int socket; /* holds the port */
    uint16_t port;
    uint64_t id; /* of the last test */
    char variables[VARIABLES][VARIABLE_MAX];
    void (*on_result)(void *arg, uint64_t id, const char *why);
    void *arg;
    void (*on_close)(void *arg);
    void *close_arg;
};

/* ---- the environment ---- */

static bool is_own(const char *variable) { return strncmp(variable, "CRUN_PAIR_", 10) == 0; }

/* Builds the environment of a test: the agent's own, with the variables of the test in place of
 * those of that name. Returns 0 or -ENOMEM. */
static int build_environment(struct paired *p) {
    size_t n = 0;
    while (environ[n] != NULL) n++;
    free(p->options.environment);
    p->options.environment = calloc(n + VARIABLES + 1, sizeof(char *));
    if (p->options.environment == NULL) return -ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_own(environ[i])) p->options.environment[count++] = environ[i];
    }
    for (size_t i = 0; i < VARIABLES; i++) p->options.environment[count++] = p->variables[i];
    return 0;
}

static void write_variables(struct paired *p, const struct paired_test *t) {
    (void) snprintf(p->variables[0], VARIABLE_MAX, "CRUN_PAIR_RANK=%u", t->rank);
    (void) snprintf(p->variables[1], VARIABLE_MAX, "CRUN_PAIR_PEER=%s", t->host);
    (void) snprintf(p->variables[2], VARIABLE_MAX, "CRUN_PAIR_ADDR=%s", t->addr);
    (void) snprintf(p->variables[3], VARIABLE_MAX, "CRUN_PAIR_PORT=%u", t->port);
}

/* ---- the tests ---- */

/* Runs when a test is over. Unlike a health check, a failed test is not made again by this node:
 * the coordinator decides about further tests. */
static void on_over(void *arg, const char *why) {
    struct paired *p = arg;
    health_stop(p->health);
    p->on_result(p->arg, p->id, why);
}

int paired_open(uv_loop_t *loop, const char *command, int64_t timeout_ms, uint32_t workers,
                struct cr_port_range ports,
                void (*on_result)(void *arg, uint64_t id, const char *why), void *arg,
                struct paired **out, struct cr_error *err) {
    struct paired *p = calloc(1, sizeof(*p));
    if (p == NULL) return cr_fail(err, -ENOMEM, "cannot prepare paired tests: no memory left");
    p->on_result = on_result;
    p->arg = arg;
    p->options = (struct health_options){.what = "paired test", .command = command,
                                         .timeout_ms = timeout_ms, .workers = workers};
    p->socket = cr_hold_port(ports, &p->port);
    if (p->socket < 0) {
        int rc = p->socket;
        free(p);
        return cr_fail(err, rc, "cannot reserve a port for --pair-check: %s", strerror(-rc));
    }
    p->health = health_open(loop, &p->options, on_over, p);
    if (p->health == NULL) {
        (void) close(p->socket);
        free(p);
        return cr_fail(err, -ENOMEM, "cannot prepare paired tests: no memory left");
    }
    *out = p;
    return 0;
}

uint16_t paired_port(const struct paired *p) { return p->port; }

void paired_begin(struct paired *p, const struct paired_test *test, int rounds) {
    health_stop(p->health);
    p->id = test->id;
    write_variables(p, test);
    if (build_environment(p) < 0) p->on_result(p->arg, p->id, "no memory is left for the test");
    else health_begin(p->health, rounds);
}

void paired_stop(struct paired *p) { health_stop(p->health); }

static void on_health_closed(void *arg) {
    struct paired *p = arg;
    void (*on_close)(void *) = p->on_close;
    void *close_arg = p->close_arg;
    free(p->options.environment);
    (void) close(p->socket);
    free(p);
    on_close(close_arg);
}

void paired_close(struct paired *p, void (*on_close)(void *arg), void *arg) {
    p->on_close = on_close;
    p->close_arg = arg;
    health_close(p->health, on_health_closed, p);
}
