/* Runs the process that waits for NVML's events, and reads the pipe from it: implements xid.h. */
#include "agent/evidence/xid.h"

#include "agent/evidence/xid_program.h"
#include "base/cleanup.h"
#include "base/text/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

struct xid_watch {
    uv_process_t process;
    bool has_process; /* true until the process has ended */
    int fd;           /* reading end of the pipe */
    void (*on_close)(void *arg);
    void *arg;
};

bool xid_parse(const char *packet, size_t len, struct kernel_log_line *out) {
    char text[KERNEL_LOG_LINE_MAX];
    int64_t ns;
    int skip = 0;
    if (len >= sizeof(text) || memchr(packet, '\0', len) != NULL) return false;
    memcpy(text, packet, len);
    text[len] = '\0';
    if (sscanf(text, "%" SCNd64 " %n", &ns, &skip) != 1 || skip == 0 || ns < 0) return false;
    *out = (struct kernel_log_line){.kind = KERNEL_LOG_GPU, .ns = ns};
    return cr_text_copy(out->text, sizeof(out->text), text + skip, strlen(text + skip)) > 0;
}

static bool has_gpus(void) {
    bool found = false;
    DIR *dir = opendir("/proc/driver/nvidia/gpus");
    if (dir == NULL) return false;
    for (const struct dirent *e; !found && (e = readdir(dir)) != NULL;) found = e->d_name[0] != '.';
    (void) closedir(dir);
    return found;
}

static bool is_wanted(void) {
    const char *choice = getenv("CRUN_XID");
    if (choice != NULL && strcmp(choice, "1") == 0) return true;
    if (choice != NULL && strcmp(choice, "0") == 0) return false;
    return access("/dev/kmsg", R_OK) < 0 && has_gpus();
}

static void on_exit_of(uv_process_t *process, int64_t status, int signum) {
    struct xid_watch *w = process->data;
    (void) status, (void) signum;
    w->has_process = false;
}

static void on_closed(uv_handle_t *handle) {
    struct xid_watch *w = handle->data;
    void (*on_close)(void *) = w->on_close;
    void *arg = w->arg;
    cr_close_fd(&w->fd);
    free(w);
    if (on_close != NULL) on_close(arg);
}

static int spawn(struct xid_watch *w, uv_loop_t *loop, int out) {
    char name[] = XID_NAME;
    char *argv[] = {name, NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = out},
                                     {.flags = UV_IGNORE}};
    const uv_process_options_t options = {.file = "/proc/self/exe", .args = argv,
                                          .exit_cb = on_exit_of, .stdio = stdio, .stdio_count = 3};
    return uv_spawn(loop, &w->process, &options);
}

struct xid_watch *xid_watch_open(uv_loop_t *loop) {
    int ends[2];
    struct xid_watch *w = is_wanted() ? calloc(1, sizeof(*w)) : NULL;
    if (w == NULL) return NULL;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK | O_DIRECT) < 0) {
        free(w);
        return NULL;
    }
    w->fd = ends[0];
    w->process.data = w;
    w->has_process = spawn(w, loop, ends[1]) == 0;
    (void) close(ends[1]);
    if (w->has_process) {
        uv_unref((uv_handle_t *) &w->process); /* the process alone keeps no loop running */
        return w;
    }
    uv_close((uv_handle_t *) &w->process, on_closed);
    return NULL;
}

void xid_watch_read(struct xid_watch *w, struct kernel_log *log) {
    char packet[KERNEL_LOG_LINE_MAX];
    struct kernel_log_line line;
    for (ssize_t n; (n = read(w->fd, packet, sizeof(packet))) > 0;) {
        if (xid_parse(packet, (size_t) n, &line)) kernel_log_add(log, &line);
    }
}

void xid_watch_close(struct xid_watch *w, void (*on_close)(void *arg), void *arg) {
    w->on_close = on_close;
    w->arg = arg;
    if (w->has_process) (void) uv_process_kill(&w->process, SIGKILL);
    uv_close((uv_handle_t *) &w->process, on_closed);
}
