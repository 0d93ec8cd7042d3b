/* Serves operators who want to know what this node's workers do and where they wait: runs an
 * inspection, and sends its rows through the rendezvous. */
#ifndef AGENT_ANSWERS_H
#define AGENT_ANSWERS_H

#include "agent/inspection/inspector_process.h"
#include "rendezvous/rendezvous.h"

#define ANSWERS_MAX 16 /* limit of the operators that wait for one inspection; further ones get no
                        * rows */

/* The orders that wait for an inspection. Zero-initialise the struct. */
struct answers {
    struct rendezvous *rendezvous;
    struct inspection *inspection; /* NULL if none was started */
    bool is_running;               /* true if the inspection is not over */
    uint64_t ids[ANSWERS_MAX];
    size_t count;
};

/* Starts an inspection that an operator has ordered; its result is sent when it is over. `id` is
 * the number of the order, and `rows` lists the workers as for inspection_start(). If an inspection
 * runs already, no other one is started, and the result of the running one is sent for this order,
 * too. */
void answers_add(struct answers *a, uv_loop_t *loop, uint64_t id, const struct inspect_row *rows,
                 size_t count);

/* Closes the last inspection, and ends it if it still runs. Returns true if on_close will run on
 * the loop. Returns false if no inspection was started; on_close does not run in that case. */
bool answers_close(struct answers *a, void (*on_close)(void *arg), void *arg);

#endif
