/* Looks into processes: fills in rows (inspect/inspect.h) from /proc, libdw, py-spy and flight
 * records. Looking is slow and can hang in a broken process, so it is done in processes of its own:
 * inspect_look() forks some, and an agent runs a whole program for it, inspector_main(). */
#ifndef INSPECT_INSPECTOR_H
#define INSPECT_INSPECTOR_H

#include "base/error.h"
#include "inspect/inspect.h"

/* a program that has this name as its argv[0] runs inspector_main() */
#define INSPECTOR_NAME       "crun-inspect"
#define INSPECTOR_TIMEOUT_MS 4000 /* longest time in ms that inspector_main() runs */

/* Finds the workers on this host that this process may see: of the job run_id, or of all jobs if
 * run_id is NULL. Stores rows with job, rank, local rank and pid in *rows, a malloc'ed array that
 * the caller frees, and their number in *count. Returns 0; or a negative errno, and sets err. */
int inspect_find(const char *run_id, struct inspect_row **rows, size_t *count,
                 struct cr_error *err);

/* Fills in the rows, whose rank, local_rank and pid are set; pid is the worker's. Returns after
 * timeout_ms at the latest. A row whose process did not answer in time has what /proc says, and a
 * note. Each worker's main thread is stopped for some milliseconds. */
void inspect_look(struct inspect_row *rows, size_t count, int64_t timeout_ms);

/* The program: crun-inspect RANK:LOCAL_RANK:PID... It writes a row for each argument to stdout, as
 * a line of JSON, and returns the exit status. */
int inspector_main(int argc, char **argv);

#endif
