/* Prepares the process to hold workers: the settings that are process-wide, made once, because its
 * main function decided so. */
#include "agent/process/claim.h"

#include "agent/process/known_children.h"
#include "agent/process/nursery.h"
#include "base/daemon.h"

#include <signal.h>
#include <sys/prctl.h>

/* The limit before the claim; rlim_max is 0 until then. */
static struct rlimit workers_files;

/* A worker costs this process a pidfd, its pipes and its connections to the store: the usual 1,024
 * descriptors are not enough for a few hundred workers. The workers get the old limit back, because
 * programs that use select(2) break with a large one. */
static void raise_file_limit(void) {
    if (workers_files.rlim_max != 0 || getrlimit(RLIMIT_NOFILE, &workers_files) < 0) return;
    cr_raise_descriptor_limit();
}

/* If SIGCHLD is ignored, the kernel reaps children by itself and their exit codes are lost. */
static void stop_ignoring_sigchld(void) {
    struct sigaction now, standard = {.sa_handler = SIG_DFL};
    if (sigaction(SIGCHLD, NULL, &now) < 0) return;
    if (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT) != 0) {
        (void) sigaction(SIGCHLD, &standard, NULL);
    }
}

const struct rlimit *claim_workers_files(void) {
    return workers_files.rlim_max != 0 ? &workers_files : NULL;
}

int nursery_claim_process(struct cr_error *err) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        return cr_fail_errno(err, "cannot become the reaper of orphaned processes");
    }
    stop_ignoring_sigchld();
    raise_file_limit();
    int rc = known_children_add_present();
    return rc < 0 ? cr_fail(err, rc, "cannot list the children of this process") : 0;
}
