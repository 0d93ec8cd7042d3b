/* Runs an inspection of this node's workers (inspect/inspect.h) in a process of its own, because
 * looking into a process is slow and can hang. */
#ifndef AGENT_INSPECTOR_PROCESS_H
#define AGENT_INSPECTOR_PROCESS_H

#include "base/error.h"
#include "inspect/inspect.h"

#include <uv.h>

struct inspection;

/* Starts an inspection. `rows` has rank, local_rank, pid and host of each worker; the inspection
 * copies these. on_done runs once on the loop, within INSPECTION_MAX_MS, with the rows filled in as
 * far as possible; the rows are valid until on_done returns. Returns 0 and stores the inspection in
 * *out. On error returns a negative errno, sets err, and does not run on_done. */
#define INSPECTION_MAX_MS 6000
int inspection_start(uv_loop_t *loop, const struct inspect_row *rows, size_t count,
                     void (*on_done)(void *arg, struct inspect_row *rows, size_t count), void *arg,
                     struct inspection **out, struct cr_error *err);

/* Requests torch's flight records of all ranks of the job (inspect_ring()). Works as
 * inspection_start(), but on_done gets no rows. Call this only if the round ends anyway, because
 * ProcessGroupNCCL ends its process some time after it has written the record. */
int inspection_ring(uv_loop_t *loop, const struct inspect_row *rows, size_t count,
                    void (*on_done)(void *arg, struct inspect_row *rows, size_t count), void *arg,
                    struct inspection **out, struct cr_error *err);

/* Ends the inspection's process and frees the inspection; then on_close runs on the loop. Call this
 * before on_done runs or after it has returned, but not inside of it. on_done does not run after
 * this call. */
void inspection_close(struct inspection *s, void (*on_close)(void *arg), void *arg);

#endif
