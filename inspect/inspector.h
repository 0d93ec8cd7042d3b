/* Fills in rows (inspect/inspect.h): reads the state of processes from /proc, their stacks with
 * libdw and py-spy, and their flight records. To read stacks is slow, and can hang if a process is
 * broken, so other processes do it: inspect_look() forks some, and an agent starts the program
 * inspector_main(). */
#ifndef INSPECT_INSPECTOR_H
#define INSPECT_INSPECTOR_H

#include "base/error.h"
#include "inspect/inspect.h"

/* a program that has this name as its argv[0] runs inspector_main() */
#define INSPECTOR_NAME       "crun-inspect"
#define INSPECTOR_TIMEOUT_MS 4000 /* longest time in ms that inspector_main() runs */

/* Lists the workers on this host whose environment this process may read: those of the job run_id,
 * or of all jobs if run_id is NULL. Stores rows with job, rank, local rank and pid in *rows, a
 * malloc'ed array that the caller frees, and their number in *count. Returns 0; or a negative
 * errno, and sets err. */
int inspect_find(const char *run_id, struct inspect_row **rows, size_t *count,
                 struct cr_error *err);

/* Fills in the rows. The caller has set rank, local_rank and pid of each row; pid is the worker's.
 * Returns after timeout_ms at the latest. If a stack could not be read within this time, the row
 * has what /proc says, and a note. Stops each worker's main thread for some milliseconds. */
void inspect_look(struct inspect_row *rows, size_t count, int64_t timeout_ms);

/* Requests torch's flight records of all ranks of one job. `rows` are workers of this job on this
 * host. The function sets a key in the job's store that each ProcessGroupNCCL reads once a second,
 * so ranks on other nodes write their records, too. Then it waits until the workers in `rows` that
 * have ProcessGroupNCCL's pipe have written their records, at most INSPECTOR_RING_MS. */
void inspect_ring(const struct inspect_row *rows, size_t count);
#define INSPECTOR_RING_MS 2500
/* With this word as its last argument, an inspector runs inspect_ring() and nothing else. */
#define INSPECTOR_RING "ring"

/* The main function of the program crun-inspect, whose arguments are RANK:LOCAL_RANK:PID... It
 * writes a row for each argument to stdout, as a line of JSON. Returns the exit status: 0; 1 if the
 * rows could not be written; or 2 if an argument is malformed. */
int inspector_main(int argc, char **argv);

#endif
