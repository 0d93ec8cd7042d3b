/* Reads the Python stack of a process by Python's own faulthandler: sends the signal for which the
 * program has registered faulthandler, and reads the file to which faulthandler writes all stacks.
 *
 * Any other process would be ended by the signal, or would run a handler of its own. So the signal
 * is sent only if the process catches it, and one of these two is true:
 *
 *   the process has an open file that memfd_create() has made with the name STACKS_NAME, followed
 *   by the signal's number: faulthandler writes to this file (python/_crun_stacks.py makes it)
 *
 *   the environment variable CRUN_STACK_SIGNAL names the signal: the user says by it that the
 *   program calls faulthandler.register() for this signal, with the default file: stderr */
#include "inspect/inspect_internal.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/text/parse.h"
#include "base/time/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACKS_NAME     "crun-python-stacks-"
#define SIGNAL_VARIABLE "CRUN_STACK_SIGNAL"
#define STACKS_MAX      ((size_t) 1 << 20) /* at most this many bytes of stacks are read */
#define STACKS_MAX_MS   500                /* longest time in ms until the stacks are written */
#define QUIET_MS        50  /* the stacks are complete if nothing was written for this many ms */
#define LOOK_MS         2   /* interval in ms at which the file's size is read */

/* Where a process writes its stacks. */
struct target {
    int signum;
    char path[64]; /* the file as /proc/PID/fd/N */
};

/* ---- what the text says ---- */

/* Parses a line such as '  File "/a/b.py", line 9 in main', and appends its function to
 * row->python. Returns false if the line has another form, or if row->python is full. */
static bool add_frame(struct inspect_row *row, const char *line, size_t len) {
    char file[512], name[160], text[256];
    long number;
    char copy[800];
    (void) snprintf(copy, sizeof(copy), "%.*s", (int) (len < sizeof(copy) ? len : sizeof(copy)),
                    line);
    if (sscanf(copy, " File \"%511[^\"]\", line %ld in %159s", file, &number, name) != 3) {
        return false;
    }
    const char *slash = strrchr(file, '/');
    (void) snprintf(text, sizeof(text), "%s (%.80s:%ld)", name, slash != NULL ? slash + 1 : file,
                    number);
    return inspect_add_function(row->python, text);
}

/* Appends the frames of one thread's section to row->python. */
static void take_section(struct inspect_row *row, const char *section, size_t len) {
    const char *end = section + len;
    for (const char *at = section; at != NULL && at < end;) {
        const char *eol = memchr(at, '\n', (size_t) (end - at));
        bool is_frame = add_frame(row, at, eol != NULL ? (size_t) (eol - at) : (size_t) (end - at));
        if (!is_frame && row->python[0] != '\0') return;
        at = eol != NULL ? eol + 1 : NULL;
    }
}

/* Python writes the newest thread first, so the main thread is the last one with "<module>" as a
 * function; another thread has it while it imports a module. A stack of more than 100 functions is
 * cut by Python and has no "<module>"; in that case the last thread is taken. */
void inspect_take_faulthandler(struct inspect_row *row, const char *text) {
    const char *found = NULL, *last = NULL;
    size_t found_len = 0, last_len = 0;
    for (const char *section = text; section != NULL && *section != '\0';) {
        const char *end = strstr(section, "\n\n");
        last = section;
        last_len = end != NULL ? (size_t) (end - section) : strlen(section);
        if (memmem(last, last_len, " in <module>", 12) != NULL) {
            found = last;
            found_len = last_len;
        }
        section = end != NULL ? end + 2 : NULL;
    }
    if (found != NULL) take_section(row, found, found_len);
    else if (last != NULL) take_section(row, last, last_len);
}

/* ---- which signal, and which file ---- */

/* Returns the signal that the name of a process's open file says; 0 if the file is another one. */
static int signal_of(const char *link) {
    static const char mark[] = "/memfd:" STACKS_NAME;
    char target[PATH_MAX], *end;
    int64_t signum;
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    if (n <= 0) return 0;
    target[n] = '\0';
    if (strncmp(target, mark, sizeof(mark) - 1) != 0) return 0;
    end = strchr(target + sizeof(mark) - 1, ' '); /* the kernel appends " (deleted)" */
    if (end != NULL) *end = '\0';
    return cr_parse_i64(target + sizeof(mark) - 1, 1, SIGRTMAX, &signum) == 0 ? (int) signum : 0;
}

