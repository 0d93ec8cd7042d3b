/* Which children of this process somebody here knows. Thread-safe. */
#ifndef AGENT_KNOWN_CHILDREN_H
#define AGENT_KNOWN_CHILDREN_H

#include <sys/types.h>

/* Around the birth of a child: between the two nobody can take it for an orphan. begin returns 0, or
 * -ENOMEM and nothing to end; end takes the pid, or 0 when there is no child after all. */
int known_children_begin(void);
void known_children_end(pid_t pid);

void known_children_forget(pid_t pid); /* it was waited for */
int known_children_has(pid_t pid);

/* Those that the process already has, from before its exec for instance. 0 or a negative errno. */
int known_children_add_present(void);

/* Open nurseries in this process, after adding `change`. */
unsigned known_children_nurseries(int change);

#endif
