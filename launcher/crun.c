/* The main of crun: parses the command line, builds the description of the job, runs the agent on
 * one event loop, and turns the agent's result into an exit status:
 *
 *   0  all workers ended well
 *   1  workers failed, a handled signal ended the job, this node left the job, or the system
 *      refused something (a port in use, no memory left); --exit-codes=distinct tells these apart
 *      (launcher/exit_status.h)
 *   2  the command line is wrong or the program cannot be run: nothing was started
 *
 * The agent also runs this program under the name INSPECTOR_NAME, which makes it the program of
 * inspect/inspector.h, and under the names XID_NAME and HEALTH_NAME, which make it that of
 * agent/evidence/xid_program.h and that of agent/health/health.h.
 *
 * Signal handlers are installed before the first worker starts. After a signal that ends the job,
 * crun stops all workers in order. If no worker had started when the signal arrived, crun then
 * raises the same signal against itself and dies of it, as torchrun does: for SIGTERM a shell
 * reports 143, not 1. */
#include "agent/agent.h"
#include "agent/evidence/xid_program.h"
#include "agent/health/health.h"
#include "base/log/log.h"
#include "base/memory.h"
#include "base/process/daemon.h"
#include "base/text/text.h"
#include "base/time/clock.h"
#include "inspect/inspector.h"
#include "launcher/devices/devices.h"
#include "launcher/elsewhere.h"
#include "launcher/exit_status.h"
#include "launcher/frameworks/frameworks.h"
#include "launcher/hosts_start.h"
#include "launcher/job.h"
#include "launcher/jobset/jobset.h"
#include "launcher/keeper/keeper.h"
#include "launcher/nesting.h"
#include "launcher/options/options.h"
#include "launcher/pmi/pmi.h"
#include "launcher/program.h"
#include "launcher/report.h"
#include "launcher/scheduler_start.h"
#include "launcher/signals.h"
#include "launcher/task_leader.h"
#include "launcher/top.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

struct launcher {
    uv_loop_t loop;
    struct agent *agent;
    struct agent_result result;
    int done;
    int64_t preemption_notice_ms;
    const char *end_from; /* name of the variable that gives the end of the job's time; NULL if no
                           * end is known, so that no timer runs */
    uv_timer_t end;       /* fires preemption_notice_ms before the end of the job's time */
    struct job *job;
    struct signals signals;

    /* for JobSet's in-place restarts; `jobset` is NULL if crun takes no part in them */
    struct jobset_options in_place;
    struct jobset *jobset;
    bool is_outdated;       /* true if this pod has to restart in place */
    int start_rc;           /* result of agent_start(), whose error is in start_error */
    struct cr_error start_error;
};

/* ---- job_world: the environment and the machine, as job_build() sees them ---- */

static const char *lookup_environment(void *arg, const char *name) {
    (void) arg;
    return getenv(name);
}

static uint32_t count_cpus(void *arg) {
    (void) arg;
    return device_cpu_count();
}

static int count_gpus(void *arg, const char *visible, uint32_t *count, struct cr_error *err) {
    (void) arg;
    return device_gpu_count(&device_places_default, visible, count, err);
}

static uint32_t count_accelerators(void *arg, enum accelerator kind) {
    return accelerator_count(kind, "/sys", "/dev", lookup_environment, arg);
}

static int bind_workers(void *arg, enum numa_mode mode, const char *visible, uint32_t workers,
                        struct cr_cpu_mask *masks, struct cr_error *err) {
    (void) arg;
    return numa_bind_workers(mode, &device_places_default, "/sys", visible, workers, masks, err);
}

static int draw_random(void *arg, unsigned char out[16]) {
    (void) arg;
    return getrandom(out, 16, 0) == 16 ? 0 : -errno;
}

static const struct job_world real_world = {
    .lookup = lookup_environment,
    .cpu_count = count_cpus,
    .gpu_count = count_gpus,
    .accelerator_count = count_accelerators,
    .bind = bind_workers,
    .random = draw_random,
};

/* ---- ending with the job's result ---- */

/* Prints the text of a failure of crun on stderr. If crun runs as a worker of another launcher,
 * also writes the text into the error file that the other launcher reads. Returns `status`. */
static int fail(int status, const char *text) {
    report_line(text);
    (void) report_file(getenv("TORCHELASTIC_ERROR_FILE"), text);
    return status;
}

