/* The commands run, ps, attach, logs and stop: implements keeper.h. */
#include "launcher/keeper/keeper.h"

#include "base/cleanup.h"
#include "base/files/write_all.h"
#include "base/memory.h"
#include "launcher/keeper/jobs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE  2

static int complain(const struct cr_error *err, int status) {
    (void) fprintf(stderr, "crun: error: %s\n", err->text);
    return status;
}

static int complain_of_usage(const char *usage) {
    (void) fprintf(stderr, "crun: error: usage: crun %s\n", usage);
    return EXIT_USAGE;
}

/* ---- following a job ---- */

/* What a client does while it follows a job. */
struct follower {
    const char *folder, *id;
    bool shows;          /* true if the output is copied to stdout */
    bool passes_signals; /* true if signals that this process receives are sent to the job */
    int console, inotify, keeper, signals; /* descriptors; -1 if not open */
    bool gives_input; /* true as long as stdin of this process is read */
    bool ends_input;  /* true if the end of stdin also ends the job's stdin */
    bool has_credit;  /* true if the keeper allows the client to send input now */
    bool is_refused;  /* true if the keeper serves as many clients as it can, and not this one */
};

/* Copies to stdout what the job has written since the last call. Returns false if stdout cannot be
 * written to. */
static bool show_new(struct follower *f) {
    static char chunk[65536];
    for (ssize_t n; f->shows && (n = read(f->console, chunk, sizeof(chunk))) > 0;) {
        if (cr_write_all(STDOUT_FILENO, chunk, (size_t) n) < 0) return false;
    }
    return true;
}

