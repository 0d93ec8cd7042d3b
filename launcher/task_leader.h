/* Lets one of several tasks of a node run the job, if a scheduler has started crun more than once
 * on the node, as "srun --ntasks-per-node=8 crun train.py" does.
 *
 * Task 0 leads: it runs the agent, which starts all workers of the node. The other tasks wait until
 * task 0 has ended, and return the same exit status. So for the scheduler all tasks run and end
 * together. The tasks use two files in a folder of the user in the temp directory:
 *
 *     <temp>/crun-<uid>/<name>.leader   the leader's exit status; locked while the leader lives
 *     <temp>/crun-<uid>/<name>.tasks    one byte for each waiting task
 *
 * No task polls. The other tasks wait by inotify(7) until the leader has written to its file, and
 * by flock(2) until the leader has ended: the kernel releases the lock when the leader ends, in
 * whatever way. */
#ifndef LAUNCHER_TASK_LEADER_H
#define LAUNCHER_TASK_LEADER_H

#include "base/error.h"

#include <stdint.h>

/* Makes this process the leader, until it ends. `name` must be the same in all tasks of this job on
 * this node, and different for each other job or node. `tasks` is the number of tasks on this node,
 * at least 2. Returns 0; or a negative errno, and sets err, for example if another process already
 * leads the same job on this node. */
int task_lead(const char *name, uint32_t tasks, struct cr_error *err);

/* If this process leads, writes `status`, the leader's exit status, to the file that the other
 * tasks read. Waits up to 5 s until all of them have opened the files, because a task that comes
 * later would wait in vain; removes the files. If this process does not lead, does nothing. */
void task_lead_end(int status);

/* Waits until the leader with this name has ended, and stores its exit status in *status, or 1 if
 * the leader has written none. Returns 0; or a negative errno, and sets err, for example -ETIMEDOUT
 * if no leader has started within 60 s. */
int task_follow(const char *name, int *status, struct cr_error *err);

#endif
