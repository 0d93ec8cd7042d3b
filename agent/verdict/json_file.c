/* Writes verdict.json: implements json_file.h. */
#include "agent/verdict/json_file.h"

#include "agent/verdict/verdict_internal.h"
#include "base/files/private_file.h"
#include "base/files/write_all.h"
#include "base/time/clock.h"
#include "status/json_text.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- kinds of failures ---- */

const char *failure_kind(const struct verdict_worker *w, bool is_oom) {
    if (w->hung_ms > 0) return "hang";
    if (w->timer_expired) return "timer";
    if (w->exit_code >= 0) return "exit";
    return w->exit_code == -SIGKILL && is_oom ? "oom" : "signal";
}

const char *failure_advice(const char *kind, int64_t exit_code) {
    if (strcmp(kind, "oom") == 0) {
        return "use less memory: fewer workers on this host, smaller batches, fewer data loader "
               "processes; or raise the memory limit of the cgroup or the batch job";
    }
    if (strcmp(kind, "hang") == 0) {
        return "look at the place of the rank that differs from the others (inspection); if it "
               "was slow but well, raise --hang-timeout or --step-timeout";
    }
    if (strcmp(kind, "value") == 0) {
        return "look for the step at which the value became bad, and go on from a checkpoint that "
               "is older, with another seed or a smaller learning rate; the rule is --value-rule";
    }
    if (strcmp(kind, "timer") == 0) return "look at the code in which the timer was set";
    if (strcmp(kind, "signal") == 0 && exit_code == -SIGKILL) {
        return "find out who sent SIGKILL: the kernel for lack of memory (dmesg), a batch system's "
               "limit, or a person";
    }
    if (strcmp(kind, "signal") == 0 && (exit_code == -SIGTERM || exit_code == -SIGINT)) {
        return "find out who sent the signal; crun did not";
    }
    if (strcmp(kind, "signal") == 0) {
        return "the program crashed: look at the kernel's line and at its core dump, and run it "
               "with PYTHONFAULTHANDLER=1 for a Python stack";
    }
    if (exit_code == 127) return "a program or a shared library was not found";
    if (exit_code == 126) return "the program was found but cannot be executed";
    return "read the message and the last words of the rank that failed first; all of its output "
           "is in log_folder, if the job has -r or -t";
}

/* ---- values ---- */

/* Returns a new JSON string; it is empty if `s` is NULL. Returns NULL if memory is short. */
static json_t *text(const char *s) { return status_json_text(s != NULL ? s : ""); }

static json_t *seconds(int64_t ns) { return json_real((double) ns / (double) CR_NS_PER_S); }

static json_t *text_or_null(const char *s) {
    return s != NULL && s[0] != '\0' ? text(s) : json_null();
}

/* Returns a JSON array with the lines of a text. */
static json_t *lines_of(const char *s) {
    json_t *lines = json_array();
    while (lines != NULL && s != NULL && *s != '\0') {
        size_t len = strcspn(s, "\n");
        (void) json_array_append_new(lines, json_stringn(s, len));
        s += len + (s[len] == '\n');
    }
    return lines;
}

static json_t *failure_object(const struct rendezvous_failure *f) {
    bool is_signal = f->exit_code < 0 && f->exit_code > -NSIG;
    bool has_exit = strcmp(f->kind, "exit") == 0;
    json_t *signal_name =
        is_signal ? json_sprintf("SIG%s", verdict_signal_name((int) -f->exit_code)) : json_null();
    return json_pack(
        "{s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "host",
        text(f->host), "rank", (json_int_t) f->rank, "local_rank", (json_int_t) f->local_rank,
        "pid", (json_int_t) f->pid, "kind", text(f->kind), "exit_code",
        has_exit ? json_integer(f->exit_code) : json_null(), "signal", signal_name, "what",
        text(f->what), "message", text_or_null(f->message), "last_words", lines_of(f->last_words),
        "kernel", text_or_null(f->kernel), "log_folder", text_or_null(f->log_folder), "failed_at",
        seconds(failure_time_ns(f)), "clock_ahead_s",
        f->offset_error_ns >= 0 ? seconds(f->offset_ns) : json_null(), "clock_error_s",
        f->offset_error_ns >= 0 ? seconds(f->offset_error_ns) : json_null(), "advice",
        text(failure_advice(f->kind, f->exit_code)));
}

static json_t *failures_array(const struct failures *f) {
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < f->count; i++) {
        (void) json_array_append_new(list, failure_object(&f->list[i]));
    }
    return list;
}

static json_t *victims_array(const struct verdict_json *v) {
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < v->worker_count; i++) {
        const struct verdict_worker *w = &v->workers[i];
        if (!verdict_is_victim(w)) continue;
        json_t *name = json_sprintf("SIG%s", verdict_signal_name(w->signal_sent));
        (void) json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:o}", "rank",
                                                     (json_int_t) w->rank, "local_rank",
                                                     (json_int_t) w->local_rank, "pid",
                                                     (json_int_t) w->pid, "stopped_by_crun_with",
                                                     name));
    }
    return list;
}

static json_t *kernel_array(const struct kernel_log *k) {
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < k->count; i++) {
        (void) json_array_append_new(list, json_string(k->lines[i].text));
    }
    return list;
}

static json_t *verdict_object(const struct verdict_json *v) {
    json_t *first = v->failures->count > 0 ? failure_object(&v->failures->list[0]) : json_null();
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:{s:o, s:I}, s:o, s:I, s:{s:I, s:I}, s:o, s:o, s:I, s:o, s:o, "
        "s:{s:b, s:o}}",
        "version", VERDICT_JSON_VERSION, "job", text(v->job), "program", text(v->title), "outcome",
        text(v->outcome), "reason", text_or_null(v->reason), "written_by", "host", text(v->host),
        "group_rank", (json_int_t) v->group_rank, "written_at", seconds(v->now_ns), "round",
        (json_int_t) v->round, "restarts", "used", (json_int_t) v->restarts, "max",
        (json_int_t) v->max_restarts, "first_failure", first, "failures",
        failures_array(v->failures), "failures_left_out", (json_int_t) v->failures->left_out,
        "victims", victims_array(v), "inspection", lines_of(v->inspection), "kernel_log",
        "readable", (int) kernel_log_is_readable(v->kernel), "lines", kernel_array(v->kernel));
}

/* ---- the file ---- */

static int write_file(const char *path, const char *data, size_t len) {
    int fd = cr_private_create(path);
    if (fd < 0) return fd;
    int rc = cr_write_all(fd, data, len);
    if (close(fd) < 0 && rc == 0) rc = -errno;
    return rc;
}

int verdict_json_text(const struct verdict_json *v, struct cr_buffer *out) {
    json_auto_t *object = verdict_object(v);
    char *data = object != NULL ? json_dumps(object, JSON_INDENT(2)) : NULL;
    int rc = data == NULL ? -ENOMEM : cr_buffer_append(out, data, strlen(data));
    free(data);
    return rc == 0 ? cr_buffer_append(out, "\n", 1) : rc;
}

int verdict_json_save(const struct cr_buffer *text, const char *path) {
    char *temporary = cr_asprintf("%s.new", path);
    int rc = temporary == NULL ? -ENOMEM : write_file(temporary, text->data, text->len);
    if (rc == 0 && rename(temporary, path) < 0) rc = -errno;
    if (rc < 0 && temporary != NULL) (void) unlink(temporary);
    free(temporary);
    return rc;
}