/* Reports *err and returns `status`. If the error is -EMFILE (too many open files), first appends
 * to its text how to raise the limit, because the functions that open files do not say that. */
static int fail_with(int status, struct cr_error *err) {
    size_t n = strlen(err->text);
    struct rlimit files = {0};
    if (err->code == -EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        (void) snprintf(err->text + n, sizeof(err->text) - n,
                        "; raise the limit of open files, which is %llu (ulimit -Hn)",
                        (unsigned long long) files.rlim_max);
    }
    return fail(status, err->text);
}

static int fail_by(struct cr_error *err) { return fail_with(EXIT_FAILED, err); }

static int fail_by_signal(int status, const struct agent_result *result) {
    char text[128];
    if (!result->workers_started) cr_die_by(result->signal);
    (void) snprintf(text, sizeof(text), "SignalException: Process %d got signal: %d (SIG%s)",
                    (int) getpid(), result->signal, sigabbrev_np(result->signal));
    return fail(status, text);
}

/* Prints the report of a failed job. Under the name torchrun, crun first prints the name of
 * torchrun's exception, because programs that call torchrun search stderr for it. */
static void print_report(const char *report) {
    static const char exception[] =
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
    if (report == NULL) return;
    if (strcmp(report_name(), "torchrun") == 0) cr_log_text(exception, sizeof(exception) - 1);
    cr_log_text(report, strlen(report));
}

static int conclude(struct agent_result *result, bool distinct) {
    int status = exit_status_of(result, distinct);
    if (result->summary != NULL) cr_log_text(result->summary, strlen(result->summary));
    switch (result->outcome) {
    case AGENT_SUCCEEDED: return status;
    case AGENT_FAILED:
        print_report(result->report);
        return status;
    case AGENT_SIGNALED: return fail_by_signal(status, result);
    case AGENT_LEFT:
    case AGENT_ERROR: return fail_with(status, &result->error);
    }
    return status;
}

/* ---- running the job ---- */

static void announce_end(struct launcher *l, int signum) {
    char why[32];
    (void) snprintf(why, sizeof(why), "SIG%s", sigabbrev_np(signum));
    agent_notice(l->agent, RENDEZVOUS_CHANGE_PREEMPTION, l->preemption_notice_ms, why);
}

/* Closes what belongs to this file. Call this when the agent has ended, or will not be started. */
static void close_launcher(struct launcher *l) {
    l->done = 1;
    signals_close(&l->signals);
    if (l->end_from != NULL) uv_close((uv_handle_t *) &l->end, NULL);
    if (l->jobset != NULL) jobset_close(l->jobset);
    l->jobset = NULL;
}

/* Call this for a signal that arrives while crun waits for the other pods of its JobSet. A signal
 * of --signals-to-handle and a preemption signal end crun. Other signals, such as SIGUSR2, are
 * meant for workers, so this ignores them. */
static void end_waiting(struct launcher *l, int signum) {
    bool ends = sigismember(&l->job->signals, signum) == 1 ||
                sigismember(&l->job->preemption_signals, signum) == 1;
    if (!ends) return;
    l->result = (struct agent_result){.outcome = AGENT_SIGNALED, .signal = signum};
    close_launcher(l);
}

/* Handles one of the signals that watch_signals() has chosen. A preemption signal announces the end
 * of the job to the workers. A signal of --signals-to-handle ends the job. SIGUSR2 requests flight
 * records, unless it is a preemption signal or a signal of --signals-to-handle. SIGWINCH goes to
 * the workers: they are in Unix sessions of their own, so the kernel sends it to crun alone. */
static void on_signal(void *arg, int signum, const char *sender) {
    struct launcher *l = arg;
    if (l->done) return;
    if (l->agent == NULL) {
        end_waiting(l, signum);
    } else if (sigismember(&l->job->preemption_signals, signum) == 1) {
        announce_end(l, signum);
    } else if (sigismember(&l->job->signals, signum) == 1) {
        cr_warn("Received %d death signal, shutting down workers; SIG%s was sent by %s", signum,
                sigabbrev_np(signum), sender);
        agent_signal(l->agent, signum);
    } else if (signum == SIGWINCH) {
        agent_resized(l->agent);
    } else {
        agent_dump(l->agent, "SIGUSR2");
    }
}

