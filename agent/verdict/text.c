/* Writes in one line which worker failed first, and of what. */
#include "agent/verdict/verdict_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const char *verdict_signal_name(int signum) {
    const char *name = sigabbrev_np(signum);
    return name != NULL ? name : "?";
}

static int append_signal(struct cr_buffer *out, int signum) {
    char what[64] = "unknown";
    const char *text = sigdescr_np(signum);
    if (text != NULL) (void) snprintf(what, sizeof(what), "%s", text);
    if (what[0] >= 'A' && what[0] <= 'Z' && what[1] >= 'a') what[0] = (char) (what[0] + 32);
    return cr_buffer_printf(out, "%d (SIG%s, %s)", signum, verdict_signal_name(signum), what);
}

static int append_exit_code(struct cr_buffer *out, int code) {
    TRY(cr_buffer_printf(out, "exit code %d", code));
    if (code == 126) return cr_buffer_printf(out, " (a shell's: found but not executable)");
    if (code == 127) {
        return cr_buffer_printf(out,
                                " (a shell's: command not found; or a shared library is missing)");
    }
    if (code <= 128 || sigabbrev_np(code - 128) == NULL) return 0;
    TRY(cr_buffer_printf(out, " (a shell's: killed by signal "));
    TRY(append_signal(out, code - 128));
    return cr_buffer_printf(out, ")");
}

int verdict_cause(struct cr_buffer *out, const struct verdict_worker *w) {
    if (w->exit_code >= 0) return append_exit_code(out, w->exit_code);
    TRY(cr_buffer_printf(out, "killed by signal "));
    TRY(append_signal(out, -w->exit_code));
    return w->core_dumped ? cr_buffer_printf(out, ", core dumped") : 0;
}

/* Appends who sent the signal that killed the worker, as far as that is known. A SIGKILL that crun
 * did not send does not prove that memory was short, even if the cgroup has counted an
 * out-of-memory kill. In that case the text only says "consistent with out of memory". */
static int append_sender(struct cr_buffer *out, const struct verdict *v,
                         const struct verdict_worker *w) {
    if (w->hung_ms > 0 && w->exit_code < 0) {
        return cr_buffer_printf(out,
                                ", sent by crun: it had made no step for %g s, after step %" PRIu64,
                                (double) w->hung_ms / 1000, w->hung_step);
    }
    if (w->timer_expired && w->exit_code < 0) {
        return cr_buffer_printf(
            out, ", sent by crun's timer watchdog: a timer that it had set had expired");
    }
    if (w->exit_code != -SIGKILL || verdict_is_victim(w)) return 0;
    if (w->oom_killed) return cr_buffer_printf(out, ", sent by the kernel: memory was short");
    if (v->oom_kills == 0) return cr_buffer_printf(out, ", not sent by crun");
    return cr_buffer_printf(out,
                            ", consistent with out of memory: the memory cgroup counted %" PRIu64
                            " out-of-memory kill%s during this attempt",
                            v->oom_kills, v->oom_kills == 1 ? "" : "s");
}

int verdict_line(struct cr_buffer *out, const struct verdict *v, const struct verdict_worker *w) {
    TRY(cr_buffer_printf(out, "rank %u (local rank %u, pid %d) on %s failed first: ", w->rank,
                         w->local_rank, (int) w->pid, v->host));
    if (verdict_is_victim(w)) {
        return cr_buffer_printf(out,
                                "it wrote its error file before any worker ended, and had not "
                                "ended itself when crun stopped it with SIG%s",
                                verdict_signal_name(w->signal_sent));
    }
    TRY(verdict_cause(out, w));
    return append_sender(out, v, w);
}
