/* Starts many workers that each exit immediately, checks that the nursery (agent/process/nursery.h)
 * reports every exit, and measures the time per worker.
 *
 *     instant_exits [--count 20000] [--width 64] [--stretch]
 *
 * The program keeps --width workers running in one nursery until it has started --count workers.
 * Each worker gets an exit status as its argument, and the nursery must report each worker's end
 * exactly once, with that status.
 *
 * A launcher can lose the exit of a worker that ends after its clone and before the launcher has
 * recorded its pid. --stretch forces this order of events: after the clone of every 64th worker, a
 * test hook waits until that worker is dead; only then the nursery receives the pid.
 *
 * For comparison, the program also measures a bare loop of posix_spawn() and waitpid() with the
 * same worker program and --width, for at most 20000 workers. The program's exit status is 1 if an
 * exit was lost, reported twice or had the wrong status. */
#include "agent/process/nursery.h"
#include "agent/system/spawn.h"
#include "base/text/parse.h"
#include "base/time/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct spawn_test_hooks hooks;
const struct spawn_test_hooks *spawn_test_hooks = &hooks;

extern char **environ;

struct run {
    uv_loop_t loop;
    struct nursery *n;
    char program[512];
    int64_t count, started, ended, wrong;
    uint8_t *seen; /* number of reported exits, by worker */
};

static void expect_number(char out[8], int64_t i) {
    (void) snprintf(out, 8, "%d", (int) (i % 256));
}

static void start_next(struct run *r) {
    char number[8];
    expect_number(number, r->started);
    char *argv[] = {r->program, number, NULL};
    struct worker_spawn how = {.path = r->program,
                               .argv = argv,
                               .envp = environ,
                               .stdin_fd = -1,
                               .stdout_fd = -1,
                               .stderr_fd = -1};
    struct worker_process *w;
    struct cr_error err;
    if (worker_spawn(r->n, &how, (void *) (intptr_t) r->started, &w, &err) < 0) {
        (void) fprintf(stderr, "instant_exits: %s\n", err.text);
        exit(1);
    }
    r->started++;
}

static void on_exit_counted(void *arg, struct worker_process *w, const struct worker_exit *how) {
    struct run *r = arg;
    int64_t i = (intptr_t) worker_arg(w);
    r->seen[i]++;
    r->wrong += how->exit_code != (int) (i % 256);
    r->ended++;
    if (r->started < r->count) start_next(r);
    if (r->ended == r->count) nursery_end(r->n, SIGTERM, 1000);
}

static void on_empty_close(void *arg) { nursery_close(((struct run *) arg)->n, NULL); }

static void until_dead(pid_t pid) {
    static unsigned calls;
    siginfo_t info;
    if (calls++ % 64 == 0) (void) waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT);
}

static int64_t missed(const struct run *r) {
    int64_t count = 0;
    for (int64_t i = 0; i < r->count; i++) count += r->seen[i] != 1;
    return count;
}

static double run_nursery(struct run *r, int64_t width) {
    static const struct nursery_events events = {.on_exit = on_exit_counted,
                                                 .on_empty = on_empty_close};
    struct cr_error err;
    if (nursery_claim_process(&err) < 0 || uv_loop_init(&r->loop) < 0 ||
        nursery_open(&r->loop, &events, r, &r->n, &err) < 0) {
        (void) fprintf(stderr, "instant_exits: %s\n", err.text);
        exit(1);
    }
    int64_t begin = cr_monotonic_ns();
    for (int64_t i = 0; i < width && i < r->count; i++) start_next(r);
    (void) uv_run(&r->loop, UV_RUN_DEFAULT);
    return (double) (cr_monotonic_ns() - begin) / 1e3 / (double) r->count;
}

static double run_floor(const char *program, int64_t count, int64_t width) {
    char number[8];
    char *argv[] = {(char *) program, number, NULL};
    int64_t begin = cr_monotonic_ns();
    for (int64_t started = 0, ended = 0; ended < count;) {
        pid_t pid;
        if (started < count && started - ended < width) {
            expect_number(number, started++);
            if (posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0) exit(1);
        } else if (waitpid(-1, NULL, 0) > 0) {
            ended++;
        }
    }
    return (double) (cr_monotonic_ns() - begin) / 1e3 / (double) count;
}

int main(int argc, char **argv) {
    static struct run r = {.count = 20000};
    int64_t width = 64;
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
            bad |= cr_parse_i64(argv[++i], 1, 100000000, &r.count) < 0;
        else if (strcmp(argv[i], "--width") == 0 && i + 1 < argc)
            bad |= cr_parse_i64(argv[++i], 1, 4096, &width) < 0;
        else if (strcmp(argv[i], "--stretch") == 0)
            hooks.after_clone = until_dead;
        else
            bad = 1;
    }
    if (bad) {
        (void) fprintf(stderr, "usage: instant_exits [--count N] [--width W] [--stretch]\n");
        return 2;
    }
    const char *build = getenv("BUILD") != NULL ? getenv("BUILD") : "build";
    (void) snprintf(r.program, sizeof r.program, "%s/tests/bench/exit_with", build);
    r.seen = calloc((size_t) r.count, 1);
    if (r.seen == NULL) return 1;
    int64_t sample = r.count < 20000 ? r.count : 20000;
    double floor_us = run_floor(r.program, sample, width);
    double ours_us = run_nursery(&r, width);
    int64_t lost = missed(&r);
    printf("%lld workers, %lld in flight%s: %lld lost or doubled, %lld wrong\n",
           (long long) r.count, (long long) width,
           hooks.after_clone != NULL ? ", window stretched" : "", (long long) lost,
           (long long) r.wrong);
    printf("  nursery %7.1f us a worker   posix_spawn and waitpid %7.1f us   %.2fx\n", ours_us,
           floor_us, ours_us / floor_us);
    free(r.seen);
    return lost == 0 && r.wrong == 0 ? 0 : 1;
}