static void on_agent_done(void *arg, const struct agent_result *result) {
    struct launcher *l = arg;
    l->result = *result;
    close_launcher(l);
}

/* The timer calls this preemption_notice_ms before the scheduler ends the job. The function
 * announces that end to the workers, so that they can save. */
static void on_end_is_near(uv_timer_t *timer) {
    struct launcher *l = timer->data;
    char why[128];
    if (l->done || l->agent == NULL) return;
    (void) snprintf(why, sizeof(why), "the scheduler's time limit (%s)", l->end_from);
    agent_notice(l->agent, RENDEZVOUS_CHANGE_PREEMPTION, l->preemption_notice_ms, why);
}

/* Starts the timer that calls on_end_is_near(), if the scheduler has said when the job's time ends
 * and the user wants a notice. */
static void watch_end(struct launcher *l, const struct scheduler_facts *facts) {
    int64_t left_ms = facts->end_s * 1000 - cr_wall_ns() / 1000000 - l->preemption_notice_ms;
    l->end_from = facts->end_s > 0 && l->preemption_notice_ms > 0 ? facts->end_from : NULL;
    if (l->end_from == NULL) return;
    (void) uv_timer_init(&l->loop, &l->end);
    l->end.data = l;
    /* This timer must not keep the loop running when all other work is done. */
    uv_unref((uv_handle_t *) &l->end);
    (void) uv_timer_start(&l->end, on_end_is_near, left_ms > 0 ? (uint64_t) left_ms : 0, 0);
}

/* Returns 1 if crun leaves the signal `signum` ignored, else 0. crun leaves only SIGHUP ignored,
 * and only if SIGHUP was ignored when crun started, as under nohup(1), and the user has not given
 * --signals-to-handle. */
static int is_left_ignored(int signum, const struct options *options) {
    struct sigaction old;
    return signum == SIGHUP && options->source[OPTION_SIGNALS] == CR_FROM_DEFAULT &&
           sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

/* Starts handling the signals of --signals-to-handle and --preemption-signals, and SIGUSR2. */
static int watch_signals(struct launcher *l, const struct options *options,
                         struct cr_error *err) {
    sigset_t set;
    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGUSR2);
    (void) sigaddset(&set, SIGWINCH);
    l->preemption_notice_ms = l->job->preemption_notice_ms;
    for (int signum = 1; signum < NSIG; signum++) {
        bool ends = sigismember(&l->job->signals, signum) == 1 && !is_left_ignored(signum, options);
        if (ends || sigismember(&l->job->preemption_signals, signum) == 1) {
            (void) sigaddset(&set, signum);
        }
    }
    return signals_open(&l->signals, &l->loop, &set, on_signal, l, err);
}

/* Appends to err->text the remedy for a port that another program uses. With the backend static,
 * that program may be a crun of the same job, started with the same node rank. */
static void add_port_remedy(struct cr_error *err, const struct options *options,
                            const struct rendezvous_options *rendezvous) {
    bool by_endpoint = options->value[OPTION_RDZV_ENDPOINT][0] != '\0';
    bool is_alone = rendezvous->max_nodes == 1;
    bool hosts_by_rank = !is_alone && strcmp(rendezvous->backend, "static") == 0;
    size_t n = strlen(err->text);
    (void) snprintf(err->text + n, sizeof(err->text) - n, "; %sgive %s another port%s",
                    hosts_by_rank ? "if node rank 0 of this job runs here already, give this node "
                                    "another --node-rank; else " : "",
                    by_endpoint ? "--rdzv-endpoint" : "--master-port",
                    by_endpoint || !is_alone ? "" : ", or 0 for any free one");
}

/* Starts the agent. On failure closes the launcher and stores the reason in l->start_error. */
static void start_agent(struct launcher *l) {
    struct job *job = l->job;
    l->start_rc = agent_start(&l->loop, &job->agent, on_agent_done, l, &l->agent, &l->start_error);
    if (l->start_rc < 0) {
        close_launcher(l);
        return;
    }
    for (unsigned i = 0; i < job->warning_count; i++) cr_warn("%s", job->warnings[i]);
}

/* With JOBSET_START, starts the agent. With JOBSET_RESTART, makes the agent stop the workers and
 * end; or, if no agent was started, ends crun. */
