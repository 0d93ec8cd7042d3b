/* Lets one of several tasks of a node run the job, if a scheduler has started crun more than once
 * on the node, as "srun --ntasks-per-node=8 crun train.py" does.
 * Task 0 leads: it runs the agent, which starts all workers of the node. The other tasks wait until
 * task 0 ends and return its exit status, so that for the scheduler all tasks run and end together.
 * The tasks use two files in a folder of the user in the temp directory:
 *
 *     <temp>/crun-<uid>/<name>.leader   locked by the leader while it lives; its exit status
 *     <temp>/crun-<uid>/<name>.tasks    one byte for each waiting task
 * No task polls: the others wait for the file by inotify(7) and for the leader's end by flock(2).
 * The kernel releases the lock when the leader ends, in whatever way. */
#ifndef LAUNCHER_TASK_LEADER_H
#define LAUNCHER_TASK_LEADER_H

#include "base/error.h"

#include <stdint.h>

/* Makes this process the leader until it ends. `name` is the same in all tasks of this job on this
 * node, and in no other job or node. `tasks` is the number of tasks on this node, at least 2.
 * Returns 0; or a negative errno, with err set, for example if another process leads the same job
 * on this node. */
int task_lead(const char *name, uint32_t tasks, struct cr_error *err);

/* Stores the leader's exit status for the other tasks. Waits up to 5 s until all of them have
 * opened the files, so that none waits for a leader that has ended; then removes the files. Does
 * nothing if this process does not lead. */
void task_lead_end(int status);

/* Waits until the leader with this name has ended, and stores its exit status in *status; 1 if the
 * leader stored none. Returns 0; or a negative errno, with err set, for example -ETIMEDOUT if no
 * leader has started within 60 s. */
int task_follow(const char *name, int *status, struct cr_error *err);

#endif
