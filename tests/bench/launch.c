/* Measures how long each launcher (crun, torchrun, mpirun, mpiexec.hydra) takes to start N workers
 * that run /bin/true and to wait for their end, and how much memory it uses.
 *
 *     launch [--rounds R] [--sizes 1,8,32,128] [--skip-torchrun]
 *
 * In each round every launcher runs once, one after the other, so that noise of the machine
 * disturbs all launchers alike; torchrun, which is slow, takes part only in the first quarter of
 * the rounds. The program prints each launcher's median time, and the ratio of this time to that of
 * spawn_floor, a bare loop of posix_spawn() and waitpid(), measured in the same rounds. Memory is
 * ru_maxrss, the size of the largest single process of the launcher's process tree.
 *
 * Environment: BUILD (the build folder, default "build"), TORCHRUN (a command line that starts
 * torchrun). For a launcher that is not installed, the program prints "left out" and the reason. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 101
#define SIZES_MAX  16
#define WORDS_MAX  32

extern char **environ;

/* Seconds after which a launcher is killed and its run is counted as hung instead of timed. Open
 * MPI's mpirun sometimes hangs when its programs end at once. */
#define RUN_LIMIT_S 30

static volatile pid_t running;

static void on_alarm(int signum) {
    (void) signum;
    (void) kill(running, SIGKILL);
}

struct launcher {
    const char *name;
    const char *format; /* command line, split at spaces, no shell; %d is the worker count */
    double scale;       /* part of the rounds in which this launcher runs, from 0 to 1; but it runs
                         * in at least 3 rounds */
    int present;
};

struct sample {
    double ms;
    long rss_kib;
};