static void on_jobset_order(void *arg, enum jobset_order order) {
    struct launcher *l = arg;
    if (order == JOBSET_START) {
        start_agent(l);
        return;
    }
    l->is_outdated = true;
    if (l->agent != NULL) {
        agent_signal(l->agent, SIGTERM);
        return;
    }
    l->result = (struct agent_result){.outcome = AGENT_SIGNALED, .signal = SIGTERM};
    close_launcher(l);
}

/* Starts the agent. In a JobSet that restarts in place, only opens `jobset`, whose order
 * JOBSET_START comes when all pods have the same in-place attempt. */
static void begin(struct launcher *l) {
    if (l->in_place.name == NULL) {
        start_agent(l);
        return;
    }
    l->start_rc = jobset_open(&l->loop, &l->in_place, on_jobset_order, l, &l->jobset,
                              &l->start_error);
    if (l->start_rc < 0) close_launcher(l);
}

static int fail_start(struct launcher *l, const struct options *options) {
    cr_log_flush();
    if (l->start_rc == -EADDRINUSE) {
        add_port_remedy(&l->start_error, options, &l->job->agent.rendezvous);
    }
    return fail_with(exit_status_of_start(l->start_rc, l->job->distinct_exit_codes),
                     &l->start_error);
}

/* Returns the exit status of a job that has ended, and prints why it failed. A pod that was stopped
 * to restart in place gets the exit status for which the kubelet starts its containers again. */
static int end_job(struct launcher *l) {
    bool has_own_end = l->result.outcome == AGENT_FAILED || l->result.outcome == AGENT_SUCCEEDED;
    if (!l->is_outdated || has_own_end) return conclude(&l->result, l->job->distinct_exit_codes);
    cr_warn("this pod restarts in place (exit status %d), because a pod of JobSet '%s' has failed",
            l->in_place.exit_status, l->in_place.name);
    return l->in_place.exit_status;
}

static int run_loop(struct launcher *l, struct job *job, const struct options *options,
                    const struct scheduler_facts *facts) {
    struct cr_error err = {0};
    l->job = job;
    int rc = watch_signals(l, options, &err);
    if (rc < 0) return fail_by(&err);
    watch_end(l, facts);
    job->agent.carries_log = 1;
    begin(l);
    (void) uv_run(&l->loop, UV_RUN_DEFAULT);
    if (l->start_rc < 0) return fail_start(l, options);
    /* All workers have ended, so a write to stderr may now block. But if the user has sent a
     * further signal to end crun, it must not block, because perhaps no process reads stderr. */
    if (l->result.gives_up_console) cr_log_never_wait();
    else cr_log_flush();
    int status = end_job(l);
    cr_log_drain();
    agent_free(l->agent);
    return status;
}

static int run_job(struct job *job, const struct options *options,
                   const struct scheduler_facts *facts) {
    struct cr_error err = {0};
    if (agent_claim_process(&err) < 0) return fail_by(&err);
    struct launcher *l = calloc(1, sizeof(*l));
    if (l == NULL) return fail(EXIT_FAILED, "no memory left");
    if (jobset_read(lookup_environment, NULL, &l->in_place, &err) < 0) {
        free(l);
        return fail(EXIT_USAGE, err.text);
    }
    int rc = uv_loop_init(&l->loop);
    if (rc < 0) {
        free(l);
        (void) cr_fail(&err, rc, "cannot start the event loop: %s", uv_strerror(rc));
        return fail_by(&err);
    }
    /* While SIGPIPE and SIGXFSZ are ignored, write(2) to a closed pipe or beyond the file size
     * limit returns an error instead of ending crun. The agent restores the default actions for the
     * workers. */
    (void) signal(SIGPIPE, SIG_IGN);
    (void) signal(SIGXFSZ, SIG_IGN);
    (void) setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", job->signals_text, 1);
    if (job->agent.timer_file != NULL) {
        (void) setenv("TORCHELASTIC_TIMER_FILE", job->agent.timer_file, 1);
    }
    cr_info("starting %u workers of '%s': run id '%s', backend %s, %u restarts",
            job->agent.rendezvous.local_world_size, job->agent.title, job->agent.rendezvous.run_id,
            job->agent.rendezvous.backend, job->agent.max_restarts);
    int status = run_loop(l, job, options, facts);
    (void) uv_loop_close(&l->loop);
    free(l);
    return status;
}

