/* The set of children that are known not to be orphans: workers, wardens, and the children that
 * this process had when nursery_claim_process() was called. Any other child may be an orphan.
 * Thread-safe. */
#ifndef AGENT_KNOWN_CHILDREN_H
#define AGENT_KNOWN_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* Call known_children_begin() before a child is cloned, and known_children_end() after it, with the
 * pid of the child, or with 0 if no child was made. Between the two calls every other call waits,
 * so that no other thread takes the new child for an orphan. known_children_begin() returns 0, or
 * -ENOMEM, after which known_children_end() must not be called. */
int known_children_begin(void);
void known_children_end(pid_t pid);

/* Call this when the child was waited for: removes its pid from the set, because the kernel may
 * give it to another process. */
void known_children_forget(pid_t pid);
bool known_children_has(pid_t pid);

/* Adds all children that this process has now. A process keeps its children when it calls exec, so
 * some may have been started by the program that it executed before. Returns 0, or a negative errno
 * on error. */
int known_children_add_present(void);

/* Adds `change` (+1, -1 or 0) to the count of open nurseries in this process, and returns the
 * count. */
unsigned known_children_nurseries(int change);

#endif
