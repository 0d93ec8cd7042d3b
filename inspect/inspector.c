/* Fills in rows in two passes. The first pass reads /proc, which takes microseconds. The second
 * pass reads stacks and operations, in several forked processes side by side. A forked process that
 * hangs is killed at the deadline; its rows keep what the first pass has read. */
#include "inspect/inspector.h"

#include "inspect/inspect_internal.h"

#include "base/cleanup.h"
#include "base/files/write_all.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOKERS_MAX 16 /* most forked processes at a time */

/* One of the forked processes, which divide the rows among them: with `step` processes, number
 * `index` fills in the rows index, index + step, index + 2 * step and so on. */
struct looker {
    pid_t pid;
    int fd; /* reading end of the process's pipe; -1 after the end of its output */
    struct cr_buffer input;
};

/* ---- in a forked process ---- */

static void look_at(struct inspect_row *row) {
    inspect_operation(row);
    if (row->operation[0] == '\0') inspect_torch(row);
    inspect_native_stack(row);
    inspect_python_stack(row);
}

static _Noreturn void looker_main(struct inspect_row *rows, size_t count, size_t index,
                                  size_t step, int out) {
    /* The kernel kills this process when its parent dies. Without that, a process that hangs could
     * trace its worker for ever. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = index; i < count; i += step) {
        struct cr_buffer line = {0};
        look_at(&rows[i]);
        if (inspect_row_write(&line, &rows[i]) == 0) {
            if (cr_write_all(out, line.data, line.len) < 0) _exit(1);
        }
        cr_buffer_done(&line);
    }
    _exit(0);
}

/* ---- in the parent ---- */

static void start_looker(struct looker *l, struct inspect_row *rows, size_t count, size_t index,
                         size_t step) {
    int ends[2];
    *l = (struct looker){.pid = -1, .fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0) return;
    l->pid = fork();
    if (l->pid == 0) looker_main(rows, count, index, step, ends[1]);
    (void) close(ends[1]);
    l->fd = ends[0];
    if (l->pid < 0) cr_close_fd(&l->fd);
}

/* Finds the row of `rows` that has the rank and pid of the looker's `line`, and replaces it. */
static void take_row(struct inspect_row *rows, bool *done, size_t count, const char *line,
                     size_t len) {
    struct inspect_row row;
    if (inspect_row_read(&row, line, len) < 0) return;
    for (size_t i = 0; i < count; i++) {
        if (done[i] || rows[i].pid != row.pid || rows[i].rank != row.rank) continue;
        rows[i] = row;
        done[i] = true;
        return;
    }
}

/* Reads from a looker's pipe, and takes each row that is complete. Closes the pipe at its end. */
static void receive(struct looker *l, struct inspect_row *rows, bool *done, size_t count) {
    char *end;
    ssize_t n = cr_buffer_reserve(&l->input, 65536) == 0
                    ? read(l->fd, l->input.data + l->input.len, 65536) : -1;
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        cr_close_fd(&l->fd);
        return;
    }
    l->input.len += (size_t) n;
    while ((end = memchr(l->input.data, '\n', l->input.len)) != NULL) {
        size_t len = (size_t) (end - l->input.data);
        take_row(rows, done, count, l->input.data, len);
        cr_buffer_consume(&l->input, len + 1);
    }
}

/* Receives rows until all lookers have ended or the deadline has passed. */
static void receive_all(struct looker *lookers, size_t looker_count, struct inspect_row *rows,
                        bool *done, size_t count, int64_t deadline_ms) {
    for (;;) {
        struct pollfd fds[LOOKERS_MAX];
        size_t open = 0;
        for (size_t i = 0; i < looker_count; i++) {
            fds[i] = (struct pollfd){.fd = lookers[i].fd, .events = POLLIN};
            if (lookers[i].fd >= 0) open++;
        }
        if (open == 0) return;
        int n = poll(fds, (nfds_t) looker_count, cr_poll_timeout(deadline_ms));
        if (n == 0 || (n < 0 && errno != EINTR)) return;
        for (size_t i = 0; n > 0 && i < looker_count; i++) {
            if (fds[i].revents != 0) receive(&lookers[i], rows, done, count);
        }
    }
}

static void end_looker(struct looker *l) {
    if (l->pid > 0) {
        /* Only the looker is killed. Its child py-spy ends by itself: nobody reads py-spy's output
         * any more, so a write to the pipe fails. */
        if (l->fd >= 0) (void) kill(l->pid, SIGKILL);
        (void) waitpid(l->pid, NULL, 0);
    }
    cr_close_fd(&l->fd);
    cr_buffer_done(&l->input);
}

void inspect_look(struct inspect_row *rows, size_t count, int64_t timeout_ms) {
    int64_t deadline_ms = cr_deadline_ms(timeout_ms);
    struct looker lookers[LOOKERS_MAX];
    size_t looker_count = count < LOOKERS_MAX ? count : LOOKERS_MAX;
    CR_AUTO_FREE bool *done = calloc(count + 1, sizeof(*done));
    if (done == NULL) return;
    for (size_t i = 0; i < count; i++) {
        rows[i].pid = inspect_working_process(rows[i].pid);
        if (inspect_process(&rows[i]) < 0) inspect_note(&rows[i], "the process has ended");
    }
    for (size_t i = 0; i < looker_count; i++) {
        start_looker(&lookers[i], rows, count, i, looker_count);
    }
    receive_all(lookers, looker_count, rows, done, count, deadline_ms);
    for (size_t i = 0; i < looker_count; i++) end_looker(&lookers[i]);
    for (size_t i = 0; i < count; i++) {
        if (!done[i]) inspect_note(&rows[i], "stacks: not read within %g s",
                                   (double) timeout_ms / 1000);
    }
}

/* ---- the program ---- */

static int write_rows(const struct inspect_row *rows, size_t count) {
    struct cr_buffer out = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) rc = inspect_row_write(&out, &rows[i]);
    if (rc == 0) rc = cr_write_all(STDOUT_FILENO, out.data, out.len);
    cr_buffer_done(&out);
    return rc;
}

int inspector_main(int argc, char **argv) {
    size_t count = 0;
    CR_AUTO_FREE struct inspect_row *rows = calloc((size_t) argc + 1, sizeof(*rows));
    if (rows == NULL) return 1;
    for (int i = 1; i < argc; i++) {
        int64_t rank, local_rank, pid;
        if (strcmp(argv[i], INSPECTOR_RING) == 0) {
            inspect_ring(rows, count);
            return 0;
        }
        if (sscanf(argv[i], "%" SCNd64 ":%" SCNd64 ":%" SCNd64, &rank, &local_rank, &pid) != 3) {
            return 2;
        }
        inspect_row_init(&rows[count], pid);
        rows[count].rank = rank;
        rows[count++].local_rank = local_rank;
    }
    inspect_look(rows, count, INSPECTOR_TIMEOUT_MS);
    return write_rows(rows, count) < 0 ? 1 : 0;
}