static int run_once(const char *format, int count, struct sample *out) {
    char line[1024];
    char *words[WORDS_MAX] = {0};
    int n = 0;
    char *save = NULL;
    (void) snprintf(line, sizeof(line), "%s", format);
    for (char *w = strtok_r(line, " ", &save); w != NULL && n < WORDS_MAX - 1;
         w = strtok_r(NULL, " ", &save)) {
        words[n++] = w;
    }
    char number[16];
    (void) snprintf(number, sizeof(number), "%d", count);
    for (int i = 0; i < n; i++) {
        if (strcmp(words[i], "%d") == 0) words[i] = number;
    }
    posix_spawn_file_actions_t quiet;
    (void) posix_spawn_file_actions_init(&quiet);
    (void) posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    (void) posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    struct timespec begin, end;
    struct rusage usage;
    pid_t pid;
    int status = -1;
    (void) clock_gettime(CLOCK_MONOTONIC, &begin);
    int rc = posix_spawnp(&pid, words[0], &quiet, NULL, words, environ);
    (void) posix_spawn_file_actions_destroy(&quiet);
    if (rc != 0) return -rc;
    (void) alarm(RUN_LIMIT_S);
    running = pid;
    while (wait4(pid, &status, 0, &usage) < 0) {
        if (errno != EINTR) return -errno;
    }
    (void) alarm(0);
    (void) clock_gettime(CLOCK_MONOTONIC, &end);
    out->ms =
        (double) (end.tv_sec - begin.tv_sec) * 1e3 + (double) (end.tv_nsec - begin.tv_nsec) / 1e6;
    out->rss_kib = usage.ru_maxrss;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return -ETIMEDOUT;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

static int by_ms(const void *a, const void *b) {
    double x = ((const struct sample *) a)->ms, y = ((const struct sample *) b)->ms;
    return (x > y) - (x < y);
}

static int read_sizes(char *text, int sizes[SIZES_MAX]) {
    int n = 0;
    char *save = NULL;
    for (char *w = strtok_r(text, ",", &save); w != NULL && n < SIZES_MAX;
         w = strtok_r(NULL, ",", &save)) {
        sizes[n] = atoi(w);
        if (sizes[n] < 1) return 0;
        n++;
    }
    return n;
}

static void measure(struct launcher *launchers, int launcher_count, int size, int rounds) {
    static struct sample samples[8][ROUNDS_MAX];
    int taken[8] = {0}, hung[8] = {0};
    struct sample warm;
    for (int l = 0; l < launcher_count; l++) {
        if (!launchers[l].present) continue;
        int rc = run_once(launchers[l].format, size, &warm);
        /* A second attempt, because hydra sometimes fails once on a busy machine. */
        if (rc == -ECHILD) rc = run_once(launchers[l].format, size, &warm);
        if (rc == 0 || rc == -ETIMEDOUT) continue;
        printf("%-10s left out: %s\n", launchers[l].name,
               rc == -ECHILD ? "it fails" : strerror(-rc));
        launchers[l].present = 0;
    }
    for (int r = 0; r < rounds; r++) {
        for (int l = 0; l < launcher_count; l++) {
            int wanted = (int) (rounds * launchers[l].scale);
            if (!launchers[l].present || r >= (wanted > 3 ? wanted : 3)) continue;
            int rc = run_once(launchers[l].format, size, &samples[l][taken[l]]);
            if (rc == 0) taken[l]++;
            if (rc == -ETIMEDOUT) hung[l]++;
        }
    }
    double floor_ms = 0;
    for (int l = 0; l < launcher_count; l++) {
        if (taken[l] == 0) continue;
        qsort(samples[l], (size_t) taken[l], sizeof(samples[l][0]), by_ms);
        struct sample median = samples[l][taken[l] / 2];
        if (l == 0) floor_ms = median.ms;
        printf(
            "%4d  %-10s %9.2f ms  [%8.2f … %8.2f]  %7.2fx floor  %7.1f MiB  (%d runs, %d hung)\n",
            size, launchers[l].name, median.ms, samples[l][0].ms, samples[l][taken[l] - 1].ms,
            floor_ms > 0 ? median.ms / floor_ms : 0, (double) median.rss_kib / 1024, taken[l],
            hung[l]);
    }
    (void) fflush(stdout);
}

int main(int argc, char **argv) {
    int rounds = 11, size_count = 4, sizes[SIZES_MAX] = {1, 8, 32, 128}, torchrun = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            rounds = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--sizes") == 0 && i + 1 < argc) {
            size_count = read_sizes(argv[++i], sizes);
        } else if (strcmp(argv[i], "--skip-torchrun") == 0) {
            torchrun = 0;
        } else {
            rounds = 0;
        }
    }
    if (rounds < 1 || rounds > ROUNDS_MAX || size_count < 1) {
        (void) fprintf(stderr, "usage: launch [--rounds 1…%d] [--sizes N,N,…] [--skip-torchrun]\n",
                       ROUNDS_MAX);
        return 2;
    }
    const char *build = getenv("BUILD") != NULL ? getenv("BUILD") : "build";
    char floor[512], crun[512], torch[1024];
    (void) snprintf(floor, sizeof(floor), "%s/tests/bench/spawn_floor %%d /bin/true", build);
    (void) snprintf(crun, sizeof(crun), "%s/bin/crun --nproc-per-node %%d --no-python /bin/true",
                    build);
    (void) snprintf(torch, sizeof(torch),
                    "%s --monitor_interval 0.1 --nproc_per_node %%d --no_python /bin/true",
                    getenv("TORCHRUN") != NULL ? getenv("TORCHRUN")
                                               : "/usr/bin/python3 tests/lib/torchrun.py");
    struct launcher launchers[] = {
        {"floor", floor, 1, 1},
        {"crun", crun, 1, 1},
        {"hydra", "mpiexec.hydra -n %d /bin/true", 1, 1},
        {"mpirun", "mpirun --allow-run-as-root --oversubscribe -n %d /bin/true", 1, 1},
        {"torchrun", torch, 0.25, torchrun},
    };
    struct sigaction action = {.sa_handler = on_alarm};
    (void) sigaction(SIGALRM, &action, NULL);
    /* If OMP_NUM_THREADS is not set, torchrun and crun set it and print a warning. */
    (void) setenv("OMP_NUM_THREADS", "1", 1);
    for (int s = 0; s < size_count; s++) {
        measure(launchers, (int) (sizeof(launchers) / sizeof(launchers[0])), sizes[s], rounds);
    }
    return 0;
}