/* ---- from the command line to a job ---- */

static struct program_line first_line(const struct options *o) {
    return (struct program_line){.program = o->program,
                                 .args = o->args,
                                 .module = o->value[OPTION_MODULE] != NULL,
                                 .no_python = o->value[OPTION_NO_PYTHON] != NULL,
                                 .run_path = o->value[OPTION_RUN_PATH] != NULL};
}

static int find_program(const struct program_line *line, struct program *out,
                        struct cr_error *err) {
    struct program_request request = {
        .program = line->program,
        .args = line->args,
        .module = line->module,
        .no_python = line->no_python,
        .run_path = line->run_path,
        .python_exec = getenv("PYTHON_EXEC"),
        .path = getenv("PATH"),
        .self = "/proc/self/exe",
        .called = program_invocation_name,
    };
    return program_resolve(&request, out, err);
}

/* Replaces the program by "crun OPTION [VALUE] PROGRAM ...", which prepares the worker and executes
 * PROGRAM (launcher/pmi/pmi.h, launcher/frameworks/frameworks.h). `value` may be NULL. The path of
 * PROGRAM becomes an argument of crun. The agent expands variables ($NAME) in arguments, so each $
 * in the path is doubled. */
static int wrap_program(struct program *program, const char *option, const char *value,
                        struct cr_error *err) {
    size_t count = 0, n = 2;
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len < 0) return cr_fail_errno(err, "cannot find the path of crun");
    self[len] = '\0';
    while (program->argv[count] != NULL) count++;
    char **argv = calloc(count + 4, sizeof(*argv));
    char *path = malloc(2 * strlen(program->argv[0]) + 1), *to = path;
    if (argv != NULL) argv[0] = strdup(self), argv[1] = strdup(option);
    if (argv != NULL && value != NULL) argv[n++] = strdup(value);
    if (argv == NULL || path == NULL || argv[0] == NULL || argv[1] == NULL || argv[n - 1] == NULL) {
        return cr_fail(err, -ENOMEM, "no memory left");
    }
    for (const char *at = program->argv[0]; *at != '\0'; at++) {
        if (*at == '$') *to++ = '$';
        *to++ = *at;
    }
    *to = '\0';
    argv[n++] = path;
    for (size_t i = 1; i < count; i++) argv[n++] = program->argv[i];
    free(program->argv[0]);
    free(program->argv);
    program->argv = argv;
    return 0;
}

/* Prepares the program for JAX and TensorFlow if --jax or --tf-config is given. */
static int prepare_frameworks(const struct options *options, struct program *program,
                              struct cr_error *err) {
    bool jax = options->value[OPTION_JAX] != NULL, tf = options->value[OPTION_TF_CONFIG] != NULL;
    const char *ports = options->value[OPTION_PORT_RANGE];
    bool has_ports = ports != NULL && ports[0] != '\0';
    char value[32];
    if (!jax && !tf) return 0;
    (void) snprintf(value, sizeof(value), "%s%s%s", jax && tf ? "jax,tf" : jax ? "jax" : "tf",
                    has_ports ? "@" : "", has_ports ? ports : "");
    return wrap_program(program, "--framework-worker", value, err);
}

/* Prepares the program for MPI if --pmi is given, or if it is linked with an MPI of the MPICH
 * family. If it is linked with Open MPI, logs a warning: each worker of such a program would be an
 * MPI job of its own. */
static int prepare_mpi(const struct options *options, const struct job *job,
                       struct program *program, struct cr_error *err) {
    const struct rendezvous_options *r = &job->agent.rendezvous;
    bool is_alone = r->local_world_size == 1 && r->max_nodes == 1;
    enum mpi_family family = pmi_family_of_file(program->argv[0]);
    if (family == MPI_OPEN_MPI && !is_alone) {
        cr_warn("'%s' is linked with Open MPI, whose programs learn their rank only from its "
                "mpirun: each worker will be an MPI world of its own; start it by mpirun, or build "
                "it with MPICH", program->title);
    }
    if (options->value[OPTION_PMI] == NULL && family != MPI_MPICH) return 0;
    return wrap_program(program, "--pmi-worker", NULL, err);
}

