/* Starts workers. begin_start() clones a child and registers its pid; finish_start() waits until
 * the child has executed the program or has failed. begin_start() is called for several children
 * before finish_start() is called for the first of them, so that the children execute their
 * programs side by side. */
#include "agent/process/claim.h"
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/cleanup.h"
#include "base/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NURSERY_VARIABLE "CRUN_NURSERY="

/* ---- starting one worker ---- */

/* Returns a copy of the list `envp` in which `variable` replaces CRUN_NURSERY; or NULL if memory is
 * short. The list is malloc'ed. Its strings are those of the caller and must live as long as the
 * list. */
static char **environment_with(char *const *envp, char *variable) {
    size_t count = 0, to = 0;
    while (envp[count] != NULL) count++;
    char **out = malloc((count + 2) * sizeof *out);
    if (out == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(envp[i], NURSERY_VARIABLE, sizeof NURSERY_VARIABLE - 1) == 0) continue;
        out[to++] = envp[i];
    }
    out[to++] = variable;
    out[to] = NULL;
    return out;
}

static struct worker_process *worker_new(struct nursery *n, const struct worker_spawn *how,
                                         void *arg) {
    struct worker_process *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    *w = (struct worker_process){.watched = WATCHED_WORKER, .nursery = n, .arg = arg, .pidfd = -1};
    w->envp = environment_with(how->envp, n->variable);
    if (w->envp != NULL) return w;
    free(w);
    return NULL;
}

/* Call this when a worker could not be started in the cgroup. `why` is a negative errno, or 0 if
 * the kernel has killed the worker at its start. From now on workers are started outside of the
 * cgroup. The cgroup is closed if no worker lives; otherwise it stays open, because it is needed to
 * end the workers in it. */
static void give_up_cgroup(struct nursery *n, int why) {
    if (!n->cgroup_given_up) {
        cr_warn("cannot start a worker in the cgroup '%s': %s; workers start outside of it, where "
                "crun finds fewer of the processes that they leave", n->cgroup.path,
                why < 0 ? strerror(-why) : "the kernel has killed it");
    }
    n->cgroup_given_up = true;
    if (TAILQ_EMPTY(&n->living)) cr_close_fd(&n->cgroup.fd);
}

static int begin(struct worker_process *w, const struct worker_spawn *how, struct spawn_slot *slot,
                 int cgroup_fd) {
    struct nursery *n = w->nursery;
    struct spawn_request request = {
        .path = how->path,
        .argv = how->argv,
        .envp = w->envp,
        .stdio = {how->stdin_fd, how->stdout_fd, how->stderr_fd},
        .cgroup_fd = cgroup_fd,
        .files = claim_workers_files(),
        .cpus = how->cpus,
    };
    int rc = known_children_begin();
    if (rc < 0) return rc;
    rc = spawn_begin(slot, &request, &n->borrow);
    known_children_end(rc == 0 ? slot->child.pid : 0);
    if (rc == -ENOTSUP && cgroup_fd >= 0) {
        give_up_cgroup(n, slot->report.rc);
        return begin(w, how, slot, -1);
    }
    if (rc < 0) return rc;
    worker_register(w, &slot->child);
    if (w->pidfd < 0) nursery_schedule_turn(n);
    return 0;
}

/* Waits until the worker has executed its program. If it could not be started in the cgroup, starts
 * it outside of the cgroup. Returns 0; or a negative errno, and sets *what to a verb that names
 * what failed ("execute", …). */
static int finish(struct worker_process *w, const struct worker_spawn *how, struct spawn_slot *slot,
                  const char **what) {
    int rc = spawn_finish(slot, what);
    if (rc < 0) worker_unregister(w);
    if (rc != -ENOTSUP || slot->request.cgroup_fd < 0) return rc;
    give_up_cgroup(w->nursery, slot->report.rc);
    *what = "start";
    rc = begin(w, how, slot, -1);
    return rc < 0 ? rc : finish(w, how, slot, what);
}

