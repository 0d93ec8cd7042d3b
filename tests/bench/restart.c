/* Measures the time from the death of a worker to the start of its replacement.
 *
 *     restart [--rounds R] [--workers N] [--skip-torchrun]
 *
 * In the first attempt, rank 0 kills itself when all N workers run; the launcher stops the other
 * workers, which die at once by SIGTERM, and starts all workers again. Two times are measured with
 * the monotonic clock, both from just before the kill: until main() begins in rank 0's replacement,
 * and until main() begins in the last worker that is replaced. Workers are linked statically. In
 * each round every launcher runs once; the results are medians.
 *
 * This program is also the worker: if RESTART_DIR is set, it acts as a worker. */
#include "base/text/parse.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS_MAX  101
#define WORKERS_MAX 128
#define WORDS_MAX   32

extern char **environ;

/* ---- the worker ---- */

static void note(const char *dir, const char *what, int rank, int64_t value) {
    char path[512], text[32];
    (void) snprintf(path, sizeof path, "%s/%s.%d", dir, what, rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int len = snprintf(text, sizeof text, "%lld", (long long) value);
    if (fd < 0 || write(fd, text, (size_t) len) != len) _exit(9);
    (void) close(fd);
}

static int is_noted(const char *dir, const char *what, int rank) {
    char path[512];
    (void) snprintf(path, sizeof path, "%s/%s.%d", dir, what, rank);
    return access(path, F_OK) == 0;
}

static int read_env(const char *name) { return atoi(getenv(name) != NULL ? getenv(name) : "0"); }

static int be_a_worker(const char *dir, int64_t started) {
    int rank = read_env("RANK"), world = read_env("WORLD_SIZE");
    if (read_env("TORCHELASTIC_RESTART_COUNT") > 0) {
        note(dir, "again", rank, started);
        return 0;
    }
    note(dir, "there", rank, started);
    if (rank != 0)
        for (;;) (void) pause();
    for (int other = 1; other < world;) {
        if (is_noted(dir, "there", other))
            other++;
        else
            (void) poll(NULL, 0, 5);
    }
    (void) poll(NULL, 0, 50); /* wait 50 ms, in which all other workers reach pause() */
    note(dir, "died", 0, cr_monotonic_ns());
    (void) kill(getpid(), SIGKILL);
    return 0;
}

/* ---- the measurement ---- */

struct launcher {
    const char *name, *format;
    double share; /* part of the rounds in which this launcher runs: 1, or less for a slow
                   * launcher */
};

struct sample {
    double first_ms, last_ms;
};

static int64_t read_note(const char *dir, const char *what, int rank) {
    char path[512], text[32] = {0};
    int64_t value = -1;
    (void) snprintf(path, sizeof path, "%s/%s.%d", dir, what, rank);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return -1;
    if (read(fd, text, sizeof text - 1) > 0) (void) cr_parse_i64(text, 0, INT64_MAX, &value);
    (void) close(fd);
    (void) unlink(path);
    return value;
}

static int run_launcher(const char *format, int workers, const char *self) {
    char line[1024], number[16];
    char *words[WORDS_MAX] = {0}, *save = NULL;
    int n = 0, status = -1;
    (void) snprintf(line, sizeof line, "%s", format);
    (void) snprintf(number, sizeof number, "%d", workers);
    for (char *w = strtok_r(line, " ", &save); w != NULL && n < WORDS_MAX - 2;
         w = strtok_r(NULL, " ", &save))
        words[n++] = strcmp(w, "%d") == 0 ? number : w;
    words[n++] = (char *) self;
    posix_spawn_file_actions_t quiet;
    (void) posix_spawn_file_actions_init(&quiet);
    (void) posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    (void) posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int rc = posix_spawnp(&pid, words[0], &quiet, NULL, words, environ);
    (void) posix_spawn_file_actions_destroy(&quiet);
    if (rc != 0) return -rc;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status == 0 ? 0 : -ECHILD;
}

static int measure(const struct launcher *l, int workers, const char *self, const char *dir,
                   struct sample *out) {
    int code = run_launcher(l->format, workers, self);
    int64_t died = read_note(dir, "died", 0), last = 0, first = -1;
    for (int rank = 0; rank < workers; rank++) {
        int64_t again = read_note(dir, "again", rank);
        (void) read_note(dir, "there", rank);
        if (rank == 0) first = again;
        if (again < 0) code = code < 0 ? code : -ENODATA;
        if (again > last) last = again;
    }
    if (code < 0) return code;
    out->first_ms = (double) (first - died) / 1e6;
    out->last_ms = (double) (last - died) / 1e6;
    return 0;
}

static int by_first(const void *a, const void *b) {
    double x = ((const struct sample *) a)->first_ms, y = ((const struct sample *) b)->first_ms;
    return (x > y) - (x < y);
}

static int by_last(const void *a, const void *b) {
    double x = ((const struct sample *) a)->last_ms, y = ((const struct sample *) b)->last_ms;
    return (x > y) - (x < y);
}

static void report(const char *name, int workers, struct sample *samples, size_t count) {
    qsort(samples, count, sizeof *samples, by_first);
    double first = samples[count / 2].first_ms;
    qsort(samples, count, sizeof *samples, by_last);
    printf("%4d workers  %-10s replacement %8.2f ms   last of all %8.2f ms  [%.2f … %.2f]  (%zu "
           "runs)\n",
           workers, name, first, samples[count / 2].last_ms, samples[0].last_ms,
           samples[count - 1].last_ms, count);
}

int main(int argc, char **argv) {
    int64_t started = cr_monotonic_ns(), rounds = 21, workers = 4;
    if (getenv("RESTART_DIR") != NULL) return be_a_worker(getenv("RESTART_DIR"), started);
    size_t launcher_count = 2;
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            bad |= cr_parse_i64(argv[++i], 1, ROUNDS_MAX, &rounds) < 0;
        else if (strcmp(argv[i], "--workers") == 0 && i + 1 < argc)
            bad |= cr_parse_i64(argv[++i], 1, WORKERS_MAX, &workers) < 0;
        else if (strcmp(argv[i], "--skip-torchrun") == 0)
            launcher_count = 1;
        else
            bad = 1;
    }
    if (bad) {
        (void) fprintf(stderr, "usage: restart [--rounds R] [--workers N] [--skip-torchrun]\n");
        return 2;
    }
    const char *build = getenv("BUILD") != NULL ? getenv("BUILD") : "build";
    char crun[512], torch[1024], dir[] = "/tmp/crun-restart-XXXXXX";
    (void) snprintf(crun, sizeof crun,
                    "%s/bin/crun --max-restarts 1 --nproc-per-node %%d --no-python", build);
    (void) snprintf(torch, sizeof torch,
                    "%s --max_restarts 1 --monitor_interval 0.1 --nproc_per_node %%d --no_python",
                    getenv("TORCHRUN") != NULL ? getenv("TORCHRUN")
                                               : "/usr/bin/python3 tests/lib/torchrun.py");
    const struct launcher launchers[] = {{"crun", crun, 1}, {"torchrun", torch, 0.25}};
    if (mkdtemp(dir) == NULL || setenv("RESTART_DIR", dir, 1) < 0) return 1;
    (void) setenv("OMP_NUM_THREADS", "1", 1);
    static struct sample samples[2][ROUNDS_MAX];
    size_t taken[2] = {0};
    for (int64_t r = 0; r < rounds; r++) {
        for (size_t l = 0; l < launcher_count; l++) {
            if ((double) r >= (double) rounds * launchers[l].share && r >= 3) continue;
            int code = measure(&launchers[l], (int) workers, argv[0], dir, &samples[l][taken[l]]);
            if (code == 0)
                taken[l]++;
            else
                printf("%-10s a run failed: %s\n", launchers[l].name, strerror(-code));
        }
    }
    for (size_t l = 0; l < launcher_count; l++)
        if (taken[l] > 0) report(launchers[l].name, (int) workers, samples[l], taken[l]);
    (void) rmdir(dir);
    return taken[0] > 0 ? 0 : 1;
}
