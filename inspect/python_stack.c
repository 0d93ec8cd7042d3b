/* Reads the Python stack of a process's main thread: with py-spy, if it is in PATH; otherwise by
 * torch's worker server or by Python's faulthandler. */
#include "inspect/inspect_internal.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX ((size_t) 1 << 20) /* at most this many bytes of py-spy's output are read */

/* Returns whether the process runs a Python interpreter: as its program, or as a library. */
static bool runs_python(int64_t pid) {
    char path[64], target[512];
    (void) snprintf(path, sizeof(path), "/proc/%lld/exe", (long long) pid);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0) return false;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    if (slash != NULL && strncmp(slash + 1, "python", 6) == 0) return true;
    (void) snprintf(path, sizeof(path), "/proc/%lld/maps", (long long) pid);
    FILE *maps = fopen(path, "re");
    bool found = false;
    char line[1024];
    while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL) {
        found = strstr(line, "/libpython") != NULL;
    }
    if (maps != NULL) (void) fclose(maps);
    return found;
}

/* Appends the frames of one thread of py-spy's JSON to row->python. */
static void take_thread(struct inspect_row *row, const json_t *thread) {
    const json_t *frames = json_object_get(thread, "frames"), *frame;
    size_t i;
    json_array_foreach(frames, i, frame) {
        char text[256];
        const char *name = json_string_value(json_object_get(frame, "name"));
        const char *file = json_string_value(json_object_get(frame, "filename"));
        const char *slash = file != NULL ? strrchr(file, '/') : NULL;
        (void) snprintf(text, sizeof(text), "%s (%s:%lld)", name != NULL ? name : "?",
                        slash != NULL ? slash + 1 : file != NULL ? file : "?",
                        (long long) json_integer_value(json_object_get(frame, "line")));
        if (!inspect_add_function(row->python, text)) return;
    }
}

/* Requests the Python stack from the process itself. Returns false if the process has no means to
 * give it. */
static bool request_from_process(struct inspect_row *row) {
    return inspect_torch_python(row) || inspect_faulthandler(row);
}

/* Finds the main thread in py-spy's JSON, and stores its stack in row->python. The main thread's id
 * is the pid. If py-spy gave no stack, requests it in the other ways; if these give none either,
 * adds a note to the row. */
static void take_answer(struct inspect_row *row, const struct cr_buffer *answer) {
    json_auto_t *threads = json_loadb(answer->data != NULL ? answer->data : "", answer->len, 0,
                                      NULL);
    const json_t *thread;
    size_t i;
    json_array_foreach(threads, i, thread) {
        const char *name = json_string_value(json_object_get(thread, "thread_name"));
        bool is_main = json_integer_value(json_object_get(thread, "os_thread_id")) == row->pid ||
                       (name != NULL && strcmp(name, "MainThread") == 0);
        if (is_main && row->python[0] == '\0') take_thread(row, thread);
    }
    if (row->python[0] != '\0' || request_from_process(row)) return;
    inspect_note(row, "Python stack: py-spy gave none");
}

/* Starts py-spy with its stdout on `out`. Returns 0 or a positive errno. */
static int start(int64_t pid, int out, pid_t *child) {
    char number[24];
    posix_spawn_file_actions_t actions;
    const char *argv[] = {"py-spy", "dump", "--json", "--pid", number, NULL};
    (void) snprintf(number, sizeof(number), "%lld", (long long) pid);
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) return rc;
    rc = posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (rc == 0) rc = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (rc == 0) rc = posix_spawnp(child, "py-spy", &actions, NULL, (char **) argv, environ);
    (void) posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static int read_all(int fd, struct cr_buffer *out) {
    for (;;) {
        int rc = out->len < OUTPUT_MAX ? cr_buffer_reserve(out, 16384) : -EFBIG;
        if (rc < 0) return rc;
        ssize_t n = read(fd, out->data + out->len, 16384);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? -errno : 0;
        out->len += (size_t) n;
    }
}

void inspect_python_stack(struct inspect_row *row) {
    struct cr_buffer answer = {0};
    int ends[2], status = 0;
    pid_t child;
    if (row->state == 'D' || row->state == 'Z' || !runs_python(row->pid)) return;
    if (pipe2(ends, O_CLOEXEC) < 0) return;
    int rc = start(row->pid, ends[1], &child);
    (void) close(ends[1]);
    if (rc == 0) (void) read_all(ends[0], &answer);
    (void) close(ends[0]);
    if (rc == 0) {
        (void) waitpid(child, &status, 0);
        take_answer(row, &answer);
    } else if (request_from_process(row)) {
        /* py-spy did not start, but the process itself was asked for the Python stack */
    } else if (rc == ENOENT) {
        inspect_note(row, "Python stack: py-spy is not in PATH, nor is faulthandler registered");
    } else {
        inspect_note(row, "Python stack: cannot start py-spy: %s", strerror(rc));
    }
    cr_buffer_done(&answer);
}
