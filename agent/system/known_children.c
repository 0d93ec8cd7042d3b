/* The set of children that are known not to be orphans.
 *
 * The set belongs to the process and not to a nursery. The orphans of every nursery become children
 * of this process, so a nursery that looks for its orphans must also know the workers and wardens
 * of the other nurseries. */
#include "agent/system/known_children.h"

#include "agent/system/proc.h"
#include "base/buffer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cr_buffer known; /* the bytes of an unsorted array of pid_t */
static unsigned nurseries;

static pid_t *known_pids(void) { return (pid_t *) (void *) known.data; }
static size_t known_count(void) { return known.len / sizeof(pid_t); }

int known_children_begin(void) {
    (void) pthread_mutex_lock(&lock);
    if (cr_buffer_reserve(&known, sizeof(pid_t)) == 0) return 0;
    (void) pthread_mutex_unlock(&lock);
    return -ENOMEM;
}

/* The append cannot fail, because known_children_begin() has reserved memory for one more pid. */
void known_children_end(pid_t pid) {
    if (pid > 0) (void) cr_buffer_append(&known, &pid, sizeof pid);
    (void) pthread_mutex_unlock(&lock);
}

void known_children_forget(pid_t pid) {
    (void) pthread_mutex_lock(&lock);
    for (size_t i = 0; i < known_count(); i++) {
        if (known_pids()[i] != pid) continue;
        known_pids()[i] = known_pids()[known_count() - 1];
        known.len -= sizeof(pid_t);
        break;
    }
    (void) pthread_mutex_unlock(&lock);
}

bool known_children_has(pid_t pid) {
    bool found = false;
    (void) pthread_mutex_lock(&lock);
    for (size_t i = 0; i < known_count() && !found; i++) found = known_pids()[i] == pid;
    (void) pthread_mutex_unlock(&lock);
    return found;
}

int known_children_add_present(void) {
    pid_t *list = NULL;
    size_t count = 0;
    int rc = proc_children(getpid(), &list, &count);
    (void) pthread_mutex_lock(&lock);
    if (rc == 0) rc = cr_buffer_append(&known, list, count * sizeof *list);
    (void) pthread_mutex_unlock(&lock);
    free(list);
    return rc;
}

unsigned known_children_nurseries(int change) {
    (void) pthread_mutex_lock(&lock);
    nurseries += (unsigned) change;
    unsigned now = nurseries;
    (void) pthread_mutex_unlock(&lock);
    return now;
}
