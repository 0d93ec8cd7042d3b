/* Keeps the fork server of --preload: implements agent/preload.h. */
#include "agent/preload.h"

#include "base/log/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* Returns the environment for the fork server: that of this process, with OMP_NUM_THREADS as the
 * workers have it, because libraries read this variable when they are loaded. Returns NULL if
 * memory is short. The caller frees the list, but not its strings. */
static char **server_environment(const struct agent_job *job) {
    static char one_thread[] = "OMP_NUM_THREADS=1";
    size_t count = 0;
    while (environ[count] != NULL) count++;
    char **envp = calloc(count + 2, sizeof(*envp));
    if (envp == NULL) return NULL;
    memcpy(envp, environ, count * sizeof(*envp));
    if (job->set_omp_num_threads) envp[count] = one_thread;
    return envp;
}

void preload_begin(struct preload *p, struct nursery *n, const struct agent_job *job) {
    struct cr_error err = {0};
    if (job->preload == NULL || p->server != NULL || p->has_failed) return;
    if (job->argv[1] == NULL || strcmp(job->argv[1], "-u") != 0) {
        p->has_failed = true;
        cr_warn("cannot preload modules: '%s' is not a Python interpreter that runs a script",
                job->argv[0]);
        return;
    }
    CR_AUTO_FREE char **envp = server_environment(job);
    int rc = envp == NULL ? cr_fail(&err, -ENOMEM, "no memory left")
                          : fork_server_open(n, job->argv[0], job->preload, envp, &p->server, &err);
    if (rc == 0) return;
    p->has_failed = true;
    cr_warn("cannot preload modules: %s; workers import them at each start", err.text);
}

void preload_ended(struct preload *p) {
    if (p->server == NULL) return;
    if (!fork_server_gone(p->server)) {
        p->has_failed = true;
        cr_warn("the process that preloads modules has ended before it was ready; workers import "
                "the modules at each start");
    }
    fork_server_close(p->server);
    p->server = NULL;
}

void preload_release(struct preload *p) {
    if (p->server != NULL) fork_server_release(p->server);
}

void preload_close(struct preload *p) {
    fork_server_close(p->server);
    p->server = NULL;
}