static void open_signals(struct follower *f) {
    static const int passed[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGQUIT, SIGHUP};
    sigset_t set;
    f->signals = -1;
    if (!f->passes_signals) return;
    (void) sigemptyset(&set);
    for (size_t i = 0; i < CR_ARRAY_LEN(passed); i++) (void) sigaddset(&set, passed[i]);
    (void) sigprocmask(SIG_BLOCK, &set, NULL);
    f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int open_follower(struct follower *f, struct cr_error *err) {
    char path[KEPT_PATH_MAX];
    f->inotify = f->keeper = -1;
    f->console = kept_open(f->folder, f->id, "console", O_RDONLY);
    if (f->console < 0) {
        return cr_fail(err, f->console, "cannot read the output of the job '%s': %s", f->id,
                       strerror(-f->console));
    }
    (void) snprintf(path, sizeof(path), "%s/%s/console", f->folder, f->id);
    f->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (f->inotify < 0 || inotify_add_watch(f->inotify, path, IN_MODIFY) < 0) {
        return cr_fail_errno(err, "cannot follow the output of the job '%s'", f->id);
    }
    f->keeper = kept_socket(f->folder, f->id, 0); /* fails if the job has ended */
    open_signals(f);
    return 0;
}

static void close_follower(struct follower *f) {
    cr_close_fd(&f->console);
    cr_close_fd(&f->inotify);
    cr_close_fd(&f->keeper);
    cr_close_fd(&f->signals);
}

/* Returns true if stdin is to be read now. A client that runs in the background of a terminal does
 * not read stdin, because the kernel would stop it. */
static bool wants_input(const struct follower *f) {
    if (!f->gives_input || !f->has_credit) return false;
    return !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* Reads stdin once, and sends the bytes to the keeper. */
static void pass_input(struct follower *f) {
    char packet[1 + KEEPER_INPUT_MAX] = {KEEPER_INPUT};
    ssize_t n = read(STDIN_FILENO, packet + 1, KEEPER_INPUT_MAX);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) f->gives_input = false;
    if (n < 0 || (n == 0 && !f->ends_input)) return;
    f->has_credit = false;
    (void) send(f->keeper, packet, 1 + (size_t) n, MSG_NOSIGNAL);
}

static int send_signal(const struct follower *f, int signum) {
    struct keeper_packet p = {.type = KEEPER_SIGNAL, .number = signum};
    return send(f->keeper, &p, sizeof(p), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Forwards to the job the signals that this client has received. SIGQUIT (^\) and SIGHUP (the
 * terminal is closed) are not forwarded: they make the client detach, and the job goes on. Returns
 * false if the client detaches. */
static bool pass_signals(struct follower *f) {
    struct signalfd_siginfo info;
    while (read(f->signals, &info, sizeof(info)) == (ssize_t) sizeof(info)) {
        if (info.ssi_signo == SIGQUIT || info.ssi_signo == SIGHUP) return false;
        (void) send_signal(f, (int) info.ssi_signo);
    }
    return true;
}

/* Returns the exit status of the job, whose keeper has closed the connection. If the keeper has
 * left no status, prints an error and returns EXIT_FAILED. */
static int status_after_end(const struct follower *f) {
    int status;
    if (kept_read_status(f->folder, f->id, &status) == 0) return status;
    (void) fprintf(stderr, "crun: error: the keeper of the job '%s' was killed; the job ends\n",
                   f->id);
    return EXIT_FAILED;
}

/* Reads one packet of the keeper. Returns false if the job has ended, or if the keeper has refused
 * this client or has closed the connection. */
static bool take_packet(struct follower *f) {
    struct keeper_packet p = {0};
    ssize_t n;
    /* If the keeper has closed the connection without reading all that this client has sent, the
     * first recv() fails with ECONNRESET; the next one gets what the keeper has sent before. */
    while ((n = recv(f->keeper, &p, sizeof(p), 0)) < 0) {
        if (errno != EINTR && errno != ECONNRESET) return false;
    }
    if (p.type == KEEPER_CREDIT) f->has_credit = true;
    if (p.type == KEEPER_FULL) {
        f->is_refused = true;
        (void) fprintf(stderr,
                       "crun: error: cannot follow the job '%s': %d other commands follow it, and "
                       "its keeper serves no more; end one of them\n", f->id, (int) p.number);
    }
    return n > 0 && p.type != KEEPER_ENDED && p.type != KEEPER_FULL;
}

/* Follows the job until it ends or the client detaches. Returns the job's exit status; 0 if the
 * client detaches; or EXIT_FAILED if stdout cannot be written to, or the keeper refuses this
 * client. */
static int follow(struct follower *f) {
    enum { OUTPUT, KEEPER, SIGNALS, INPUT, COUNT };
    char events[4096];
    while (f->keeper >= 0) {
        struct pollfd fds[COUNT] = {[OUTPUT] = {.fd = f->inotify, .events = POLLIN},
                                    [KEEPER] = {.fd = f->keeper, .events = POLLIN},
                                    [SIGNALS] = {.fd = f->signals, .events = POLLIN},
                                    [INPUT] = {.fd = wants_input(f) ? STDIN_FILENO : -1,
                                               .events = POLLIN}};
        if (!show_new(f)) return EXIT_FAILED;
        if (poll(fds, COUNT, -1) < 0) continue;
        while (read(f->inotify, events, sizeof(events)) > 0) continue;
        if (fds[SIGNALS].revents != 0 && !pass_signals(f)) {
            (void) fprintf(stderr, "crun: the job '%s' goes on; 'crun attach %s' shows it again\n",
                           f->id, f->id);
            return 0;
        }
        if (fds[KEEPER].revents != 0 && !take_packet(f)) break;
        if (fds[INPUT].revents != 0) pass_input(f);
    }
    (void) show_new(f);
    return f->is_refused ? EXIT_FAILED : status_after_end(f);
}

/* How a command follows a job. */
enum following {
    FOLLOW_LOGS,   /* shows the output */
    FOLLOW_ATTACH, /* shows the output, and sends signals and input to the job; does not send the
                    * end of the input, because another client may send more */
    FOLLOW_RUN     /* as FOLLOW_ATTACH, but also sends the end of the input */
};

static int follow_job(const char *folder, const char *id, enum following how) {
    struct cr_error err = {0};
    struct follower f = {.folder = folder, .id = id, .shows = true,
                         .passes_signals = how != FOLLOW_LOGS, .signals = -1,
                         .gives_input = how != FOLLOW_LOGS, .ends_input = how == FOLLOW_RUN};
    int status = open_follower(&f, &err) < 0 ? complain(&err, EXIT_FAILED) : follow(&f);
    close_follower(&f);
    return status;
}

/* ---- run ---- */

/* Starts the job's keeper by two forks, so that the keeper is no child of this process, and waits
 * until the keeper listens. Returns 0; or a negative errno, and sets err. */
static int start_keeper(const char *folder, const char *id, char **words, bool takes_input,
                        struct cr_error *err) {
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) < 0) return cr_fail_errno(err, "cannot start the job's keeper");
    pid_t pid = fork();
    if (pid == 0) {
        (void) close(ends[0]);
        if (fork() == 0) keeper_run(folder, id, words, takes_input, ends[1]);
        _exit(0);
    }
    int code = errno;
    (void) close(ends[1]);
    ssize_t n = pid < 0 ? -1 : read(ends[0], &byte, 1);
    (void) close(ends[0]);
    if (pid < 0) return cr_fail(err, -code, "cannot start the job's keeper: %s", strerror(code));
    (void) waitpid(pid, NULL, 0);
    if (n == 1) return 0;
    return cr_fail(err, -EIO, "cannot start the keeper of the job '%s' in '%.300s'", id, folder);
}

/* Removes the folders of old jobs. Errors are not reported, because the new job does not need
 * this. */
static void tidy(const char *folder) {
    CR_AUTO_FREE struct kept_job *jobs = NULL;
    size_t count = 0;
    if (kept_list(folder, &jobs, &count, NULL) == 0) kept_tidy(folder, jobs, count);
}

/* If stdout is a terminal, sets COLUMNS to its width. The job's own output goes to a file, so the
 * job could not find out the width itself. */
static void set_columns(void) {
    struct winsize size;
    char text[16];
    if (getenv("COLUMNS") != NULL || !isatty(STDOUT_FILENO)) return;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0) return;
    (void) snprintf(text, sizeof(text), "%u", size.ws_col);
    (void) setenv("COLUMNS", text, 1);
}

