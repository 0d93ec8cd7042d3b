/* Answers operators who want to know where this node's workers are: runs an inspection, and sends
 * its rows through the rendezvous. */
#ifndef AGENT_ANSWERS_H
#define AGENT_ANSWERS_H

#include "agent/inspection.h"
#include "rendezvous/rendezvous.h"

#define ANSWERS_MAX 16 /* most operators that wait for one inspection; further ones get no rows */

/* The orders that wait for an inspection. Zero-initialise the struct. */
struct answers {
    struct rendezvous *rendezvous;
    struct inspection *inspection; /* NULL if none was started */
    bool is_running;               /* true if the inspection is not over */
    uint64_t ids[ANSWERS_MAX];
    size_t count;
};

/* Call this when an operator has ordered an inspection. `rows` are those of inspection_start(). If
 * an inspection runs already, its result answers this order, too. */
void answers_add(struct answers *a, uv_loop_t *loop, uint64_t id, const struct inspect_row *rows,
                 size_t count);

/* Ends an inspection that runs. Returns true if on_close will run on the loop; false if there is
 * nothing to close. */
bool answers_close(struct answers *a, void (*on_close)(void *arg), void *arg);

#endif