/* Finds the program of each command line of the job, and prepares it for MPI. */
static int find_programs(const struct options *options, struct job *job, struct program *found,
                         struct cr_error *err) {
    struct program_line first = first_line(options);
    int rc = find_program(&first, &found[0], err);
    for (uint32_t i = 1; rc == 0 && i < job->agent.program_count; i++) {
        rc = find_program(&job->lines[i], &found[i], err);
    }
    if (rc == 0) rc = nesting_check("/proc", options->program, err);
    if (job->agent.is_log_json) cr_log_use_json();
    for (uint32_t i = 0; rc == 0 && (i == 0 || i < job->agent.program_count); i++) {
        rc = prepare_mpi(options, job, &found[i], err);
        if (rc == 0) rc = prepare_frameworks(options, &found[i], err);
        if (job->programs == NULL) continue;
        job->programs[i].argv = found[i].argv;
        job->programs[i].title = found[i].title;
    }
    job->agent.argv = found[0].argv;
    job->agent.title = found[0].title;
    return rc;
}

/* Names all programs of the job in its title, as in "trainer.py : rollout.py". The title is cut if
 * it is longer than the buffer. */
static void name_job(struct job *job, char *title, size_t size) {
    size_t n = 0;
    if (job->agent.program_count < 2) return;
    for (uint32_t i = 0; i < job->agent.program_count && n < size; i++) {
        n += (size_t) snprintf(title + n, size - n, "%s%s", i > 0 ? " : " : "",
                               job->programs[i].title);
    }
    job->agent.title = title;
}

static int launch(const struct options *options, const struct scheduler_facts *facts) {
    struct job job;
    struct program found[PROGRAMS_MAX] = {{0}};
    char title[512];
    struct cr_error err = {0};
    int rc = job_build(options, &real_world, &job, &err);
    if (rc == 0) rc = find_programs(options, &job, found, &err);
    if (rc == 0) name_job(&job, title, sizeof(title));
    int status = rc == -ENOMEM ? fail_by(&err)
                 : rc < 0      ? fail(EXIT_USAGE, err.text)
                               : run_job(&job, options, facts);
    for (size_t i = 0; i < PROGRAMS_MAX; i++) program_done(&found[i]);
    job_done(&job);
    return status;
}

static void show_line(const char *text) {
    char line[SCHEDULER_LINE_MAX + 16];
    size_t n = (size_t) snprintf(line, sizeof(line), "crun: ");
    n += cr_text_copy(line + n, sizeof(line) - n - 1, text, strlen(text));
    line[n++] = '\n';
    cr_log_text(line, n);
}

/* Runs the job on this node and returns the exit status. If the scheduler has started crun several
 * times on this node, only one of these processes runs the job. The others wait until that process
 * has ended, and return the same exit status. */
static int launch_task(const struct options *options, const struct scheduler_facts *facts,
                       const struct scheduler_choice *choice) {
    struct cr_error err = {0};
    int status = EXIT_FAILED;
    int rc = choice->one_task_leads ? scheduler_lead(facts, &status, &err) : 0;
    if (rc < 0) return fail_by(&err);
    if (rc > 0) return status;
    if (choice->is_shown) show_line(choice->line);
    status = launch(options, facts);
    task_lead_end(status);
    return status;
}

/* Appends the text of --help. Its first line has the name by which this program was called. */
static int write_help(struct cr_buffer *b) {
    struct cr_command command = crun_command;
    command.name = report_name();
    return cr_command_write_help(&command, b);
}

static int write_text(enum options_wanted wanted, struct cr_buffer *b) {
    switch (wanted) {
    case OPTIONS_HELP: return write_help(b);
    case OPTIONS_COMPLETION: return cr_program_write_completion(&crun_program, b);
    case OPTIONS_MANUAL: return cr_program_write_man(&crun_program, b);
    case OPTIONS_VERSION:
        return cr_buffer_printf(b, "%scrun " CRUN_VERSION " (elastic launcher, a drop-in for "
                                   "torchrun; not the OCI container runtime of the same name)\n",
                                strcmp(report_name(), "crun") == 0 ? "" : "torchrun: ");
    case OPTIONS_RUN:
    case OPTIONS_FRAMEWORK_WORKER:
    case OPTIONS_PMI_WORKER:
    case OPTIONS_CALL:
    case OPTIONS_DEPUTY: break;
    }
    return -EINVAL;
}