static int run(const char *folder, char **words) {
    static const char usage[] = "run [--detach] [--name=NAME] [options] PROGRAM [arguments]";
    char id[KEPT_ID_MAX];
    const char *name = NULL;
    bool detaches = false;
    struct cr_error err = {0};
    char **rest = words + 2;
    for (; *rest != NULL; rest++) {
        if (strcmp(*rest, "--detach") == 0 || strcmp(*rest, "-d") == 0) detaches = true;
        else if (strncmp(*rest, "--name=", 7) == 0) name = *rest + 7;
        else if (strcmp(*rest, "--name") == 0 && rest[1] != NULL) name = *++rest;
        else break;
    }
    if (*rest == NULL) return complain_of_usage(usage);
    rest[-1] = words[0]; /* what follows is a command line of crun */
    tidy(folder);
    set_columns();
    int rc = kept_make(folder, name, rest, id, &err);
    if (rc == 0) rc = start_keeper(folder, id, rest - 1, !detaches, &err);
    if (rc < 0) return complain(&err, rc == -EINVAL ? EXIT_USAGE : EXIT_FAILED);
    if (detaches) return printf("%s\n", id) > 0 && fflush(stdout) == 0 ? 0 : EXIT_FAILED;
    if (isatty(STDERR_FILENO)) {
        (void) fprintf(stderr, "crun: job '%s'; ^C ends it, ^\\ leaves it running\n", id);
    }
    return follow_job(folder, id, FOLLOW_RUN);
}

/* ---- ps, attach, logs, stop ---- */

