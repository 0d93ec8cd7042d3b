/* Asks a worker with torch what it does, through handles that stock torch has:
 *
 *   the worker's socket (TORCH_WORKER_SERVER_SOCKET), an HTTP server of programs that use torch's
 *   worker_main(): its answers are the flight record and the Python stacks of all threads
 *
 *   the pipe (TORCH_NCCL_DEBUG_INFO_PIPE_FILE) of ProcessGroupNCCL: a byte in the pipe makes the
 *   process write its flight record to a file. */
#include "inspect/inspect_internal.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/text/text.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX    ((size_t) 16 << 20) /* most bytes of an answer; a flight record has 2,000
                                           * entries */
#define ANSWER_MAX_MS 1500                /* longest time in ms until an answer is complete */

/* ---- requests to the worker's socket ---- */

static int connect_to(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(to.sun_path)) return -ENAMETOOLONG;
    memcpy(to.sun_path, path, strlen(path));
    CR_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *) &to, sizeof(to)) < 0) return -errno;
    return cr_take_fd(&fd);
}

/* Reads into `in` until the server closes the connection. Returns 0; -ETIMEDOUT at the deadline;
 * -EFBIG if the answer is longer than ANSWER_MAX; or another negative errno. */
static int read_answer(int fd, int64_t deadline_ms, struct cr_buffer *in) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        int ready = poll(&p, 1, cr_poll_timeout(deadline_ms));
        if (ready == 0) return -ETIMEDOUT;
        if (ready < 0 && errno != EINTR) return -errno;
        if (ready < 0) continue;
        int rc = in->len < ANSWER_MAX ? cr_buffer_reserve(in, 65537) : -EFBIG;
        if (rc < 0) return rc;
        ssize_t n = read(fd, in->data + in->len, 65536);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return n < 0 ? -errno : 0;
        in->len += (size_t) n;
    }
}

/* Sends a request to a handler of torch's worker server. Returns the body of the answer, a text
 * with a NUL at its end that lies in `in`; or NULL, and sets *rc to a negative errno. */
static const char *request(const char *path, const char *handler, struct cr_buffer *in, int *rc) {
    char text[160];
    CR_AUTO_FD int fd = connect_to(path);
    int len = snprintf(text, sizeof(text),
                       "POST /handler/%s HTTP/1.0\r\nHost: crun\r\nConnection: close\r\n"
                       "Content-Length: 0\r\n\r\n", handler);
    *rc = fd < 0 ? fd : 0;
    if (*rc == 0 && send(fd, text, (size_t) len, MSG_NOSIGNAL) != len) *rc = -EIO;
    if (*rc == 0) *rc = read_answer(fd, cr_deadline_ms(ANSWER_MAX_MS), in);
    if (*rc == 0) *rc = cr_buffer_append(in, "", 1);
    if (*rc < 0) return NULL;
    char *body = strstr(in->data, "\r\n\r\n");
    bool is_ok = strncmp(in->data, "HTTP/1.", 7) == 0 && in->len > 12 && in->data[9] == '2';
    *rc = is_ok && body != NULL ? 0 : -EPROTO;
    return *rc == 0 ? body + 4 : NULL;
}

/* ---- the flight record ---- */

/* Sets row->operation to the oldest operation in the record that has not ended (torch marks the
 * others as retired), because the later ones perhaps only wait for its end. If all operations have
 * ended, the text names the last one. */
static void describe(struct inspect_row *row, const json_t *record) {
    const json_t *entries = json_object_get(record, "entries"), *entry, *found = NULL;
    bool is_running = false;
    size_t i;
    json_array_foreach(entries, i, entry) {
        if (is_running) break;
        found = entry;
        is_running = !json_is_true(json_object_get(entry, "retired"));
    }
    if (found == NULL) return;
    const json_t *group = json_object_get(found, "process_group");
    inspect_set_operation(row, is_running,
                          json_string_value(json_object_get(found, "profiling_name")),
                          json_integer_value(json_object_get(found, "collective_seq_id")),
                          json_string_value(json_array_get(group, 1)));
}

static void ask_for_record(struct inspect_row *row, const char *path) {
    struct cr_buffer in = {0};
    int rc;
    const char *body = request(path, "fr_trace_json", &in, &rc);
    if (body != NULL) {
        json_auto_t *record = json_loads(body, 0, NULL);
        describe(row, record);
    } else if (rc == -ETIMEDOUT) {
        inspect_note(row, "operation: torch's worker server did not answer within %d ms",
                     ANSWER_MAX_MS);
    }
    cr_buffer_done(&in);
}

/* ---- the Python stack ---- */

bool inspect_torch_python(struct inspect_row *row) {
    char path[PATH_MAX];
    struct cr_buffer in = {0};
    int rc;
    if (!inspect_variable(row->pid, "TORCH_WORKER_SERVER_SOCKET", path, sizeof(path))) return false;
    const char *body = request(path, "dump_traceback", &in, &rc);
    if (body != NULL) inspect_take_faulthandler(row, body);
    cr_buffer_done(&in);
    return row->python[0] != '\0';
}

/* ---- the pipe ---- */

bool inspect_dump_pipe(int64_t pid, char *out, size_t cap) {
    char stem[PATH_MAX - 64], rank[16];
    if (!inspect_variable(pid, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", stem, sizeof(stem))) return false;
    if (!inspect_variable(pid, "RANK", rank, sizeof(rank))) return false;
    (void) snprintf(out, cap, "%s%s.pipe", stem, rank);
    return true;
}

/* Writes a byte to the worker's pipe of ProcessGroupNCCL if the worker has opened this pipe for
 * reading; the worker then writes its flight record to a file. */
static void ring(struct inspect_row *row) {
    char path[PATH_MAX];
    if (!inspect_dump_pipe(row->pid, path, sizeof(path))) return;
    CR_AUTO_FD int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || write(fd, "1", 1) != 1) return;
    inspect_note(row, "torch writes its flight record to the worker's log folder");
}

void inspect_torch(struct inspect_row *row) {
    char path[PATH_MAX];
    if (row->state == 'D' || row->state == 'Z' || row->state == 'T') return;
    ring(row);
    if (!inspect_variable(row->pid, "TORCH_WORKER_SERVER_SOCKET", path, sizeof(path))) return;
    ask_for_record(row, path);
}
