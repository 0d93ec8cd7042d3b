/* Tests agent/process/nursery.h: a worker that cannot be started is reported at once; no exit is
 * lost, even if the nursery learns of it late; deaths are reported in the order in which they
 * happened; when a nursery ends or this process dies, no process of the nursery is left, even if it
 * has moved to another Unix session.
 *
 * A test for which the way of starting matters runs three times: with a child that shares the
 * memory of this process until it execs (as vfork), with fork, and with fork on a kernel without
 * pidfds. A test for which containment matters runs with and without a cgroup. */
#include "agent/process/nursery_internal.h"
#include "agent/system/proc.h"
#include "base/cleanup.h"
#include "base/time/clock.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS_MAX 512
#define PATIENCE_MS 30000
#define CATCH_MS    5000 /* how long catch_in_execve() tries, in ms */

static struct spawn_test_hooks hooks;
const struct spawn_test_hooks *spawn_test_hooks = &hooks;

static struct orphans_test_hooks orphans_hooks;
const struct orphans_test_hooks *orphans_test_hooks = &orphans_hooks;

extern char **environ;

/* ---- a nursery, its loop, and what its callbacks reported ---- */

struct place {
    uv_loop_t loop;
    struct nursery *n;
    struct worker_exit ended[WORKERS_MAX];
    void *who[WORKERS_MAX];
    size_t ended_count;
    int empty, closed;
};

static void on_exit_noted(void *arg, struct worker_process *w, const struct worker_exit *how) {
    struct place *p = arg;
    ck_assert_uint_lt(p->ended_count, WORKERS_MAX);
    ck_assert_int_eq(worker_pid(w), how->pid);
    p->who[p->ended_count] = worker_arg(w);
    p->ended[p->ended_count++] = *how;
    uv_stop(&p->loop);
}

static void on_empty_noted(void *arg) {
    struct place *p = arg;
    p->empty++;
    uv_stop(&p->loop);
}

static void on_close_noted(void *arg) { ((struct place *) arg)->closed++; }

static const struct nursery_events noting = {.on_exit = on_exit_noted, .on_empty = on_empty_noted};

static void place_open(struct place *p) {
    struct cr_error err;
    memset(p, 0, sizeof *p);
    ck_assert_int_eq(nursery_claim_process(&err), 0);
    ck_assert_int_eq(uv_loop_init(&p->loop), 0);
    ck_assert_msg(nursery_open(&p->loop, &noting, p, &p->n, &err) == 0, "%s", err.text);
}

static int try_start(struct place *p, const char *path, struct cr_error *err) {
    char *argv[] = {(char *) path, NULL};
    struct worker_process *w;
    struct worker_spawn how = {.path = path,
                               .argv = argv,
                               .envp = environ,
                               .stdin_fd = -1,
                               .stdout_fd = -1,
                               .stderr_fd = -1};
    return worker_spawn(p->n, &how, NULL, &w, err);
}

static void run_until_ended(struct place *p, size_t count) {
    while (p->ended_count < count) (void) uv_run(&p->loop, UV_RUN_DEFAULT);
}

static void end_all(struct place *p, int signum, int64_t grace_ms) {
    int before = p->empty;
    nursery_end(p->n, signum, grace_ms);
    ck_assert_int_eq(p->empty, before); /* the callback must not run inside nursery_end() */
    ck_assert_int_eq(try_start(p, "/bin/true", NULL), -EBUSY);
    while (p->empty == before) (void) uv_run(&p->loop, UV_RUN_DEFAULT);
}