/* Writes the text in `b` to stdout, frees the buffer, and returns the exit status. `rc` is the
 * result of the function that made the text; if `rc` is negative, nothing is written to stdout. */
static int print(struct cr_buffer *b, int rc) {
    int ok = rc == 0 && fwrite(b->data, 1, b->len, stdout) == b->len && fflush(stdout) == 0;
    int code = errno;
    cr_buffer_done(b);
    if (ok || code == EPIPE) return ok ? EXIT_OK : EXIT_FAILED;
    struct cr_error err = {0};
    (void) cr_fail(&err, -code, "cannot write to stdout: %s", strerror(code));
    return fail_by(&err);
}

/* Completes the options with the facts of the scheduler. With --scheduler=show, prints the
 * completed command line. Otherwise runs the job: on this node, or by srun on all nodes. `words` is
 * the command line as the user typed it. Returns the exit status. */
static int launch_under_scheduler(struct options *options, char *const *words) {
    struct scheduler_facts facts;
    struct scheduler_choice choice;
    struct cr_error err = {0};
    struct cr_buffer text = {0};
    int rc = scheduler_read(options, words[0], lookup_environment, &facts, &err);
    if (rc == 0) rc = scheduler_fill(&facts, getpid() == 1, options, &choice, &err);
    if (rc < 0) return fail(EXIT_USAGE, err.text);
    if (strcmp(options->value[OPTION_SCHEDULER], "show") == 0) {
        rc = scheduler_write(options, &choice, &text);
        return print(&text, rc);
    }
    if (choice.plan == SCHEDULER_RUN) return launch_task(options, &facts, &choice);
    (void) scheduler_self_start(&choice, words, &err);
    return fail_by(&err);
}

/* Runs the job on the hosts of --hosts or --hostfile; or, without them, on this node. Returns the
 * exit status. */
static int launch_somewhere(struct options *options, char *const *words) {
    struct hosts_choice choice;
    struct cr_error err = {0};
    if (hosts_are_given(options)) {
        bool is_usage = false;
        int status = hosts_start(options, &is_usage, &err);
        return status >= 0 ? status : fail(is_usage ? EXIT_USAGE : EXIT_FAILED, err.text);
    }
    if (hosts_fill_one_node(options, &choice, &err) < 0) return fail(EXIT_USAGE, err.text);
    return launch_under_scheduler(options, words);
}

int main(int argc, char **argv) {
    struct options options;
    struct cr_error err = {0};
    if (strcmp(argv[0], INSPECTOR_NAME) == 0) return inspector_main(argc, argv);
    if (strcmp(argv[0], XID_NAME) == 0) return xid_main();
    if (strcmp(argv[0], HEALTH_NAME) == 0) return health_main(argc, argv);
    cr_keep_standard_files();
    cr_log_setup("crun", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    char **words = calloc((size_t) argc + 1, sizeof(*words)); /* options_parse() reorders argv */
    if (words == NULL) return fail(EXIT_FAILED, "no memory left");
    if (top_is_meant(program_invocation_short_name, argv)) {
        (void) top_execute(argv, &err);
        return fail_by(&err);
    }
    memcpy(words, argv, (size_t) argc * sizeof(*words));
    int status;
    if (keeper_is_meant(program_invocation_short_name, words)) {
        status = elsewhere_is_meant(words) ? elsewhere_main(words) : keeper_main(words);
    } else if (options_parse(argv, lookup_environment, NULL, &options, &err) < 0) {
        status = fail(EXIT_USAGE, err.text);
    } else if (options.wanted == OPTIONS_PMI_WORKER) {
        (void) pmi_run_worker(words + 2, &err);
        status = fail(EXIT_USAGE, err.text);
    } else if (options.wanted == OPTIONS_FRAMEWORK_WORKER) {
        (void) frameworks_run_worker(words + 2, &err);
        status = fail(EXIT_FAILED, err.text);
    } else if (options.wanted == OPTIONS_CALL) {
        status = elsewhere_caller.call((const char *const *) words);
    } else if (options.wanted == OPTIONS_DEPUTY) {
        status = hosts_run_deputy(&elsewhere_caller);
    } else if (options.wanted != OPTIONS_RUN) {
        struct cr_buffer text = {0};
        int rc = write_text(options.wanted, &text);
        status = print(&text, rc);
    } else {
        status = launch_somewhere(&options, words);
    }
    free(words);
    return status;
}
