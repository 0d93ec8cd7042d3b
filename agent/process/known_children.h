/* Which children of this process are known here, so that the nursery does not take them for
 * orphans: workers, wardens, and children that the process had before. Thread-safe. */
#ifndef AGENT_KNOWN_CHILDREN_H
#define AGENT_KNOWN_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* Enclose the birth of a child: between the two calls every other call waits, so that no thread
 * takes the child for an orphan. known_children_begin() returns 0, or -ENOMEM, and then nothing is
 * to be ended. known_children_end() takes the pid of the child, or 0 if there is none. */
int known_children_begin(void);
void known_children_end(pid_t pid);

/* The child was waited for; its pid may be given to another process now. */
void known_children_forget(pid_t pid);
bool known_children_has(pid_t pid);

/* Adds the children that this process has now, which may be from before its exec. Returns 0 or a
 * negative errno. */
int known_children_add_present(void);

/* Adds `change` to the number of open nurseries in this process, and returns the number. */
unsigned known_children_nurseries(int change);

#endif
