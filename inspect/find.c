/* Finds the workers on this host by torchrun's environment variables. So it finds the workers of
 * every launcher that sets these variables, without help from the launcher. */
#include "inspect/inspector.h"

#include "inspect/inspect_internal.h"

#include "base/text/parse.h"
#include "base/text/text.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENVIRON_MAX ((size_t) 1 << 20) /* at most this many bytes of an environment are read */
#define DEPTH_MAX   8                  /* longest chain of processes that wait for a child */

/* ---- environments ---- */

/* Reads the environment of a process into a malloc'ed buffer that ends with a NUL. Returns NULL if
 * it cannot be read. */
static char *read_environment(int64_t pid, size_t *len) {
    char path[64];
    struct cr_buffer b = {0};
    (void) snprintf(path, sizeof(path), "/proc/%" PRId64 "/environ", pid);
    FILE *f = fopen(path, "re");
    size_t n = 1;
    while (f != NULL && n > 0 && b.len < ENVIRON_MAX && cr_buffer_reserve(&b, 16385) == 0) {
        n = fread(b.data + b.len, 1, 16384, f);
        b.len += n;
    }
    if (f != NULL) (void) fclose(f);
    if (b.data != NULL) b.data[b.len] = '\0';
    *len = b.len;
    return b.data;
}

static const char *find_variable(const char *environment, size_t len, const char *name) {
    size_t name_len = strlen(name);
    for (size_t at = 0; at < len; at += strlen(environment + at) + 1) {
        const char *entry = environment + at;
        if (strncmp(entry, name, name_len) == 0 && entry[name_len] == '=') {
            return entry + name_len + 1;
        }
    }
    return NULL;
}

bool inspect_variable(int64_t pid, const char *name, char *out, size_t cap) {
    size_t len;
    char *environment = read_environment(pid, &len);
    const char *value = environment != NULL ? find_variable(environment, len, name) : NULL;
    out[0] = '\0';
    if (value != NULL) (void) snprintf(out, cap, "%s", value);
    free(environment);
    return value != NULL;
}

/* ---- the process that works ---- */

/* Returns the first child of a process, or -1 if it has none. */
static int64_t first_child(int64_t pid) {
    char path[80];
    int64_t child = -1;
    (void) snprintf(path, sizeof(path), "/proc/%" PRId64 "/task/%" PRId64 "/children", pid, pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) return -1;
    if (fscanf(f, "%" SCNd64, &child) != 1) child = -1;
    (void) fclose(f);
    return child;
}

int64_t inspect_working_process(int64_t pid) {
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        struct inspect_row row;
        inspect_row_init(&row, pid);
        if (inspect_process(&row) < 0) return pid;
        bool waits = strstr(row.kernel, "wait4") != NULL || strstr(row.kernel, "waitid") != NULL ||
                     strstr(row.kernel, "do_wait") != NULL;
        int64_t child = waits ? first_child(pid) : -1;
        if (child < 0) return pid;
        pid = child;
    }
    return pid;
}

/* ---- all workers of this host ---- */

struct found {
    struct inspect_row *rows;
    size_t count, cap;
};

static int64_t parent_of(int64_t pid) {
    char path[64], line[256];
    int64_t parent = -1;
    (void) snprintf(path, sizeof(path), "/proc/%" PRId64 "/status", pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && parent < 0 && fgets(line, sizeof(line), f) != NULL) {
        (void) sscanf(line, "PPid: %" SCNd64, &parent);
    }
    if (f != NULL) (void) fclose(f);
    return parent;
}

static bool has_same(int64_t pid, const char *name, const char *value) {
    char other[INSPECT_TEXT_MAX];
    return value != NULL && inspect_variable(pid, name, other, sizeof(other)) &&
           strcmp(other, value) == 0;
}

static int add(struct found *f, int64_t pid, const char *job, int64_t rank, int64_t local_rank) {
    if (f->count == f->cap) {
        size_t cap = f->cap > 0 ? f->cap * 2 : 64;
        struct inspect_row *rows = realloc(f->rows, cap * sizeof(*rows));
        if (rows == NULL) return -ENOMEM;
        f->rows = rows;
        f->cap = cap;
    }
    struct inspect_row *row = &f->rows[f->count++];
    inspect_row_init(row, pid);
    row->rank = rank;
    row->local_rank = local_rank;
    (void) cr_text_copy(row->job, sizeof(row->job), job, strlen(job));
    return 0;
}

/* Adds the process if it is a worker of the job run_id, or of any job if run_id is NULL. A worker
 * has the variables TORCHELASTIC_RUN_ID, RANK and LOCAL_RANK. The children of a worker inherit
 * these variables, so a process is no worker if its parent has the same run id and RANK. */
static int consider(struct found *f, int64_t pid, const char *run_id) {
    size_t len;
    int rc = 0;
    int64_t rank, local_rank;
    char *e = read_environment(pid, &len);
    if (e == NULL) return 0;
    const char *id = find_variable(e, len, "TORCHELASTIC_RUN_ID");
    const char *r = find_variable(e, len, "RANK"), *l = find_variable(e, len, "LOCAL_RANK");
    if (id != NULL && r != NULL && l != NULL && (run_id == NULL || strcmp(id, run_id) == 0) &&
        cr_parse_i64(r, 0, INT32_MAX, &rank) == 0 &&
        cr_parse_i64(l, 0, INT32_MAX, &local_rank) == 0) {
        int64_t parent = parent_of(pid);
        bool inherited = has_same(parent, "TORCHELASTIC_RUN_ID", id) && has_same(parent, "RANK", r);
        if (!inherited) rc = add(f, pid, id, rank, local_rank);
    }
    free(e);
    return rc;
}

int inspect_find(const char *run_id, struct inspect_row **rows, size_t *count,
                 struct cr_error *err) {
    struct found f = {0};
    const struct dirent *entry;
    int rc = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL) return cr_fail_errno(err, "cannot list the processes in /proc");
    while (rc == 0 && (entry = readdir(proc)) != NULL) {
        int64_t pid;
        if (cr_parse_i64(entry->d_name, 1, INT32_MAX, &pid) < 0) continue;
        rc = consider(&f, pid, run_id);
    }
    (void) closedir(proc);
    if (rc < 0) {
        free(f.rows);
        return cr_fail(err, rc, "cannot list the workers: no memory left");
    }
    *rows = f.rows;
    *count = f.count;
    return 0;
}
