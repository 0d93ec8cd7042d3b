/* Reads the kernel's log for lines about the death of workers: out of memory, a crash with the
 * address of its code, and errors of GPUs (NVIDIA's Xid). */
#ifndef AGENT_KERNEL_LOG_H
#define AGENT_KERNEL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KERNEL_LOG_LINES_MAX 16  /* most lines that are kept; older ones are dropped */
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
    int64_t ns; /* time on the monotonic clock */
    char text[KERNEL_LOG_LINE_MAX]; /* printable */
};

struct kernel_log {
    int fd;         /* /dev/kmsg; -1 if it is not open */
    bool was_tried; /* true if /dev/kmsg was opened, or cannot be opened */
    size_t count;
    struct kernel_log_line lines[KERNEL_LOG_LINES_MAX];
};

/* Parses one record of /dev/kmsg: "6,1234,5678901,-;text\n…". Returns false if the bytes are no
 * record, or if the text is of none of the kinds above. Pure. */
bool kernel_log_parse(const char *record, size_t len, struct kernel_log_line *out);

/* Returns true if this process may read the kernel's log. */
bool kernel_log_is_readable(const struct kernel_log *log);

/* Call this before the workers of a round start: removes all lines from *log, and skips those that
 * the kernel has written so far. *log must be zero before the first call. */
void kernel_log_begin(struct kernel_log *log);
/* Adds the lines that the kernel has written since the last call, or since kernel_log_begin().
 * Older lines are not read again: a kernel's log has thousands of lines, so reading all of them at
 * each failure would take longer than a restart. */
void kernel_log_read(struct kernel_log *log);
void kernel_log_close(struct kernel_log *log);

/* Returns the line about the death of the process, or NULL if there is none. */
const struct kernel_log_line *kernel_log_of(const struct kernel_log *log, pid_t pid);

#endif
