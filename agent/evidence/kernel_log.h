/* Reads the kernel's log for lines about the death of workers: out of memory, a crash with the
 * address of its code, and errors of GPUs (NVIDIA's Xid). */
#ifndef AGENT_KERNEL_LOG_H
#define AGENT_KERNEL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KERNEL_LOG_LINES_MAX 16  /* number of lines that are kept; older lines are dropped */
#define KERNEL_LOG_LINE_MAX  320 /* bytes of a line with its NUL; a longer line is cut */

enum kernel_log_kind {
    KERNEL_LOG_NOTHING,
    KERNEL_LOG_OOM,   /* a process was killed because memory was short */
    KERNEL_LOG_CRASH, /* a process got a fatal signal for what its code did */
    KERNEL_LOG_GPU,   /* a GPU or its driver reports an error */
};

struct kernel_log_line {
    enum kernel_log_kind kind;
    pid_t pid;  /* the process that the line names; 0 if it names none */
    int64_t ns; /* time at which the kernel wrote the line, monotonic clock */
    char text[KERNEL_LOG_LINE_MAX]; /* the line's text, only printable characters */
};

struct kernel_log {
    int fd;         /* /dev/kmsg; -1 if it is not open */
    bool was_tried; /* true if crun has tried to open /dev/kmsg, with or without success */
    size_t count;
    struct kernel_log_line lines[KERNEL_LOG_LINES_MAX];
};

/* Parses one record of /dev/kmsg: "6,1234,5678901,-;text\n…". Returns true and fills in *out if the
 * text is of one of the kinds above. Returns false if it is of none of them, or if the bytes are no
 * record. Pure. */
bool kernel_log_parse(const char *record, size_t len, struct kernel_log_line *out);

/* Returns true if this process may read the kernel's log. */
bool kernel_log_is_readable(const struct kernel_log *log);

/* Removes all lines from *log, and skips the lines that the kernel has written so far. Call this
 * before the workers of a round start. *log must be all zeros before the first call. */
void kernel_log_begin(struct kernel_log *log);
/* Adds the lines that the kernel has written since the last call, or since kernel_log_begin().
 * Older lines are not read again: a kernel's log has thousands of lines, so reading all of them at
 * each failure would take longer than a restart. */
void kernel_log_read(struct kernel_log *log);
/* Adds a line from another source. Drops the oldest line if the log is full. */
void kernel_log_add(struct kernel_log *log, const struct kernel_log_line *line);
void kernel_log_close(struct kernel_log *log);

/* Returns the newest line in *log that names the process, or NULL if there is none. */
const struct kernel_log_line *kernel_log_of(const struct kernel_log *log, pid_t pid);
/* Returns the newest line in *log about a GPU that names no process and was written between the two
 * times of the monotonic clock, in ns; or NULL if there is none. */
const struct kernel_log_line *kernel_log_of_gpus(const struct kernel_log *log, int64_t from_ns,
                                                 int64_t to_ns);

#endif
