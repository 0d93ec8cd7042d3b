/* Prepares this process to start workers: makes it a sub-reaper, stops it from ignoring SIGCHLD,
 * and raises its limit of open files. These settings affect the whole process, so nursery_open()
 * does not make them: the program makes them by an explicit call. */
#include "agent/process/claim.h"

#include "agent/process/nursery.h"
#include "agent/system/system.h"
#include "base/process/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

/* The limit of open files that this process had before raise_file_limit() raised it; rlim_max is 0
 * if the limit was not raised. */
static struct rlimit workers_files;

/* Raises the limit of open files. Each worker costs this process a pidfd, pipes and connections to
 * the store, so the usual 1,024 descriptors are too few for some hundred workers. Workers are
 * started with the old limit, because select(2) cannot handle descriptors of 1,024 and more. */
static void raise_file_limit(void) {
    if (workers_files.rlim_max != 0 || getrlimit(RLIMIT_NOFILE, &workers_files) < 0) return;
    cr_raise_descriptor_limit();
}

/* Sets SIGCHLD to its default if it is ignored. While a process ignores SIGCHLD, the kernel reaps
 * its children by itself, and their exit codes are lost. */
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
    if (rc == 0) return 0;
    return cr_fail(err, rc,
                   "cannot list the children of this process in /proc: %s; crun needs a readable "
                   "/proc of its own pid namespace (mount -t proc proc /proc)",
                   strerror(-rc));
}
