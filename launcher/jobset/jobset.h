/* JobSet's in-place restarts (KEP-467 of kubernetes-sigs/jobset): crun plays the part of the pod's
 * agent. docs/schedulers.md says what a user sets and sees.
 *
 * Each pod writes the number of its attempt into an annotation of itself, and watches the JobSet.
 * JobSet's controller reads the annotations. When all pods have the same number, it sets the
 * JobSet's currentInPlaceRestartAttempt to it, and the pods start their workers: this is a barrier.
 * When one pod has started again and so has a larger number, the controller sets
 * previousInPlaceRestartAttempt to the largest number less 1. A pod whose number is not larger than
 * that ends with an exit status for which the kubelet starts its containers again. */
#ifndef LAUNCHER_JOBSET_H
#define LAUNCHER_JOBSET_H

#include "base/error.h"
#include "base/network/endpoint.h"
#include "base/program/command_line.h"

#include <stdint.h>

#define JOBSET_NAME_MAX 254 /* bytes of a name in Kubernetes, with the NUL */

struct uv_loop_s;
struct jobset;

/* Where this pod is. The texts that are pointers belong to the environment. */
struct jobset_options {
    const char *name;   /* name of the JobSet; NULL if crun takes no part in in-place restarts */
    const char *pod;    /* name of this pod */
    const char *folder; /* folder of the pod's service account: its token, ca.crt and namespace */
    char space[JOBSET_NAME_MAX]; /* namespace of the JobSet and the pod */
    struct cr_endpoint server;   /* the API server */
    int exit_status;    /* exit status with which this pod asks the kubelet for a restart */
};

enum jobset_order {
    JOBSET_START,   /* the barrier is lifted: the workers may start */
    JOBSET_RESTART, /* this pod's attempt is outdated: crun has to end with exit_status */
};

/* Reads the variables by `lookup`, and the namespace's file if no variable has the namespace.
 * out->name is NULL unless CRUN_JOBSET_IN_PLACE=1, and inside a worker of crun or torchrun. Returns
 * 0; or -EINVAL, and sets err to a text that names the variable or the file. */
int jobset_read(cr_getenv_fn lookup, void *lookup_arg, struct jobset_options *out,
                struct cr_error *err);

/* Begins: reads the JobSet, announces this pod's attempt and watches the JobSet. `options` must
 * stay valid until jobset_close() has called on_close. on_order() is called with JOBSET_START once,
 * unless JOBSET_RESTART comes first; and with JOBSET_RESTART at most once, as the last order. An
 * API server that cannot be reached or refuses is tried again without end, and a warning says so.
 * Returns 0; or a negative errno, and sets err: libcurl is missing, or memory is short. */
int jobset_open(struct uv_loop_s *loop, const struct jobset_options *options,
                void (*on_order)(void *arg, enum jobset_order order), void *arg,
                struct jobset **out, struct cr_error *err);

/* Ends the watch and frees `j` when all handles are closed. on_order() may call this. */
void jobset_close(struct jobset *j);

#endif
