/* Reads the state of a process from /proc, and where its main thread waits in the kernel. */
#include "inspect/inspect_internal.h"

#include "base/files/read_file.h"
#include "base/memory.h"
#include "base/text/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_MAX 4096

void inspect_note(struct inspect_row *row, const char *fmt, ...) {
    size_t len = strlen(row->note);
    va_list ap;
    if (len > 0) len += (size_t) snprintf(row->note + len, sizeof(row->note) - len, "; ");
    if (len >= sizeof(row->note)) return;
    va_start(ap, fmt);
    (void) vsnprintf(row->note + len, sizeof(row->note) - len, fmt, ap);
    va_end(ap);
}

bool inspect_add_function(char *out, const char *name) {
    char safe[200];
    size_t len = strlen(out), mark = len > 0 ? strlen(INSPECT_CALLED_BY) : 0;
    size_t size = cr_text_copy(safe, sizeof(safe), name, strlen(name));
    if (len + mark + size >= INSPECT_STACK_MAX) return false;
    if (len > 0) memcpy(out + len, INSPECT_CALLED_BY, mark);
    memcpy(out + len + mark, safe, size + 1);
    return true;
}

static ssize_t read_of(int64_t pid, const char *name, char *out, size_t cap) {
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/%lld/%s", (long long) pid, name);
    ssize_t n = cr_read_file(path, out, cap);
    while (n > 0 && out[n - 1] == '\n') out[--n] = '\0';
    return n;
}

/* ---- the system call ---- */

/* System calls in which a program can wait for a long time. */
static const struct {
    long number;
    const char *name;
    bool first_is_fd; /* true if the first argument is a descriptor */
} calls[] = {
    {SYS_read, "read", true},
    {SYS_write, "write", true},
    {SYS_pread64, "pread64", true},
    {SYS_pwrite64, "pwrite64", true},
    {SYS_readv, "readv", true},
    {SYS_writev, "writev", true},
    {SYS_recvfrom, "recvfrom", true},
    {SYS_recvmsg, "recvmsg", true},
    {SYS_sendto, "sendto", true},
    {SYS_sendmsg, "sendmsg", true},
    {SYS_connect, "connect", true},
    {SYS_accept, "accept", true},
    {SYS_accept4, "accept4", true},
    {SYS_epoll_pwait, "epoll_pwait", true},
    {SYS_ppoll, "ppoll", false},
    {SYS_pselect6, "pselect6", false},
    {SYS_futex, "futex", false},
    {SYS_nanosleep, "nanosleep", false},
    {SYS_clock_nanosleep, "clock_nanosleep", false},
    {SYS_wait4, "wait4", false},
    {SYS_waitid, "waitid", false},
    {SYS_fsync, "fsync", true},
    {SYS_fdatasync, "fdatasync", true},
    {SYS_flock, "flock", true},
    {SYS_fcntl, "fcntl", true},
    {SYS_ioctl, "ioctl", true},
    {SYS_openat, "openat", false},
    {SYS_newfstatat, "fstatat", false},
    {SYS_fstat, "fstat", true},
    {SYS_getdents64, "getdents64", true},
    {SYS_statx, "statx", false},
    {SYS_unlinkat, "unlinkat", false},
    {SYS_mmap, "mmap", false},
    {SYS_munmap, "munmap", false},
    {SYS_msync, "msync", false},
    {SYS_rt_sigsuspend, "sigsuspend", false},
    {SYS_rt_sigtimedwait, "sigtimedwait", false},
    {SYS_io_getevents, "io_getevents", false},
    {SYS_io_uring_enter, "io_uring_enter", true},
    {SYS_semtimedop, "semtimedop", false},
    {SYS_execve, "execve", false},
#ifdef SYS_poll
    {SYS_poll, "poll", false},
    {SYS_select, "select", false},
    {SYS_pause, "pause", false},
    {SYS_epoll_wait, "epoll_wait", true},
    {SYS_open, "open", false},
    {SYS_stat, "stat", false},
    {SYS_lstat, "lstat", false},
#endif
};

/* Writes the file, pipe or socket of a descriptor to `out`, such as " of /data/shard-3" or " of a
 * pipe". Writes "" if it is unknown or of another kind. */
