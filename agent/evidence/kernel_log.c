/* Reads /dev/kmsg. Each read(2) returns one record. It fails with EAGAIN if there is no further
 * record. It fails with EPIPE if the kernel has overwritten the next record; the read(2) after that
 * returns the oldest record that is left. */
#include "agent/evidence/kernel_log.h"

#include "base/cleanup.h"
#include "base/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORDS_MAX 200000 /* limit of the records that one call reads; no kernel keeps so many */

/* A record is kept if it contains the `text` of one of these patterns. If the pattern has a
 * `before_pid`, the number that follows this string in the record is the pid of the process that
 * the record is about. */
static const struct {
    enum kernel_log_kind kind;
    const char *text, *before_pid;
} patterns[] = {
    {KERNEL_LOG_OOM, "Killed process ", "Killed process "},
    {KERNEL_LOG_GPU, "NVRM: Xid", "pid="},
    {KERNEL_LOG_CRASH, ": segfault at ", "["},
    {KERNEL_LOG_CRASH, " general protection fault ", "["},
    {KERNEL_LOG_CRASH, " trap invalid opcode ", "["},
    {KERNEL_LOG_CRASH, " trap divide error ", "["},
    {KERNEL_LOG_CRASH, " trap int3 ", "["},
    {KERNEL_LOG_GPU, "NVRM: GPU", NULL},
    {KERNEL_LOG_GPU, "amdgpu: GPU reset", NULL},
    {KERNEL_LOG_GPU, "fallen off the bus", NULL},
};

/* Returns the number that follows `mark` in the text; 0 if there is no `mark` or no positive number
 * after it. */
static pid_t pid_after(const char *text, const char *mark) {
    int pid = 0;
    const char *at = mark != NULL ? strstr(text, mark) : NULL;
    if (at == NULL) return 0;
    at += strlen(mark);
    if (*at == '\'') at++; /* Xid lines have pid='<unknown>' or pid=1234 */
    return sscanf(at, "%9d", &pid) == 1 && pid > 0 ? pid : 0;
}

bool kernel_log_parse(const char *record, size_t len, struct kernel_log_line *out) {
    char text[KERNEL_LOG_LINE_MAX];
    int64_t us;
    const char *begin = memchr(record, ';', len);
    if (begin == NULL) return false;
    size_t head = (size_t) (begin - record);
    if (head >= sizeof(text)) return false;
    memcpy(text, record, head);
    text[head] = '\0';
    if (sscanf(text, "%*u,%*u,%" SCNd64, &us) != 1) return false;
    const char *end = memchr(begin + 1, '\n', len - head - 1);
    size_t size = end != NULL ? (size_t) (end - begin - 1) : len - head - 1;
    (void) cr_text_copy(text, sizeof(text), begin + 1, size);
    for (size_t i = 0; i < CR_ARRAY_LEN(patterns); i++) {
        if (strstr(text, patterns[i].text) == NULL) continue;
        *out = (struct kernel_log_line){.kind = patterns[i].kind, .ns = us * 1000,
                                        .pid = pid_after(text, patterns[i].before_pid)};
        memcpy(out->text, text, sizeof(text));
        return true;
    }
    return false;
}

void kernel_log_add(struct kernel_log *log, const struct kernel_log_line *line) {
    if (log->count == KERNEL_LOG_LINES_MAX) {
        memmove(log->lines, log->lines + 1, (log->count - 1) * sizeof(log->lines[0]));
        log->count--;
    }
    log->lines[log->count++] = *line;
}

bool kernel_log_is_readable(const struct kernel_log *log) { return log->was_tried && log->fd >= 0; }

void kernel_log_begin(struct kernel_log *log) {
    if (!log->was_tried) log->fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    log->was_tried = true;
    log->count = 0;
    if (log->fd >= 0) (void) lseek(log->fd, 0, SEEK_END);
}

void kernel_log_read(struct kernel_log *log) {
    char record[8192]; /* the largest record of /dev/kmsg */
    struct kernel_log_line line;
    if (!kernel_log_is_readable(log)) return;
    for (int i = 0; i < RECORDS_MAX; i++) {
        ssize_t n = read(log->fd, record, sizeof(record));
        if (n < 0 && errno == EPIPE) continue;
        if (n <= 0) break;
        if (kernel_log_parse(record, (size_t) n, &line)) kernel_log_add(log, &line);
    }
}

void kernel_log_close(struct kernel_log *log) {
    if (kernel_log_is_readable(log)) cr_close_fd(&log->fd);
    *log = (struct kernel_log){0};
}

const struct kernel_log_line *kernel_log_of_gpus(const struct kernel_log *log, int64_t from_ns,
                                                 int64_t to_ns) {
    for (size_t i = log->count; i > 0; i--) {
        const struct kernel_log_line *line = &log->lines[i - 1];
        if (line->kind != KERNEL_LOG_GPU || line->pid != 0) continue;
        if (line->ns >= from_ns && line->ns <= to_ns) return line;
    }
    return NULL;
}

const struct kernel_log_line *kernel_log_of(const struct kernel_log *log, pid_t pid) {
    for (size_t i = log->count; i > 0; i--) {
        if (log->lines[i - 1].pid == pid) return &log->lines[i - 1];
    }
    return NULL;
}
