/* Reads /proc without malloc and stdio. The warden, and a forked child before exec, run in a copy
 * of a process that may have had threads. The copy has one thread only. If another thread held a
 * lock of malloc or stdio at the fork, the copy of that lock stays locked for ever. */
#include "agent/system/proc.h"

#include "base/buffer.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* size in bytes of the buffer for the text of /proc/PID/stat, in which the process name takes 64
 * bytes at most */
#define STAT_BYTES 1024

/* ---- folders ---- */

struct kernel_dirent {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

int proc_dir_open(struct proc_dir *d, int at_fd, const char *path) {
    d->at = d->got = 0;
    d->fd = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return d->fd < 0 ? -errno : 0;
}

static const char *next_name(struct proc_dir *d) {
    if (d->at >= d->got) {
        d->at = 0;
        d->got = syscall(SYS_getdents64, d->fd, d->room, sizeof d->room);
        if (d->got <= 0) return NULL;
    }
    const struct kernel_dirent *entry = (const void *) (d->room + d->at);
    d->at += entry->length;
    d->is_folder = entry->type == DT_DIR;
    return entry->name;
}

const char *proc_dir_next(struct proc_dir *d) {
    const char *name;
    do {
        name = next_name(d);
    } while (name != NULL && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0));
    return name;
}

void proc_dir_close(struct proc_dir *d) { cr_close_fd(&d->fd); }

/* ---- paths and files of a process ---- */

int proc_parse_pid(const char *name) {
    int value = 0;
    if (*name == '\0') return -1;
    for (; *name != '\0'; name++) {
        if (*name < '0' || *name > '9' || value > (INT_MAX - 9) / 10) return -1;
        value = value * 10 + (*name - '0');
    }
    return value;
}

void proc_path(char out[PROC_PATH_MAX], pid_t pid, const char *rest) {
    char digits[12];
    size_t n = 0;
    for (unsigned left = (unsigned) pid; n == 0 || left > 0; left /= 10)
        digits[n++] = (char) ('0' + left % 10);
    char *at = stpcpy(out, "/proc/");
    while (n > 0) *at++ = digits[--n];
    *at++ = '/';
    size_t room = (size_t) (out + PROC_PATH_MAX - 1 - at), len = strnlen(rest, room);
    memcpy(at, rest, len);
    at[len] = '\0';
}