/* ---- worker_spawn_all(): starting several workers ---- */

/* The state of one call of worker_spawn_all(). At most NURSERY_SLOTS workers are between
 * begin_start() and finish_start() at the same time. */
struct batch {
    struct nursery *n;
    const struct worker_spawn *how;
    void *const *args;
    struct worker_process **out;
    size_t failed; /* lowest index of the workers that could not be started; valid if rc < 0 */
    /* the error of the worker with the index `failed`, a negative errno; 0 if no start has
     * failed */
    int rc;
    struct cr_error *err;
};

static const char *remedy(int rc) {
    switch (rc) {
    case -EACCES: return "; make it executable (chmod +x) and its folders accessible";
    case -ENOEXEC: return "; is it built for this machine, or does a script lack its #! line?";
    case -ENOENT: return "; check the path, and the interpreter that its #! line names";
    case -EAGAIN: return NURSERY_MORE_PROCESSES;
    case -E2BIG: return "; shorten the arguments or the environment";
    default: return "";
    }
}

static void start_failed(struct batch *b, size_t i, int rc, const char *what) {
    if (b->out[i] != NULL) free(b->out[i]->envp);
    free(b->out[i]);
    b->out[i] = NULL;
    if (b->rc < 0 && i > b->failed) return;
    b->failed = i;
    b->rc = cr_fail(b->err, rc, "cannot %s '%s': %s%s", what, b->how[i].path, strerror(-rc),
                    remedy(rc));
}

static struct spawn_slot *slot_of(const struct batch *b, size_t i) {
    return &b->n->slots[i % NURSERY_SLOTS];
}

static void begin_start(struct batch *b, size_t i) {
    int rc = -ENOMEM;
    b->out[i] = worker_new(b->n, &b->how[i], b->args[i]);
    if (b->out[i] != NULL) rc = begin(b->out[i], &b->how[i], slot_of(b, i), b->n->cgroup.fd);
    if (rc < 0) start_failed(b, i, rc, "start");
}

static void finish_start(struct batch *b, size_t i) {
    const char *what;
    if (b->out[i] == NULL) return;
    int rc = finish(b->out[i], &b->how[i], slot_of(b, i), &what);
    if (rc < 0) {
        start_failed(b, i, rc, what);
        return;
    }
    free(b->out[i]->envp);
    b->out[i]->envp = NULL;
}

static int prepare_slots(struct nursery *n) {
    if (n->slots != NULL) return 0;
    void *slots = mmap(NULL, NURSERY_SLOTS * sizeof *n->slots, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slots == MAP_FAILED) return -ENOMEM;
    n->slots = slots;
    return 0;
}

int worker_spawn_all(struct nursery *n, const struct worker_spawn *how, void *const *worker_args,
                     size_t count, struct worker_process **out, size_t *failed,
                     struct cr_error *err) {
    struct batch b = {.n = n, .how = how, .args = worker_args, .out = out, .err = err};
    for (size_t i = 0; i < count; i++) out[i] = NULL;
    *failed = 0;
    if (n->state != NURSERY_OPEN) {
        return cr_fail(err, -EBUSY, "cannot start '%s': its worker group is being stopped",
                       how->path);
    }
    int rc = prepare_slots(n);
    if (rc < 0) return cr_fail(err, rc, "cannot start '%s': out of memory", how->path);
    size_t begun = 0, finished = 0;
    while (begun < count && b.rc == 0) {
        if (begun - finished == NURSERY_SLOTS) finish_start(&b, finished++);
        if (b.rc == 0) begin_start(&b, begun++);
    }
    while (finished < begun) finish_start(&b, finished++);
    *failed = b.failed;
    return b.rc;
}

int worker_spawn(struct nursery *n, const struct worker_spawn *how, void *worker_arg,
                 struct worker_process **out, struct cr_error *err) {
    size_t failed;
    struct worker_process *w;
    int rc = worker_spawn_all(n, how, &worker_arg, 1, &w, &failed, err);
    if (rc == 0) *out = w;
    return rc;
}
