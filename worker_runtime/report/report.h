/* What the worker runtime reports about failures: the error text of each thread, the error file for
 * the launcher, and the flight record; and how an operation is written in them. */
#ifndef RUNTIME_REPORT_H
#define RUNTIME_REPORT_H

#include "base/error.h"

#include <crunrt.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- error texts ---- */

/* The calling thread's error text, which crunrt_last_error() returns. Every exported function that
 * fails writes it:
 *
 *     return cr_fail(rt_last_error(), -EINVAL, "…"); */
struct cr_error *rt_last_error(void);

/* Fails with -EINVAL and the text "<what>: <argument> is NULL". */
int rt_fail_null(const char *what, const char *argument);

/* Turns -EPIPE into -ECONNRESET, in `rc` and in *err; other codes stay. The store's client reports
 * a lost connection by either code, but for users of a group -EPIPE means "the group is broken". */
int rt_pipe_to_reset(int rc, struct cr_error *err);

/* ---- operations as text ---- */

#define OP_TEXT_MAX 128

/* "all_reduce", … */
const char *op_kind_name(crunrt_op_kind kind);

/* "all_reduce(float32 x 1000, sum)" */
void op_describe(const crunrt_op *op, char out[OP_TEXT_MAX]);

/* ---- the flight recorder: the last operations of this process ---- */

enum flight_state { FLIGHT_STARTED, FLIGHT_COMPLETED, FLIGHT_FAILED };

/* Records that an operation begins. Returns its number, for flight_end(). Any thread may call it.
 * */
uint64_t flight_begin(const char *group, uint32_t seq, const crunrt_op *op);
void flight_end(uint64_t number, bool has_succeeded);

/* Sets the rank and world size that the record shows, and finds out its path from the environment.
 * */
void flight_set_place(int rank, int world_size);

/* Sets the line in which the record shows the state of the channel to the agent, for example
 * "connected", or why there is none; cut at 255 bytes. */
void flight_set_agent(const char *state);

/* The path that flight_set_place() found; "" if there is none. */
const char *flight_path(void);

/* Writes the record to `path`; NULL: to flight_path(). Calls only functions that POSIX allows in a
 * signal handler. 0 or a negative errno; -ENOENT: there is no path. */
int flight_dump(const char *path, const char *reason);

#endif