static void place_close(struct place *p) {
    nursery_close(p->n, on_close_noted);
    (void) uv_run(&p->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(p->closed, 1);
    ck_assert_int_eq(uv_loop_close(&p->loop), 0);
}

static struct worker_process *start(struct place *p, char *const *argv, int out_fd, void *arg) {
    struct cr_error err;
    struct worker_process *w = NULL;
    struct worker_spawn how = {.path = argv[0],
                               .argv = argv,
                               .envp = environ,
                               .stdin_fd = -1,
                               .stdout_fd = out_fd,
                               .stderr_fd = -1};
    ck_assert_msg(worker_spawn(p->n, &how, arg, &w, &err) == 0, "%s", err.text);
    return w;
}

static struct worker_process *start_shell(struct place *p, const char *script, int out_fd,
                                          void *arg) {
    char *argv[] = {(char *) "/bin/sh", (char *) "-c", (char *) script, NULL};
    return start(p, argv, out_fd, arg);
}

/* Starts a worker whose stdout is a pipe, and returns the reading end. */
static int start_talking(struct place *p, const char *script, struct worker_process **out) {
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    *out = start_shell(p, script, ends[1], NULL);
    (void) close(ends[1]);
    return ends[0];
}

static void read_line(int fd, char *line, size_t size) {
    size_t len = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (len + 1 < size) {
        int answer = poll(&ready, 1, PATIENCE_MS);
        if (answer < 0 && errno == EINTR) continue; /* interrupted by SIGCHLD */
        ck_assert_int_eq(answer, 1);
        ck_assert_int_eq(read(fd, line + len, 1), 1);
        if (line[len] == '\n') break;
        len++;
    }
    line[len] = '\0';
}

static pid_t read_pid(int fd) {
    char line[32];
    read_line(fd, line, sizeof line);
    return (pid_t) atoi(line);
}

static int is_alive(pid_t pid) {
    struct proc_stat stat;
    return proc_stat(pid, &stat) == 0 && stat.alive;
}

static void until_zombie(pid_t pid) {
    while (is_alive(pid)) (void) poll(NULL, 0, 1);
}

static void await_death(pid_t pid) {
    int fd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return;
    struct pollfd dead = {.fd = fd, .events = POLLIN};
    ck_assert_msg(poll(&dead, 1, PATIENCE_MS) == 1, "process %d lives on", (int) pid);
    (void) close(fd);
}

static int open_fds(void) {
    struct proc_dir dir;
    int count = 0;
    ck_assert_int_eq(proc_dir_open(&dir, AT_FDCWD, "/proc/self/fd"), 0);
    while (proc_dir_next(&dir) != NULL) count++;
    proc_dir_close(&dir);
    return count;
}

static void choose_way(int way) {
    hooks.force_fork = way > 0;
    hooks.force_no_pidfd = way > 1;
}

static void choose_containment(int way) {
    ck_assert_int_eq(setenv("CRUN_CGROUP", way ? "1" : "0", 1), 0);
}

/* ---- starting workers ---- */

static void write_file(const char *path, const char *text, mode_t mode) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    (void) fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

START_TEST(test_failures_to_start_are_reported) {
    struct place p;
    struct cr_error err;
    char dir[] = "/tmp/crun-spawn-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    choose_way(_i);
    place_open(&p);
    ck_assert_int_eq(try_start(&p, "/nonexistent/program", &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot execute '/nonexistent/program': No such file"));
    (void) snprintf(path, sizeof path, "%s/f", dir);
    write_file(path, "text", 0644);
    ck_assert_int_eq(try_start(&p, path, &err), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, "chmod +x"));
    write_file(path, "no header", 0755);
    ck_assert_int_eq(try_start(&p, path, &err), -ENOEXEC);
    write_file(path, "#!/nonexistent/interpreter\n", 0755);
    ck_assert_int_eq(try_start(&p, path, &err), -ENOENT);
    ck_assert_int_eq(try_start(&p, dir, &err), -EACCES);
    (void) unlink(path);
    (void) rmdir(dir);
    end_all(&p, SIGTERM, PATIENCE_MS); /* no worker was started, so no end of a worker is
                                        * reported */
    ck_assert_uint_eq(p.ended_count, 0);
    place_close(&p);
}
END_TEST

START_TEST(test_exit_codes_and_signals) {
    struct place p;
    choose_way(_i);
    place_open(&p);
    const char *const scripts[] = {"exit 0", "exit 7", "exit 255", "kill -9 $$", "kill -TERM $$"};
    const int codes[] = {0, 7, 255, -SIGKILL, -SIGTERM};
    for (size_t i = 0; i < CR_ARRAY_LEN(scripts); i++) {
        (void) start_shell(&p, scripts[i], -1, NULL);
        run_until_ended(&p, i + 1);
        ck_assert_int_eq(p.ended[i].exit_code, codes[i]);
        ck_assert_int_eq(p.ended[i].signal_sent, 0);
        ck_assert_uint_eq(p.ended[i].order, i + 1);
        ck_assert_int_gt(p.ended[i].usage.ru_maxrss, 0);
    }
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

START_TEST(test_a_worker_starts_clean) {
    struct place p;
    struct worker_process *w;
    char line[256];
    sigset_t block;
    choose_way(_i);
    (void) signal(SIGPIPE, SIG_IGN);
    (void) sigemptyset(&block);
    (void) sigaddset(&block, SIGUSR1);
    (void) sigprocmask(SIG_BLOCK, &block, NULL);
    struct rlimit files = {.rlim_cur = 500, .rlim_max = 600};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    ck_assert_int_eq(dup2(0, 57), 57); /* not close-on-exec, but the worker must not inherit it */
    place_open(&p);
    CR_AUTO_FD int in =
        start_talking(&p,
                      "grep -c 'Sig[BI][lg][kn]:.0*$' /proc/self/status; ls -m /proc/$$/fd; "
                      "cut -d' ' -f1,5,6 /proc/$$/stat; echo $PPID; ulimit -Sn; echo $CRUN_NURSERY",
                      &w);
    read_line(in, line, sizeof line);
    ck_assert_str_eq(line, "2"); /* no signal is blocked, none ignored */
    read_line(in, line, sizeof line);
    /* "ls -m" separates the names by commas itself; a pipe to another program would be one more
     * descriptor */
    ck_assert_str_eq(line, "0, 1, 2");
    char expected[64];
    (void) snprintf(expected, sizeof expected, "%d %d %d", worker_pid(w), worker_pid(w),
                    worker_pid(w));
    read_line(in, line, sizeof line);
    ck_assert_str_eq(line, expected); /* the worker leads its Unix process group and session */
    ck_assert_int_eq(read_pid(in), getpid());
    read_line(in, line, sizeof line);
    ck_assert_str_eq(line, "500"); /* the limit of a worker; this process has raised its own limit
                                    * to 600 */
    (void) getrlimit(RLIMIT_NOFILE, &files);
    ck_assert_uint_eq(files.rlim_cur, 600);
    read_line(in, line, sizeof line);
    ck_assert_str_eq(line, p.n->token);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
    sigset_t now; /* signal mask of this process, which must not have changed */
    (void) sigprocmask(SIG_BLOCK, NULL, &now);
    ck_assert(sigismember(&now, SIGUSR1) && !sigismember(&now, SIGTERM));
}
END_TEST

START_TEST(test_a_worker_runs_on_its_cpus) {
    struct place p;
    struct worker_process *w;
    struct cr_error err;
    struct cr_cpu_mask ours, last = {0}, absent = {0};
    char line[256], expected[256], *argv[] = {(char *) "/bin/grep", (char *) "Cpus_allowed_list",
                                              (char *) "/proc/self/status", NULL};
    int ends[2];
    choose_way(_i);
    ck_assert_int_eq(cr_cpu_allowed(&ours), 0);
    for (uint32_t cpu = cr_cpu_next(&ours, 0); cpu < CR_CPUS_MAX;
         cpu = cr_cpu_next(&ours, cpu + 1)) {
        last = (struct cr_cpu_mask){0};
        cr_cpu_add(&last, cpu);
        (void) snprintf(expected, sizeof expected, "Cpus_allowed_list:\t%u", cpu);
    }
    place_open(&p);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    struct worker_spawn how = {.path = argv[0], .argv = argv, .envp = environ, .stdin_fd = -1,
                               .stdout_fd = ends[1], .stderr_fd = -1, .cpus = &last};
    ck_assert_int_eq(worker_spawn(p.n, &how, NULL, &w, &err), 0);
    read_line(ends[0], line, sizeof line);
    ck_assert_str_eq(line, expected);
    struct cr_cpu_mask after;
    ck_assert_int_eq(cr_cpu_allowed(&after), 0);
    ck_assert_mem_eq(&after, &ours, sizeof ours); /* the CPUs of this process have not changed */
    cr_cpu_add(&absent, CR_CPUS_MAX - 1);
    how.cpus = &absent;
    ck_assert_int_eq(worker_spawn(p.n, &how, NULL, &w, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot set the CPUs of '/bin/grep'"));
    (void) close(ends[0]);
    (void) close(ends[1]);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

START_TEST(test_streams_may_be_swapped) {
    struct place p;
    int a[2], b[2];
    char text[8] = {0};
    choose_way(_i);
    ck_assert_int_eq(pipe2(a, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(b, O_CLOEXEC), 0);
    int keep[2] = {fcntl(1, F_DUPFD_CLOEXEC, 20), fcntl(2, F_DUPFD_CLOEXEC, 20)};
    place_open(&p);
    (void) dup2(a[1], 1);
    (void) dup2(b[1], 2);
    char *argv[] = {(char *) "/bin/sh", (char *) "-c", (char *) "echo out; echo err >&2", NULL};
    struct worker_process *w;
    struct worker_spawn how = {.path = argv[0],
                               .argv = argv,
                               .envp = environ,
                               .stdin_fd = -1,
                               .stdout_fd = 2,
                               .stderr_fd = 1};
    int code = worker_spawn(p.n, &how, NULL, &w, NULL);
    (void) dup2(keep[0], 1);
    (void) dup2(keep[1], 2);
    ck_assert_int_eq(code, 0);
    run_until_ended(&p, 1);
    ck_assert_int_eq(read(a[0], text, sizeof text), 4);
    ck_assert_mem_eq(text, "err\n", 4);
    ck_assert_int_eq(read(b[0], text, sizeof text), 4);
    ck_assert_mem_eq(text, "out\n", 4);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

START_TEST(test_no_descriptor_leaks) {
    struct place p;
    choose_way(_i);
    place_open(&p);
    (void) start_shell(&p, "exit 0", -1, NULL); /* the first start may give up the cgroup */
    run_until_ended(&p, 1);
    int opened = open_fds();
    for (size_t i = 0; i < 60; i++) {
        struct cr_error err;
        (void) start_shell(&p, "exit 0", -1, NULL);
        ck_assert_int_eq(try_start(&p, "/nonexistent", &err), -ENOENT);
    }
    run_until_ended(&p, 61);
    ck_assert_int_eq(open_fds(), opened);
    end_all(&p, SIGTERM, PATIENCE_MS);
    ck_assert_int_eq(open_fds(), opened);
    place_close(&p);
}
END_TEST

#define MANY 100 /* more than NURSERY_SLOTS */

START_TEST(test_many_at_once) {
    struct place p;
    char *argv[] = {(char *) "/bin/sh", (char *) "-c", (char *) "exit $0", NULL, NULL};
    char *each[MANY][5], number[MANY][8];
    struct worker_spawn how[MANY];
    struct worker_process *out[MANY];
    void *who[MANY];
    size_t failed;
    struct cr_error err;
    choose_way(_i);
    for (size_t i = 0; i < MANY; i++) {
        memcpy(each[i], argv, sizeof argv);
        (void) snprintf(number[i], sizeof number[i], "%zu", i);
        each[i][3] = number[i];
        who[i] = (void *) i;
        how[i] = (struct worker_spawn){argv[0], each[i], environ, -1, -1, -1, NULL};
    }
    place_open(&p);
    ck_assert_int_eq(worker_spawn_all(p.n, how, who, MANY, out, &failed, &err), 0);
    run_until_ended(&p, MANY);
    for (size_t i = 0; i < MANY; i++)
        ck_assert_int_eq(p.ended[i].exit_code, (int) (size_t) p.who[i]);

    /* One worker cannot be started: the error names it, and nursery_end() ends those that run. */
    for (size_t i = 0; i < MANY; i++) each[i][2] = (char *) "exec sleep 1000";
    how[50].path = "/nonexistent/program";
    ck_assert_int_eq(worker_spawn_all(p.n, how, who, MANY, out, &failed, &err), -ENOENT);
    ck_assert_uint_eq(failed, 50);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot execute '/nonexistent/program'"));
    size_t running = 0;
    for (size_t i = 0; i < MANY; i++) running += out[i] != NULL;
    ck_assert_uint_ge(running, 50);
    ck_assert_ptr_null(out[50]);
    end_all(&p, SIGTERM, PATIENCE_MS);
    ck_assert_uint_eq(p.ended_count, MANY + running);
    place_close(&p);
}
END_TEST

/* Linux 6.18 kills every process that starts in a cgroup on which cgroup.kill was used before.
 * Workers must start nevertheless. */
START_TEST(test_a_cgroup_that_kills_at_birth) {
    struct place p;
    choose_containment(1);
    place_open(&p);
    cgroup_kill(&p.n->cgroup);
    for (size_t i = 0; i < 3; i++) (void) start_shell(&p, "exit 6", -1, NULL);
    run_until_ended(&p, 3);
    for (size_t i = 0; i < 3; i++) ck_assert_int_eq(p.ended[i].exit_code, 6);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

/* ---- a cgroup in which no worker can be started ---- */

/* Sends what this process writes to stderr into a file of its own. Returns the file. */
static FILE *divert_stderr(void) {
    FILE *said = tmpfile();
    ck_assert_ptr_nonnull(said);
    ck_assert_int_eq(dup2(fileno(said), STDERR_FILENO), STDERR_FILENO);
    return said;
}

static size_t count_lines(FILE *said, const char *text) {
    char line[4096];
    size_t count = 0;
    rewind(said);
    while (fgets(line, sizeof line, said) != NULL) count += strstr(line, text) != NULL;
    return count;
}

/* Opens a nursery with a cgroup. Returns false if this process may make none, in which case there
 * is nothing to test. */
static bool open_with_cgroup(struct place *p, int way) {
    choose_way(way);
    choose_containment(1);
    place_open(p);
    if (p->n->cgroup.fd >= 0) return true;
    (void) printf("note: no cgroup v2 is delegated here; not tested\n");
    place_close(p);
    return false;
}

/* Somebody removes the cgroup while no worker is in it. The kernel refuses a clone3() into it with
 * ENODEV, and a forked child finds no file cgroup.procs. */
START_TEST(test_a_cgroup_that_takes_no_worker_is_given_up_and_named) {
    struct place p;
    FILE *said = divert_stderr();
    if (!open_with_cgroup(&p, _i)) return;
    ck_assert_int_eq(rmdir(p.n->cgroup.path), 0);
    for (size_t i = 0; i < 3; i++) (void) start_shell(&p, "exit 6", -1, NULL);
    run_until_ended(&p, 3);
    for (size_t i = 0; i < 3; i++) ck_assert_int_eq(p.ended[i].exit_code, 6);
    ck_assert_uint_eq(count_lines(said, "warning: cannot start a worker in the cgroup '"), 1);
    ck_assert_uint_eq(count_lines(said, p.n->cgroup.path), 1);
    ck_assert_uint_eq(count_lines(said, strerror(ENODEV)) + count_lines(said, strerror(ENOENT)), 1);
    ck_assert_uint_eq(count_lines(said, "workers start outside of it"), 1);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
    (void) fclose(said);
}
END_TEST

/* Lets this process have no further process, and tries to start a worker. If this process is root,
 * which has no such limit, it is somebody else meanwhile. */
static int try_start_above_the_limit(struct place *p, struct cr_error *err) {
    struct rlimit limit, none;
    bool is_root = geteuid() == 0;
    ck_assert_int_eq(getrlimit(RLIMIT_NPROC, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &none), 0);
    if (is_root) ck_assert_int_eq(setresuid(65534, 65534, 0), 0);
    int rc = try_start(p, "/bin/true", err);
    if (is_root) ck_assert_int_eq(setresuid(0, 0, 0), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
    return rc;
}

/* A start may fail for a reason that has nothing to do with the cgroup. Then the nursery keeps its
 * cgroup. */
START_TEST(test_the_limit_of_processes_does_not_cost_the_cgroup) {
    struct place p;
    struct cr_error err = {0};
    FILE *said = divert_stderr();
    if (!open_with_cgroup(&p, _i)) return;
    ck_assert_int_eq(try_start_above_the_limit(&p, &err), -EAGAIN);
    ck_assert_ptr_nonnull(strstr(err.text, "raise the limit of processes"));
    struct worker_process *w = start_shell(&p, "exec sleep 1000", -1, NULL);
    ck_assert(cgroup_has(&p.n->cgroup, worker_pid(w)));
    ck_assert_uint_eq(count_lines(said, "cgroup"), 0);
    end_all(&p, SIGKILL, PATIENCE_MS);
    place_close(&p);
    (void) fclose(said);
}
END_TEST

/* ---- every exit of a worker is reported ---- */

START_TEST(test_exit_before_the_pid_is_noted) {
    struct place p;
    choose_way(_i);
    hooks.after_clone = until_zombie; /* the worker is dead before the nursery notes its pid */
    place_open(&p);
    for (size_t i = 0; i < 20; i++) (void) start_shell(&p, "exit 3", -1, NULL);
    run_until_ended(&p, 20);
    for (size_t i = 0; i < 20; i++) {
        ck_assert_int_eq(p.ended[i].exit_code, 3);
        ck_assert_uint_eq(p.ended[i].order, i + 1);
    }
    end_all(&p, SIGTERM, PATIENCE_MS);
    ck_assert_uint_eq(p.ended_count, 20);
    place_close(&p);
}
END_TEST

START_TEST(test_order_of_death_when_we_are_late) {
    struct place p;
    struct worker_process *w[100];
    place_open(&p);
    for (size_t i = 0; i < 100; i++) w[i] = start_shell(&p, "exec sleep 1000", -1, (void *) i);
    pid_t pid[100];
    for (size_t i = 0; i < 100; i++) pid[i] = worker_pid(w[i]);
    /* kills 100 workers in a mixed order: these are more exits than one batch of events holds */
    for (size_t i = 0; i < 100; i++) {
        pid_t victim = pid[i * 37 % 100];
        ck_assert_int_eq(kill(victim, SIGKILL), 0);
        until_zombie(victim);
    }
    run_until_ended(&p, 100);
    for (size_t i = 0; i < 100; i++) {
        ck_assert_uint_eq((size_t) p.who[i], i * 37 % 100);
        ck_assert_uint_eq(p.ended[i].order, i + 1);
    }
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

START_TEST(test_the_dead_are_no_victims) {
    struct place p;
    place_open(&p);
    struct worker_process *first = start_shell(&p, "exit 5", -1, (void *) 1);
    struct worker_process *second = start_shell(&p, "exec sleep 1000", -1, (void *) 2);
    (void) second;
    until_zombie(worker_pid(first));
    worker_signal(first, SIGTERM); /* has no effect: the worker is dead, although on_exit was not
                                    * called yet */
    end_all(&p, SIGTERM, PATIENCE_MS);
    ck_assert_uint_eq(p.ended_count, 2);
    ck_assert_int_eq(p.ended[0].signal_sent, 0);
    ck_assert_int_eq(p.ended[0].exit_code, 5);
    ck_assert_int_eq(p.ended[1].signal_sent, SIGTERM);
    ck_assert_int_eq(p.ended[1].exit_code, -SIGTERM);
    place_close(&p);
}
END_TEST

/* ---- ending a nursery ---- */

START_TEST(test_grace_then_kill) {
    struct place p;
    struct worker_process *w;
    choose_containment(_i & 1);
    choose_way(_i >> 1);
    place_open(&p);
    CR_AUTO_FD int in = start_talking(&p, "trap '' TERM; sleep 1000 & echo $!; wait; wait", &w);
    pid_t child = read_pid(in);
    end_all(&p, SIGTERM, 200);
    ck_assert_int_eq(p.ended[0].exit_code, -SIGKILL);
    ck_assert_int_eq(p.ended[0].signal_sent, SIGKILL);
    ck_assert(!is_alive(child));
    /* The nursery may be filled again. */
    (void) start_shell(&p, "exit 4", -1, NULL);
    run_until_ended(&p, 2);
    ck_assert_int_eq(p.ended[1].exit_code, 4);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

/* A kept worker and its child stay alive. The child of an ended worker is killed, although that
 * child is in a Unix session of its own. */
START_TEST(test_a_kept_worker_survives_the_others) {
    struct place p;
    struct worker_process *kept, *other;
    choose_containment(_i & 1);
    choose_way(_i >> 1);
    place_open(&p);
    CR_AUTO_FD int in = start_talking(&p, "sleep 1000 & echo $!; wait", &kept);
    CR_AUTO_FD int hidden = start_talking(
        &p, "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' & wait", &other);
    pid_t child = read_pid(in), stranger = read_pid(hidden), self = worker_pid(kept);
    worker_keep(kept, 1);
    end_all(&p, SIGTERM, 200);
    ck_assert_uint_eq(p.ended_count, 1);
    ck_assert(is_alive(self) && is_alive(child) && !is_alive(stranger));
    (void) start_shell(&p, "exit 4", -1, NULL); /* uses the slot of the worker that has ended */
    run_until_ended(&p, 2);
    worker_keep(kept, 0);
    end_all(&p, SIGTERM, PATIENCE_MS);
    ck_assert_uint_eq(p.ended_count, 3);
    ck_assert_int_eq(p.ended[2].exit_code, -SIGTERM);
    ck_assert(!is_alive(self) && !is_alive(child));
    place_close(&p);
}
END_TEST

START_TEST(test_a_stopped_worker_obeys) {
    struct place p;
    struct worker_process *w;
    place_open(&p);
    CR_AUTO_FD int in =
        start_talking(&p, "trap 'exit 9' TERM; echo; while :; do sleep 0.05; done", &w);
    (void) read_pid(in);
    worker_signal(w, SIGSTOP);
    end_all(&p, SIGTERM, PATIENCE_MS);
    ck_assert_int_eq(p.ended[0].exit_code, 9);
    place_close(&p);
}
END_TEST

START_TEST(test_ending_again_hastens) {
    struct place p;
    struct worker_process *w;
    place_open(&p);
    CR_AUTO_FD int in =
        start_talking(&p, "trap 'echo term' TERM; echo; while :; do sleep 0.02; done", &w);
    (void) read_pid(in);
    nursery_end(p.n, SIGTERM, 10 * PATIENCE_MS);
    char line[16];
    read_line(in, line, sizeof line);
    ck_assert_str_eq(line, "term");
    end_all(&p, SIGTERM, 100);
    ck_assert_int_eq(p.ended[0].exit_code, -SIGKILL);
    place_close(&p);
}
END_TEST

/* Scripts that leave a process behind; each prints the pid of that process, which must not outlive
 * the nursery. */
static const char *const hostile[] = {
    /* a child in the Unix process group of a worker that has exited */
    "sleep 1000 & echo $!",
    /* a child in that process group which ignores SIGTERM */
    "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); exec sleep 1000) &",
    /* a child in a Unix session of its own */
    "setsid sh -c 'echo $$; exec sleep 1000' &",
    /* a grandchild in a Unix session of its own, with closed streams, which ignores signals */
    ("setsid sh -c '(trap \"\" TERM HUP INT; sh -c \"echo \\$PPID\"; exec sleep 1000 <&- >&- 2>&-) "
     "&' &"),
    /* a child without the environment variable that marks the nursery's processes */
    "env -i setsid sh -c 'echo $$; exec sleep 1000 <&- >&- 2>&-' &",
};
#define HOSTILE ((int) CR_ARRAY_LEN(hostile))

START_TEST(test_nothing_is_left_behind) {
    struct place p;
    struct worker_process *w;
    choose_containment(_i / HOSTILE);
    place_open(&p);
    CR_AUTO_FD int in = start_talking(&p, hostile[_i % HOSTILE], &w);
    pid_t left = read_pid(in);
    run_until_ended(&p, 1);
    ck_assert(is_alive(left));
    end_all(&p, SIGTERM, 100);
    ck_assert_msg(!is_alive(left), "process %d lives on", (int) left);
    place_close(&p);
}
END_TEST

START_TEST(test_hostile_children_of_the_living) {
    struct place p;
    struct worker_process *w;
    char script[512];
    choose_containment(_i / HOSTILE);
    (void) snprintf(script, sizeof script, "%s\ntrap '' TERM; while :; do sleep 1; done",
                    hostile[_i % HOSTILE]);
    place_open(&p);
    CR_AUTO_FD int in = start_talking(&p, script, &w);
    pid_t left = read_pid(in);
    end_all(&p, SIGTERM, 0);
    ck_assert_msg(!is_alive(left), "process %d lives on", (int) left);
    place_close(&p);
}
END_TEST

START_TEST(test_adopted_zombies_are_reaped) {
    struct place p;
    struct worker_process *w;
    place_open(&p);
    CR_AUTO_FD int in =
        start_talking(&p, "setsid sh -c 'sleep 0.1 & echo $!' & wait; exec sleep 1000", &w);
    pid_t adopted = read_pid(in);
    /* until this process has reaped it */
    while (kill(adopted, 0) == 0) (void) uv_run(&p.loop, UV_RUN_ONCE);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
}
END_TEST

START_TEST(test_children_of_others_are_spared) {
    struct place p, q;
    struct worker_process *w;
    char path[PROC_PATH_MAX];
    int gate[2];
    ck_assert_int_eq(pipe(gate), 0);
    pid_t before = fork(); /* started before the nursery was made, in a Unix session of its own */
    if (before == 0) {
        (void) setsid();
        (void) !write(gate[1], "x", 1);
        for (;;) (void) pause();
    }
    ck_assert_int_eq(read(gate[0], path, 1), 1);
    place_open(&p);
    pid_t ours = fork(); /* a child in the Unix session of this process, as popen(3) makes it */
    if (ours == 0)
        for (;;) (void) pause();
    place_open(&q);
    CR_AUTO_FD int in = start_talking(&q, "setsid sleep 1000 & echo; exec sleep 1000", &w);
    (void) read_pid(in);
    (void) start_shell(&p, "exec sleep 1000", -1, NULL);
    end_all(&p, SIGKILL, 0);
    place_close(&p);
    ck_assert(is_alive(before) && is_alive(ours) && is_alive(worker_pid(w)));
    ck_assert(is_alive(q.n->warden.pid));
    end_all(&q, SIGKILL, 0);
    place_close(&q);
    ck_assert(is_alive(before) && is_alive(ours));
    (void) kill(before, SIGKILL);
    (void) kill(ours, SIGKILL);
    ck_assert_int_eq(waitpid(before, NULL, 0), before);
    ck_assert_int_eq(waitpid(ours, NULL, 0), ours);
}
END_TEST

/* ---- orphans whose nursery is not known yet ---- */

static bool in_execve; /* true if the test makes each orphan seem to be in the middle of execve */

static int environ_has(pid_t pid, const char *token) {
    return in_execve ? -EAGAIN : proc_environ_has(pid, token);
}

struct ticker {
    uv_timer_t timer;
    int ticks;
};

static void on_tick(uv_timer_t *timer) {
    struct ticker *t = timer->data;
    if (++t->ticks < 50) return;
    in_execve = false;
    uv_close((uv_handle_t *) timer, NULL);
}

/* With two nurseries in this process, the nursery of an orphan is known by the orphan's
 * environment, which cannot be read in the middle of execve. During execve the event loop must
 * continue to run (here for 50 ticks of a timer), and the orphan must get its signal after execve.
 * If _i is 1, a worker lives at that time. */
START_TEST(test_the_loop_runs_while_an_orphan_executes) {
    struct place p, other;
    struct ticker t = {.timer = {.data = &t}};
    struct worker_process *w;
    choose_containment(0);
    orphans_hooks.environ_has = environ_has;
    place_open(&p);
    place_open(&other);
    CR_AUTO_FD int in = start_talking(&p, "setsid sh -c 'echo $$; exec sleep 1000' &", &w);
    pid_t left = read_pid(in);
    run_until_ended(&p, 1);
    CR_AUTO_FD int deaf =
        start_talking(&p, _i == 0 ? "echo" : "trap '' TERM; echo; while :; do sleep 1; done", &w);
    (void) read_pid(deaf);
    if (_i == 0) run_until_ended(&p, 2);
    in_execve = true;
    (void) uv_timer_init(&p.loop, &t.timer);
    (void) uv_timer_start(&t.timer, on_tick, 1, 1);
    nursery_end(p.n, SIGTERM, PATIENCE_MS);
    while (in_execve) {
        ck_assert(is_alive(left) && p.empty == 0);
        (void) uv_run(&p.loop, UV_RUN_ONCE);
    }
    ck_assert_int_eq(t.ticks, 50);
    while (is_alive(left)) (void) uv_run(&p.loop, UV_RUN_ONCE); /* until the signal has ended it */
    ck_assert_uint_eq(p.ended_count, _i == 0 ? 2 : 1);
    end_all(&p, SIGKILL, 0);
    place_close(&p);
    end_all(&other, SIGTERM, 0);
    place_close(&other);
}
END_TEST

/* ---- what launchers before this one have left ---- */

static struct warden_test_hooks warden_hooks;
const struct warden_test_hooks *warden_test_hooks = &warden_hooks;

static uint64_t inode_of(const char *path) {
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return (uint64_t) st.st_ino;
}

/* Makes the cgroup of a launcher that is dead, beside that of the nursery. Its start time shows
 * that the launcher is not this process. */
static void leave_cgroup(const struct place *p, char path[PATH_MAX]) {
    const char *own = p->n->cgroup.path;
    (void) snprintf(path, PATH_MAX, "%.*s/crun-%d-1-%" PRIu64 "-%" PRIu64 "-left",
                    (int) (strrchr(own, '/') - own), own, (int) getpid(),
                    inode_of("/proc/self/ns/pid"), inode_of("/proc/self/ns/cgroup"));
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void stop_here(void) { (void) raise(SIGSTOP); }

/* On a busy machine, a nursery may be closed before its warden has run for the first time. A
 * stopped warden stands for one that does not get a processor. */
START_TEST(test_a_warden_that_comes_late_has_leftovers_removed) {
    struct place p;
    char left[PATH_MAX];
    warden_hooks.before_deputy = stop_here;
    if (!open_with_cgroup(&p, 0)) return;
    leave_cgroup(&p, left);
    pid_t warden = p.n->warden.pid;
    (void) start_shell(&p, "exit 0", -1, NULL);
    run_until_ended(&p, 1);
    end_all(&p, SIGTERM, PATIENCE_MS);
    place_close(&p);
    ck_assert_int_eq(access(left, F_OK), 0);
    ck_assert_int_eq(waitpid(warden, NULL, WUNTRACED), warden);
    (void) kill(warden, SIGCONT);
    for (int i = 0; i < PATIENCE_MS / 10 && access(left, F_OK) == 0; i++) (void) poll(NULL, 0, 10);
    ck_assert_msg(access(left, F_OK) < 0, "the cgroup '%s' is left", left);
    ck_assert_int_eq(waitpid(warden, NULL, 0), warden);
}
END_TEST

/* ---- the death of the launcher ---- */

/* Runs in a process of its own: fills a nursery with every hostile worker, writes the pids to the
 * descriptor `tell`, and dies by SIGKILL. */
static _Noreturn void die_with_a_nursery(int tell, int replace_warden) {
    static struct place p;
    struct worker_process *w;
    place_open(&p);
    if (replace_warden) {
        pid_t first = p.n->warden.pid;
        (void) kill(first, SIGKILL);
        while (p.n->warden.pid == first) (void) uv_run(&p.loop, UV_RUN_ONCE);
    }
    for (int i = 0; i < HOSTILE; i++) {
        /* Without a cgroup, only a sub-reaper finds the last hostile process, because that process
         * has no environment. The sub-reaper is this process, which will die, so the last hostile
         * process is not started. */
        if (i == HOSTILE - 1 && p.n->cgroup.fd < 0) continue;
        int in = start_talking(&p, hostile[i], &w);
        (void) dprintf(tell, "%d\n", read_pid(in));
    }
    (void) start_talking(&p, "trap '' TERM; while :; do sleep 1; done", &w);
    (void) dprintf(tell, "%d\n", worker_pid(w));
    (void) dprintf(tell, "%d\n", p.n->warden.pid);
    (void) dprintf(tell, "%s\n", p.n->cgroup.fd >= 0 ? p.n->cgroup.path : "");
    (void) kill(0, SIGKILL); /* the whole Unix process group, as kill -9 -PGID does */
    abort();
}

START_TEST(test_our_death_takes_all_along) {
    int ends[2], status;
    char line[PATH_MAX];
    choose_containment(_i & 1);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    /* the dead become zombies of this process, so that their pids are not used again */
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        (void) setpgid(0, 0);
        die_with_a_nursery(ends[1], _i >> 1);
    }
    (void) close(ends[1]);
    ck_assert_int_eq(waitpid(launcher, &status, 0), launcher);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    FILE *told = fdopen(ends[0], "r");
    size_t count = 0;
    line[0] = '\0';
    while (fgets(line, sizeof line, told) != NULL && line[0] >= '0' && line[0] <= '9') {
        await_death((pid_t) atoi(line));
        count++;
    }
    ck_assert_uint_ge(count, HOSTILE + 1);
    line[strcspn(line, "\n")] = '\0';
    if (line[0] != '\0') ck_assert_msg(access(line, F_OK) < 0, "cgroup %s is left", line);
    (void) fclose(told);
}
END_TEST

/* Returns whether the process has the mark in its environment. During execve a process has no
 * environment, so the function tries again until the process has one. */
static int is_marked(pid_t pid, const char *mark) {
    for (;;) {
        int has = proc_environ_has(pid, mark);
        if (has != -EAGAIN || !is_alive(pid)) return has == 1;
        (void) poll(NULL, 0, 1);
    }
}

static int count_marked(const char *mark) {
    struct proc_dir all;
    const char *name;
    int count = 0;
    ck_assert_int_eq(proc_dir_open(&all, AT_FDCWD, "/proc"), 0);
    while ((name = proc_dir_next(&all)) != NULL) {
        pid_t pid = proc_parse_pid(name);
        count += pid > 0 && is_alive(pid) && is_marked(pid, mark);
    }
    proc_dir_close(&all);
    return count;
}

/* Starts workers that leave children in other Unix sessions, in four batches, and then waits. */
static _Noreturn void start_without_end(char *mark) {
    static struct place p;
    char *envp[] = {mark, (char *) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    char *argv[] = {(char *) "/bin/sh", (char *) "-c",
                    (char *) "setsid sleep 1000 & (setsid sleep 1000 &) & exec sleep 1000", NULL};
    struct worker_spawn how[8];
    void *who[8] = {0};
    struct worker_process *out[8];
    size_t failed;
    place_open(&p);
    for (size_t i = 0; i < 8; i++)
        how[i] = (struct worker_spawn){argv[0], argv, envp, -1, -1, -1, NULL};
    for (int round = 0; round < 4; round++)
        if (worker_spawn_all(p.n, how, who, 8, out, &failed, NULL) < 0) abort();
    for (;;) (void) pause();
}

START_TEST(test_killed_at_any_moment) {
    char mark[64];
    choose_containment(0);
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (int i = 0; i < 25; i++) {
        (void) snprintf(mark, sizeof mark, "CRUN_TEST_MARK=%d-%d-", (int) getpid(), i);
        pid_t launcher = fork();
        if (launcher == 0) start_without_end(mark);
        struct timespec moment = {.tv_nsec = (long) i * 1500000};
        (void) nanosleep(&moment, NULL);
        ck_assert_int_eq(kill(launcher, SIGKILL), 0);
        ck_assert_int_eq(waitpid(launcher, NULL, 0), launcher);
        while (waitpid(-1, NULL, 0) > 0) continue; /* reaps also the orphans that this sub-reaper
                                                    * has adopted */
        ck_assert_int_eq(count_marked(mark), 0);
    }
}
END_TEST

/* A process that keeps a processor busy on demand. */
struct hog {
    pid_t pid;
    int bell;
    int *spins; /* in memory shared with the process */
};

static struct hog hog_start(const cpu_set_t *there) {
    int ends[2];
    struct hog h = {.spins = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    ck_assert(h.spins != MAP_FAILED);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    h.bell = ends[1];
    h.pid = fork();
    char byte;
    if (h.pid == 0) {
        (void) close(ends[1]);
        if (sched_setaffinity(0, sizeof *there, there) < 0) abort();
        while (read(ends[0], &byte, 1) == 1)
            while (__atomic_load_n(h.spins, __ATOMIC_ACQUIRE)) continue;
        _exit(0);
    }
    (void) close(ends[0]);
    return h;
}

static void hog_spin(struct hog *h, int spins) {
    __atomic_store_n(h->spins, spins, __ATOMIC_RELEASE);
    if (spins) ck_assert_int_eq(write(h->bell, "x", 1), 1);
}

static int has_no_environment(pid_t pid) {
    char path[PROC_PATH_MAX], byte;
    proc_path(path, pid, "environ");
    return proc_read(path, &byte, 1) == 0;
}

/* Waits until the process is in the middle of execve, and keeps it there: the process runs on the
 * hog's processor with the lowest priority. Returns 1, or 0 if this did not succeed within
 * CATCH_MS. */
static int catch_in_execve(pid_t pid, struct hog *h) {
    int64_t until = cr_monotonic_ns() + CATCH_MS * CR_NS_PER_MS;
    while (cr_monotonic_ns() < until) {
        if (!has_no_environment(pid)) continue;
        hog_spin(h, 1);
        (void) poll(NULL, 0, 2);
        if (has_no_environment(pid)) return 1;
        hog_spin(h, 0);
    }
    return 0;
}

/* Runs in a process of its own: starts a worker that dies and leaves a process behind, which
 * executes itself again and again. */
static _Noreturn void leave_one_that_executes(int tell) {
    static struct place p;
    struct worker_process *w;
    place_open(&p);
    int in = start_talking(&p,
                           "again='exec /bin/sh -c \"$0\" \"$0\"'; "
                           "setsid /bin/sh -c \"$again\" \"$again\" & echo $!",
                           &w);
    pid_t left = read_pid(in);
    run_until_ended(&p, 1);
    (void) dprintf(tell, "%d\n%d\n", left, p.n->warden.pid);
    for (;;) (void) pause();
}

/* A process in the middle of execve has no environment, so the warden cannot know yet whether it
 * belongs to the nursery. The warden must wait until the process has an environment. */
START_TEST(test_killed_while_a_child_executes) {
    int ends[2];
    cpu_set_t all, there;
    const struct sched_param none = {0};
    choose_containment(0);
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&there);
    CPU_SET((size_t) sched_getcpu(), &there);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t launcher = fork();
    if (launcher == 0) leave_one_that_executes(ends[1]);
    pid_t left = read_pid(ends[0]), warden = read_pid(ends[0]);
    struct hog hog = hog_start(&there);
    ck_assert_int_eq(sched_setaffinity(left, sizeof there, &there), 0);
    ck_assert_int_eq(sched_setscheduler(left, SCHED_IDLE, &none), 0);
    if (!catch_in_execve(left, &hog)) (void) printf("note: never caught in execve\n");
    ck_assert_int_eq(kill(launcher, SIGKILL), 0);
    ck_assert_int_eq(waitpid(launcher, NULL, 0), launcher);
    struct pollfd dead = {.fd = (int) syscall(SYS_pidfd_open, warden, 0), .events = POLLIN};
    (void) poll(&dead, 1, 500); /* keeps the process in execve for 500 ms */
    hog_spin(&hog, 0);
    (void) sched_setaffinity(left, sizeof all, &all);
    /* With the lowest priority, the process would not run while the machine is busy. */
    (void) sched_setscheduler(left, SCHED_OTHER, &none);
    (void) kill(hog.pid, SIGKILL);
    await_death(warden);
    await_death(left);
    while (waitpid(-1, NULL, 0) > 0) continue;
}
END_TEST

START_TEST(test_sigchld_ignored_is_refused) {
    struct nursery *n;
    struct cr_error err;
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    (void) signal(SIGCHLD, SIG_IGN);
    ck_assert_int_eq(nursery_open(&loop, &noting, NULL, &n, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "agent_claim_process"));
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_process");
    TCase *starting = tcase_create("starting");
    tcase_set_timeout(starting, 120);
    tcase_add_loop_test(starting, test_failures_to_start_are_reported, 0, 3);
    tcase_add_loop_test(starting, test_exit_codes_and_signals, 0, 3);
    tcase_add_loop_test(starting, test_a_worker_starts_clean, 0, 3);
    tcase_add_loop_test(starting, test_a_worker_runs_on_its_cpus, 0, 3);
    tcase_add_loop_test(starting, test_streams_may_be_swapped, 0, 3);
    tcase_add_loop_test(starting, test_no_descriptor_leaks, 0, 3);
    tcase_add_loop_test(starting, test_exit_before_the_pid_is_noted, 0, 3);
    tcase_add_loop_test(starting, test_many_at_once, 0, 3);
    tcase_add_test(starting, test_a_cgroup_that_kills_at_birth);
    tcase_add_loop_test(starting, test_a_cgroup_that_takes_no_worker_is_given_up_and_named, 0, 2);
    tcase_add_loop_test(starting, test_the_limit_of_processes_does_not_cost_the_cgroup, 0, 2);
    tcase_add_test(starting, test_sigchld_ignored_is_refused);
    suite_add_tcase(s, starting);
    TCase *ending = tcase_create("ending");
    tcase_set_timeout(ending, 120);
    tcase_add_test(ending, test_order_of_death_when_we_are_late);
    tcase_add_test(ending, test_the_dead_are_no_victims);
    tcase_add_loop_test(ending, test_grace_then_kill, 0, 6);
    tcase_add_loop_test(ending, test_a_kept_worker_survives_the_others, 0, 6);
    tcase_add_test(ending, test_a_stopped_worker_obeys);
    tcase_add_test(ending, test_ending_again_hastens);
    tcase_add_loop_test(ending, test_nothing_is_left_behind, 0, 2 * HOSTILE);
    tcase_add_loop_test(ending, test_hostile_children_of_the_living, 0, 2 * HOSTILE);
    tcase_add_test(ending, test_adopted_zombies_are_reaped);
    tcase_add_test(ending, test_children_of_others_are_spared);
    tcase_add_loop_test(ending, test_the_loop_runs_while_an_orphan_executes, 0, 2);
    tcase_add_test(ending, test_killed_at_any_moment);
    tcase_add_test(ending, test_killed_while_a_child_executes);
    tcase_add_test(ending, test_a_warden_that_comes_late_has_leftovers_removed);
    tcase_add_loop_test(ending, test_our_death_takes_all_along, 0, 4);
    suite_add_tcase(s, ending);
    return run_suite(s);
}