static int ps(const char *folder, const struct kept_job *jobs, size_t count) {
    (void) folder;
    (void) printf("%-12s %-10s %-19s %s\n", "ID", "STATE", "STARTED", "COMMAND");
    for (size_t i = 0; i < count; i++) {
        char state[32] = "running", when[32] = "";
        struct tm tm;
        time_t started = (time_t) jobs[i].started_s;
        if (jobs[i].state == KEPT_LOST) (void) snprintf(state, sizeof(state), "lost");
        if (jobs[i].state == KEPT_ENDED) {
            (void) snprintf(state, sizeof(state), "ended %d", jobs[i].status);
        }
        if (localtime_r(&started, &tm) != NULL) {
            (void) strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
        }
        (void) printf("%-12s %-10s %-19s %s\n", jobs[i].id, state, when, jobs[i].command);
    }
    return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

/* Sends SIGTERM to the job and waits until it has ended. If the keeper was killed, writes an exit
 * status for the job, so that it counts as ended and its folder is removed later. Returns the exit
 * status of the command. */
static int stop(const char *folder, const struct kept_job *job) {
    struct follower f = {.folder = folder, .id = job->id, .signals = -1};
    struct cr_error err = {0};
    if (job->state == KEPT_LOST) (void) kept_write_status(folder, job->id, EXIT_FAILED);
    if (job->state != KEPT_RUNNING) {
        (void) fprintf(stderr, "crun: the job '%s' does not run any more\n", job->id);
        return 0;
    }
    int rc = open_follower(&f, &err);
    if (rc == 0 && f.keeper >= 0) {
        (void) send_signal(&f, SIGTERM);
        (void) follow(&f);
    }
    close_follower(&f);
    if (rc < 0) return complain(&err, EXIT_FAILED);
    return f.is_refused ? EXIT_FAILED : 0;
}

/* Executes the command on the chosen job. `follows` is true for `logs` if it is to show output
 * until the job's end. */
static int on_job(const char *command, const char *folder, const struct kept_job *job,
                  bool follows) {
    if (strcmp(command, "stop") == 0) return stop(folder, job);
    if (strcmp(command, "attach") == 0) return follow_job(folder, job->id, FOLLOW_ATTACH);
    if (follows) return follow_job(folder, job->id, FOLLOW_LOGS);
    struct follower f = {.folder = folder, .id = job->id, .shows = true, .signals = -1};
    struct cr_error err = {0};
    bool is_shown = open_follower(&f, &err) == 0 && show_new(&f);
    close_follower(&f);
    if (err.code != 0) return complain(&err, EXIT_FAILED);
    return is_shown ? 0 : EXIT_FAILED;
}

static int other_command(const char *folder, char **words) {
    CR_AUTO_FREE struct kept_job *jobs = NULL;
    size_t count = 0, n = 2;
    struct cr_error err = {0};
    char usage[64];
    bool is_logs = strcmp(words[1], "logs") == 0, is_ps = strcmp(words[1], "ps") == 0;
    bool follows = is_logs && words[n] != NULL &&
                   (strcmp(words[n], "-f") == 0 || strcmp(words[n], "--follow") == 0);
    if (follows) n++;
    const char *id = is_ps ? NULL : words[n];
    (void) snprintf(usage, sizeof(usage), "%s%s%s", words[1], is_logs ? " [--follow]" : "",
                    is_ps ? "" : " [ID]");
    if (words[n] != NULL && (is_ps || words[n][0] == '-' || words[n + 1] != NULL)) {
        return complain_of_usage(usage);
    }
    if (kept_list(folder, &jobs, &count, &err) < 0) return complain(&err, EXIT_FAILED);
    if (is_ps) return ps(folder, jobs, count);
    const struct kept_job *job = kept_choose(jobs, count, id, &err);
    if (job == NULL) return complain(&err, EXIT_FAILED);
    return on_job(words[1], folder, job, follows);
}

/* ---- the door ---- */

bool keeper_is_meant(const char *called, char *const *words) {
    static const char *const commands[] = {"run", "ps", "attach", "logs", "stop"};
    if (strcmp(called, "crun") != 0 || words[0] == NULL || words[1] == NULL) return false;
    for (size_t i = 0; i < CR_ARRAY_LEN(commands); i++) {
        if (strcmp(words[1], commands[i]) != 0) continue;
        return access(words[1], F_OK) < 0 && errno == ENOENT;
    }
    return false;
}

int keeper_main(char **words) {
    char folder[KEPT_PATH_MAX];
    struct cr_error err = {0};
    if (kept_folder(folder, &err) < 0) return complain(&err, EXIT_FAILED);
    return strcmp(words[1], "run") == 0 ? run(folder, words) : other_command(folder, words);
}
