/* Reads the environment and the files of this machine for the finders of launcher/scheduler/, and
 * starts srun: implements launcher/scheduler_start.h. */
#include "launcher/scheduler_start.h"

#include "base/files/read_file.h"
#include "base/memory.h"
#include "launcher/task_leader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_file(void *arg, const char *path, char *out, size_t cap) {
    (void) arg;
    ssize_t n = cr_read_file(path, out, cap);
    return n < 0 ? (int) n : 0;
}

static bool is_named_torchrun(const char *argv0) {
    const char *slash = strrchr(argv0, '/');
    return strcmp(slash != NULL ? slash + 1 : argv0, "torchrun") == 0;
}

int scheduler_read(const struct options *options, const char *argv0, cr_getenv_fn lookup,
                   struct scheduler_facts *facts, struct cr_error *err) {
    char host[CR_HOST_MAX] = "";
    struct scheduler_world world = {
        .lookup = lookup, .read_file = read_file, .host_name = host};
    bool by_default = options->source[OPTION_SCHEDULER] == CR_FROM_DEFAULT;
    *facts = (struct scheduler_facts){.node_rank = -1, .tasks = 1};
    if (strcmp(options->value[OPTION_SCHEDULER], "none") == 0) return 0;
    if (lookup(NULL, "TORCHELASTIC_RUN_ID") != NULL) return 0;
    if (by_default && is_named_torchrun(argv0)) return 0;
    if (gethostname(host, sizeof(host) - 1) < 0) host[0] = '\0';
    return scheduler_find(&world, facts, err);
}

int scheduler_write(const struct options *options, const struct scheduler_choice *choice,
                    struct cr_buffer *out) {
    bool found = choice->line[0] != '\0';
    int rc = cr_buffer_printf(out, "%s\ncrun",
                              found ? choice->line : "no scheduler is recognised");
    for (size_t i = 0; i < OPTION_COUNT && rc == 0; i++) {
        const struct cr_option *option = &crun_command.options[i];
        const char *text = options->value[i];
        if (options->source[i] == CR_FROM_DEFAULT || text == NULL) continue;
        if (i == OPTION_SCHEDULER) continue;
        bool is_flag = option->value_name == NULL;
        rc = cr_buffer_printf(out, " --%s%s%s", option->name, is_flag ? "" : "=",
                              is_flag ? "" : text);
    }
    if (rc == 0) rc = cr_buffer_printf(out, " %s\n", options->program);
    if (rc < 0 || choice->plan != SCHEDULER_SELF_START) return rc;
    return cr_buffer_printf(out, "this command line is started on %u nodes by srun\n",
                            choice->nodes);
}

/* Removes the variables that would make srun start another number of tasks, or give a task fewer
 * GPUs: srun must start one task per node, which may use the whole node. */
static void forget_tasks(void) {
    static const char *const names[] = {
        "SLURM_NTASKS",        "SLURM_NPROCS",        "SLURM_NTASKS_PER_NODE",
        "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU",
        "SLURM_DISTRIBUTION",  "SLURM_CPU_BIND",      "SLURM_EXCLUSIVE",
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) (void) unsetenv(names[i]);
}

int scheduler_self_start(const struct scheduler_choice *choice, char *const *argv,
                         struct cr_error *err) {
    char nodes[32], tasks[32], self[4096];
    size_t count = 0, n = 0;
    while (argv[count] != NULL) count++;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len < 0) return cr_fail_errno(err, "cannot find the path of crun");
    self[len] = '\0';
    char **line = calloc(count + 12, sizeof(*line));
    if (line == NULL) return cr_fail(err, -ENOMEM, "no memory left to start srun");
    (void) snprintf(nodes, sizeof(nodes), "--nodes=%u", choice->nodes);
    (void) snprintf(tasks, sizeof(tasks), "--ntasks=%u", choice->nodes);
    const char *const head[] = {"srun", nodes, tasks, "--ntasks-per-node=1", "--cpu-bind=none",
                                "--kill-on-bad-exit=0", "--wait=0", self};
    for (size_t i = 0; i < CR_ARRAY_LEN(head); i++) line[n++] = (char *) (uintptr_t) head[i];
    for (size_t i = 1; i < count; i++) line[n++] = argv[i];
    forget_tasks();
    if (choice->nproc[0] != '\0') (void) setenv("PET_NPROC_PER_NODE", choice->nproc, 0);
    const char *layout = choice->has_layout ? getenv("SLURM_TASKS_PER_NODE") : NULL;
    if (layout != NULL) (void) setenv(SCHEDULER_LAYOUT, layout, 1);
    else (void) unsetenv(SCHEDULER_LAYOUT);
    (void) execvp(line[0], line);
    int rc = cr_fail_errno(err,
                           "cannot start srun, which would start crun on the %u nodes of this job; "
                           "put srun into PATH, or give --standalone for this node alone",
                           choice->nodes);
    free(line);
    return rc;
}

int scheduler_lead(const struct scheduler_facts *facts, int *status, struct cr_error *err) {
    char name[SCHEDULER_TEXT_MAX + CR_HOST_MAX + 32], host[CR_HOST_MAX] = "";
    /* `name` contains the host's name, because several hosts may share one temp directory. */
    (void) gethostname(host, sizeof(host) - 1);
    if (facts->job_id[0] != '\0') {
        (void) snprintf(name, sizeof(name), "%s-%s", facts->job_id, host);
    } else { /* all tasks of a node have the same parent, the scheduler's daemon, so its pid can
              * stand for the job's id */
        (void) snprintf(name, sizeof(name), "parent-%d-%s", (int) getppid(), host);
    }
    if (facts->task == 0) return task_lead(name, facts->tasks, err);
    int rc = task_follow(name, status, err);
    return rc < 0 ? rc : 1;
}
