/* Making a process fit to hold workers: what is process-wide, done once, by the choice of its main. */
#include "agent/agent.h"
#include "agent/process/claim.h"
#include "agent/process/known_children.h"
#include "base/daemon.h"

#include <signal.h>
#include <sys/prctl.h>

/* As they were before the claim: what the workers get. rlim_max is 0 until then. */
static struct rlimit workers_files;

/* A worker costs us a pidfd, its pipes and its connections to the store: the usual 1,024 descriptors
 * are not enough for a few hundred of them. The workers keep the limit that we were started with. */
static void raise_file_limit(void) {
    if (workers_files.rlim_max != 0 || getrlimit(RLIMIT_NOFILE, &workers_files) < 0) return;
    cr_raise_descriptor_limit();
}

static void heed_dead_children(void) {
    struct sigaction now, standard = {.sa_handler = SIG_DFL};
    if (sigaction(SIGCHLD, NULL, &now) < 0) return;
    if (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT) != 0)
        (void) sigaction(SIGCHLD, &standard, NULL);
}

const struct rlimit *claim_workers_files(void) {
    return workers_files.rlim_max != 0 ? &workers_files : NULL;
}

int agent_claim_process(struct cr_error *err) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return cr_fail_errno(err, "cannot become the reaper of orphaned processes");
    heed_dead_children();
    raise_file_limit();
    int code = known_children_add_present();
    return code < 0 ? cr_fail(err, code, "cannot list the children of this process") : 0;
}