static void describe_fd(int64_t pid, unsigned long long fd, char *out, size_t cap) {
    char link[64], target[160];
    (void) snprintf(link, sizeof(link), "/proc/%lld/fd/%llu", (long long) pid, fd);
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    out[0] = '\0';
    if (n <= 0) return;
    target[n] = '\0';
    if (strncmp(target, "anon_inode:", 11) == 0) return;
    /* Cut the number of a pipe or socket ("pipe:[4711]"). It is different in each process, so with
     * it no two rows would be equal. */
    char *number = strstr(target, ":[");
    if (number != NULL) *number = '\0';
    size_t len = (size_t) snprintf(out, cap, number != NULL ? " of a " : " of ");
    (void) cr_text_copy(out + len, cap - len, target, strlen(target));
}

/* Writes to `out` the system call in which the main thread waits. Writes "" if the thread is in no
 * system call, or if this process is not permitted to read that from /proc. */
static void describe_call(int64_t pid, char *out, size_t cap) {
    char text[256], of[200] = "";
    long number;
    unsigned long long first;
    out[0] = '\0';
    if (read_of(pid, "syscall", text, sizeof(text)) <= 0) return;
    if (sscanf(text, "%ld %llx", &number, &first) != 2 || number < 0) return;
    for (size_t i = 0; i < CR_ARRAY_LEN(calls); i++) {
        if (calls[i].number != number) continue;
        if (calls[i].first_is_fd) describe_fd(pid, first, of, sizeof(of));
        (void) snprintf(out, cap, "%s%s", calls[i].name, of);
        return;
    }
    (void) snprintf(out, cap, "system call %ld", number);
}

/* ---- the kernel's side ---- */

/* Writes the innermost functions of the kernel stack to `out`. Only root can read the kernel stack;
 * other users get "". It is used for a process in an uninterruptible sleep, which has no other
 * stack that can be read. */
static void describe_kernel_stack(int64_t pid, char *out, size_t cap) {
    char text[FILE_MAX];
    size_t len = 0;
    int shown = 0;
    out[0] = '\0';
    if (read_of(pid, "stack", text, sizeof(text)) <= 0) return;
    for (char *line = text; line != NULL && shown < 6; shown++) {
        char *end = strchr(line, '\n'), *name = strchr(line, ' ');
        if (end != NULL) *end++ = '\0';
        if (name != NULL) name[1 + strcspn(name + 1, "+ ")] = '\0';
        if (name != NULL && len < cap) {
            len += (size_t) snprintf(out + len, cap - len, "%s%s",
                                     len > 0 ? INSPECT_CALLED_BY : "", name + 1);
        }
        line = end;
    }
}

static void describe_kernel(struct inspect_row *row) {
    char call[220], channel[64], where[INSPECT_TEXT_MAX];
    describe_call(row->pid, call, sizeof(call));
    if (read_of(row->pid, "wchan", channel, sizeof(channel)) < 0) channel[0] = '\0';
    /* The kernel shows "0" if the process `row->pid` does not wait, or if this process is not
     * permitted to read where it waits. */
    if (strcmp(channel, "0") == 0) channel[0] = '\0';
    where[0] = '\0';
    if (row->state == 'D') describe_kernel_stack(row->pid, where, sizeof(where));
    if (where[0] == '\0') (void) snprintf(where, sizeof(where), "%s", channel);
    size_t len = cr_text_copy(row->kernel, sizeof(row->kernel), where, strlen(where));
    if (call[0] == '\0') return;
    (void) snprintf(row->kernel + len, sizeof(row->kernel) - len, len > 0 ? " (%s)" : "%s", call);
}

int inspect_process(struct inspect_row *row) {
    char text[FILE_MAX];
    if (read_of(row->pid, "stat", text, sizeof(text)) <= 0) return -ESRCH;
    char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (name == NULL || end == NULL || end[1] != ' ' || end[2] == '\0') return -ESRCH;
    row->state = end[2];
    (void) cr_text_copy(row->program, sizeof(row->program), name + 1, (size_t) (end - name - 1));
    describe_kernel(row);
    return 0;
}

bool inspect_catches(int64_t pid, int signum) {
    char text[FILE_MAX];
    uint64_t caught = 0;
    if (read_of(pid, "status", text, sizeof(text)) <= 0) return false;
    const char *line = strstr(text, "\nSigCgt:");
    if (line == NULL || sscanf(line, "\nSigCgt: %" SCNx64, &caught) != 1) return false;
    return (caught >> (signum - 1) & 1) != 0;
}
