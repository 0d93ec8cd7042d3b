/* Reads the kernel's log for lines about the death of workers: out of memory, a crash with the
 * address of its code, and errors of GPUs (NVIDIA's Xid). */
#ifndef AGENT_KERNEL_LOG_H
#define AGENT_KERNEL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KERNEL_LOG_LINES_MAX 16  /* most lines that are kept; the newest ones */
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
    bool is_readable; /* false if this process may not read the kernel's log */
    size_t count;
    struct kernel_log_line lines[KERNEL_LOG_LINES_MAX];
};

/* Parses one record of /dev/kmsg: "6,1234,5678901,-;text\n…". Returns false if it is no record or
 * its text is none of those above. Pure. */
bool kernel_log_parse(const char *record, size_t len, struct kernel_log_line *out);

/* Reads the lines since since_ns (monotonic clock). */
void kernel_log_read(struct kernel_log *log, int64_t since_ns);

/* Returns the line about the death of the process, or NULL. */
const struct kernel_log_line *kernel_log_of(const struct kernel_log *log, pid_t pid);

#endif