static ssize_t read_some(int fd, char *out, size_t size) {
    ssize_t got;
    do {
        got = read(fd, out, size);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

ssize_t proc_read(const char *path, char *out, size_t size) {
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return read_some(fd, out, size);
}

/* ---- stat ---- */

/* The numbers that proc(5) gives to the fields of /proc/PID/stat. Field 2, the process name, is in
 * parentheses and may contain any byte, so parsing begins behind the last ')'. Field 3 is a letter;
 * all later fields are numbers. */
enum {
    FIELD_STATE = 3,
    FIELD_PARENT,
    FIELD_GROUP,
    FIELD_SESSION,
    FIELD_FLAGS = 9,
    FIELD_THREADS = 20,
    FIELD_START = 22,
    FIELD_ARGS = 48,
    FIELD_ARGS_END,
    FIELD_ENVIRON,
    FIELD_ENVIRON_END
};

/* Task flags of the kernel (include/linux/sched.h). */
#define FLAGS_EXITING (0x4u | 0x200u | 0x400u) /* PF_EXITING, PF_DUMPCORE, PF_SIGNALED */
#define FLAGS_KERNEL  0x200000u                /* PF_KTHREAD */

static int parse_stat(const char *text, struct proc_stat *out) {
    const char *p = strrchr(text, ')');
    if (p == NULL || p[1] != ' ' || p[2] == '\0') return -EPROTO;
    char state = p[2];
    p += 3;
    uint64_t field[FIELD_ENVIRON_END + 1] = {0};
    for (int i = FIELD_PARENT; i <= FIELD_ENVIRON_END; i++) {
        while (*p == ' ') p++;
        if (*p == '-') p++; /* skip a minus sign: the fields that are used are never negative */
        if (i > FIELD_START && *p == '\n') break;
        if (*p < '0' || *p > '9') return -EPROTO;
        for (; *p >= '0' && *p <= '9'; p++) field[i] = field[i] * 10 + (uint64_t) (*p - '0');
    }
    out->parent = (pid_t) field[FIELD_PARENT];
    out->group = (pid_t) field[FIELD_GROUP];
    out->session = (pid_t) field[FIELD_SESSION];
    out->start = field[FIELD_START];
    out->exiting = (field[FIELD_FLAGS] & FLAGS_EXITING) != 0;
    out->state = state;
    out->alive = (state != 'Z' && state != 'X') || field[FIELD_THREADS] > 1;
    out->has_memory = out->alive && (field[FIELD_FLAGS] & (FLAGS_EXITING | FLAGS_KERNEL)) == 0;
    out->args = field[FIELD_ARGS];
    out->args_end = field[FIELD_ARGS_END];
    out->environ_known = field[FIELD_ENVIRON_END] != 0;
    out->environ_size = field[FIELD_ENVIRON_END] - field[FIELD_ENVIRON];
    return 0;
}

int proc_stat(pid_t pid, struct proc_stat *out) {
    char path[PROC_PATH_MAX], text[STAT_BYTES];
    proc_path(path, pid, "stat");
    ssize_t got = proc_read(path, text, sizeof text - 1);
    if (got < 0) return (int) got;
    text[got] = '\0';
    return parse_stat(text, out);
}

/* ---- environment ---- */

/* the most times that proc_environ_has() reads an environment; it reads it once more if the process
 * has called execve during a read */
#define READS_MAX 4

/* Sets *found to 1 if the environment of the process contains `text`, else to 0. Stops reading when
 * the text is found. Returns the number of bytes read, or a negative errno. */
static ssize_t search_environ(pid_t pid, const char *text, int *found) {
    char path[PROC_PATH_MAX], room[4096];
    proc_path(path, pid, "environ");
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    size_t keep = 0, overlap = strlen(text) - 1;
    ssize_t got, size = 0;
    while ((got = read_some(fd, room + keep, sizeof room - keep)) > 0) {
        size_t have = keep + (size_t) got;
        size += got;
        *found = memmem(room, have, text, overlap + 1) != NULL;
        if (*found) return size;
        /* keep the end of what was read, because a match may begin in one read and end in the
         * next */
        keep = have < overlap ? have : overlap;
        memmove(room, room + have - keep, keep);
    }
    return got < 0 ? got : size;
}

/* The environment was read completely if as many bytes were read as /proc/PID/stat states.
 * Otherwise the process is in the middle of execve. So for a living process this function returns 0
 * only after a complete read, and reads the environment once more after an incomplete read. The
 * scheduler may leave a process in the middle of execve for long, so after READS_MAX incomplete
 * reads the function returns -EAGAIN. */
int proc_environ_has(pid_t pid, const char *text) {
    struct proc_stat now;
    ssize_t size = 0;
    for (int i = 0; i < READS_MAX; i++) {
        int found = 0;
        size = search_environ(pid, text, &found);
        if (found) return 1;
        if (size < 0 || proc_stat(pid, &now) < 0 || !now.has_memory) return 0;
        if (now.environ_known && (uint64_t) size == now.environ_size) return 0;
    }
    /* Some sandboxes never report the address of the environment. There, an environment of which
     * some bytes could be read counts as read completely. */
    return size == 0 || now.environ_known ? -EAGAIN : 0;
}

/* ---- children ---- */

static int push(struct cr_buffer *list, pid_t pid) {
    return cr_buffer_append(list, &pid, sizeof pid);
}

/* Appends to `list` the pids in a file of the form "12 345 6 ". A number may begin in one read and
 * end in the next. Returns 0 or a negative errno. */
static int read_children(const char *path, struct cr_buffer *list) {
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    char room[4096];
    pid_t number = 0;
    ssize_t got;
    while ((got = read_some(fd, room, sizeof room)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            if (room[i] >= '0' && room[i] <= '9') {
                number = number * 10 + (room[i] - '0');
            } else if (number > 0) {
                if (push(list, number) < 0) return -ENOMEM;
                number = 0;
            }
        }
    }
    return got < 0 ? (int) got : 0;
}

/* Finds the children of a process in /proc/PID/task/TID/children of all its threads: the kernel
 * lists a child with the thread that forked it. */
static int children_by_thread(pid_t pid, struct cr_buffer *list) {
    char path[PROC_PATH_MAX];
    struct proc_dir tasks;
    proc_path(path, pid, "task");
    int rc = proc_dir_open(&tasks, AT_FDCWD, path);
    if (rc < 0) return rc;
    const char *name;
    bool missing = false;
    while (rc == 0 && (name = proc_dir_next(&tasks)) != NULL) {
        if (proc_parse_pid(name) < 0) continue;
        char rest[32] = "task/";
        (void) stpcpy(stpcpy(rest + 5, name), "/children");
        proc_path(path, pid, rest);
        rc = read_children(path, list);
        if (rc != -ENOENT) continue;
        /* the file `children` is missing: the thread is gone, or the kernel has no such files */
        missing = true;
        rc = 0;
    }
    proc_dir_close(&tasks);
    return missing && list->len == 0 ? -ENOENT : rc;
}

/* Finds the children of a process by reading the parent of every process. Used on kernels without
 * /proc/PID/task/TID/children. */
static int children_by_parent(pid_t pid, struct cr_buffer *list) {
    struct proc_dir all;
    int rc = proc_dir_open(&all, AT_FDCWD, "/proc");
    if (rc < 0) return rc;
    const char *name;
    while (rc == 0 && (name = proc_dir_next(&all)) != NULL) {
        pid_t each = proc_parse_pid(name);
        struct proc_stat stat;
        if (each <= 0 || proc_stat(each, &stat) < 0 || stat.parent != pid) continue;
        rc = push(list, each);
    }
    proc_dir_close(&all);
    return rc;
}

int proc_children(pid_t pid, pid_t **out, size_t *count) {
    struct cr_buffer list = {0};
    int rc = children_by_thread(pid, &list);
    if (rc == -ENOENT && access("/proc/thread-self/children", R_OK) < 0) {
        cr_buffer_clear(&list);
        rc = children_by_parent(pid, &list);
    }
    if (rc == -ENOMEM || (rc < 0 && list.len == 0)) {
        cr_buffer_done(&list);
        return rc;
    }
    *out = (pid_t *) (void *) list.data;
    *count = list.len / sizeof(pid_t);
    return 0;
}
