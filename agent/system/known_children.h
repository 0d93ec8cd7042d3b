/* The pids of those children of this process that are no orphans: workers, wardens, and the
 * children that it had when nursery_claim_process() was called. Any other child may be an orphan.
 * All functions are thread-safe. */
#ifndef AGENT_KNOWN_CHILDREN_H
#define AGENT_KNOWN_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* Call known_children_begin() before a child is cloned: it locks the set. It returns 0; or -ENOMEM
 * if memory is short, and leaves the set unlocked. If it has returned 0, call known_children_end()
 * after the clone: it adds the child's pid to the set, unless pid is 0 because no child was made,
 * and unlocks the set. The other functions of this header wait while the set is locked, so no
 * thread can take the new child for an orphan before its pid is in the set. */
int known_children_begin(void);
void known_children_end(pid_t pid);

/* Call this when a child was waited for. Removes the child's pid from the set, because the kernel
 * may give this pid to another process. */
void known_children_forget(pid_t pid);
bool known_children_has(pid_t pid);

/* Adds to the set all children that this process has now. (A process keeps its children when it
 * calls exec, so it may have children that an earlier program has started.) Returns 0 or a negative
 * errno. */
int known_children_add_present(void);

/* Adds `change` to the number of open nurseries in this process and returns the new number. If
 * `change` is 0, only reads the number. */
unsigned known_children_nurseries(int change);

#endif