/* Finds the process's file of the name STACKS_NAME. */
static bool find_file(int64_t pid, struct target *t) {
    char folder[32];
    (void) snprintf(folder, sizeof(folder), "/proc/%" PRId64 "/fd", pid);
    DIR *dir = opendir(folder);
    t->signum = 0;
    if (dir == NULL) return false;
    for (const struct dirent *e; t->signum == 0 && (e = readdir(dir)) != NULL;) {
        (void) snprintf(t->path, sizeof(t->path), "%s/%.16s", folder, e->d_name);
        t->signum = signal_of(t->path);
    }
    (void) closedir(dir);
    return t->signum != 0;
}

/* Finds the signal that the user has named for the process, which writes its stacks to stderr. */
static bool find_variable(int64_t pid, struct target *t) {
    char number[16];
    int64_t signum;
    if (!inspect_variable(pid, SIGNAL_VARIABLE, number, sizeof(number))) return false;
    if (cr_parse_i64(number, 1, SIGRTMAX, &signum) < 0) return false;
    t->signum = (int) signum;
    (void) snprintf(t->path, sizeof(t->path), "/proc/%" PRId64 "/fd/2", pid);
    return true;
}

/* ---- the stacks ---- */

/* Waits until the process has written to the file and the file has not grown for QUIET_MS, or the
 * process has ended, or STACKS_MAX_MS are over. The kernel reports no event when a file of
 * memfd_create() grows, so the size is read every LOOK_MS. Returns the file's size. */
static off_t wait_for_growth(int process, int fd, off_t before) {
    int64_t deadline_ms = cr_deadline_ms(STACKS_MAX_MS), quiet_ms = cr_deadline_ms(STACKS_MAX_MS);
    struct pollfd ended = {.fd = process, .events = POLLIN};
    struct stat s = {.st_size = before};
    for (off_t size = before; cr_poll_timeout(deadline_ms) > 0 && cr_poll_timeout(quiet_ms) > 0;) {
        if (poll(&ended, 1, LOOK_MS) > 0 || fstat(fd, &s) < 0) break;
        if (s.st_size != size) quiet_ms = cr_deadline_ms(QUIET_MS);
        size = s.st_size;
    }
    return s.st_size;
}

static void read_stacks(struct inspect_row *row, int fd, off_t from, off_t to) {
    struct cr_buffer text = {0};
    size_t len = (size_t) (to - from) < STACKS_MAX ? (size_t) (to - from) : STACKS_MAX;
    if (cr_buffer_reserve(&text, len + 1) == 0) {
        ssize_t n = pread(fd, text.data, len, from);
        text.data[n > 0 ? n : 0] = '\0';
        inspect_take_faulthandler(row, text.data);
    }
    cr_buffer_done(&text);
}

/* Sends the signal, and stores the stack that comes in row->python. If none comes, or if it goes to
 * a pipe, adds a note to the row. Returns false, and sends nothing, if the process does not catch
 * the signal or has no such file. */
static bool request(struct inspect_row *row, const struct target *t) {
    struct stat s;
    CR_AUTO_FD int process = (int) syscall(SYS_pidfd_open, (pid_t) row->pid, 0);
    CR_AUTO_FD int fd = -1;
    if (process < 0 || stat(t->path, &s) < 0 || !inspect_catches(row->pid, t->signum)) return false;
    if (S_ISREG(s.st_mode)) fd = open(t->path, O_RDONLY | O_CLOEXEC);
    if (syscall(SYS_pidfd_send_signal, process, t->signum, NULL, 0) < 0) return false;
    off_t size = fd >= 0 ? wait_for_growth(process, fd, s.st_size) : 0;
    if (fd < 0) {
        inspect_note(row, "Python stack: the worker has written it to its stderr");
    } else if (size > s.st_size) {
        read_stacks(row, fd, s.st_size, size);
    } else {
        inspect_note(row, "Python stack: faulthandler has written none within %d ms",
                     STACKS_MAX_MS);
    }
    return true;
}

bool inspect_faulthandler(struct inspect_row *row) {
    struct target t;
    if (row->state == 'T' || row->state == 't') return false; /* it would run no handler */
    return (find_file(row->pid, &t) || find_variable(row->pid, &t)) && request(row, &t);
}
