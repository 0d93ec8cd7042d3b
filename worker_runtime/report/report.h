/* The worker runtime's reports of failures: the error text of each thread, the error file for the
 * launcher, the flight record, and operations as text. */
#ifndef RUNTIME_REPORT_H
#define RUNTIME_REPORT_H

#include "base/error.h"

#include <crunrt.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- error texts ---- */

/* Returns the calling thread's error, whose text crunrt_last_error() returns. Every exported
 * function sets this error when it fails:
 *
 *     return cr_fail(rt_last_error(), -EINVAL, "…"); */
struct cr_error *rt_last_error(void);

/* Returns -EINVAL, and sets the thread's error text to "<what>: <argument> is NULL". */
int rt_fail_null(const char *what, const char *argument);

/* If `rc` is -EPIPE, sets err->code to -ECONNRESET and returns -ECONNRESET; otherwise returns `rc`.
 * The store's client reports a lost connection by -EPIPE or -ECONNRESET. A function of crunrt.h
 * returns -EPIPE only if a group was broken before. */
int rt_pipe_to_reset(int rc, struct cr_error *err);

/* ---- operations as text ---- */

#define OP_TEXT_MAX 128

/* Returns the name of a kind of operation, for example "all_reduce". */
const char *op_kind_name(crunrt_op_kind kind);

/* Writes an operation as text, for example "all_reduce(float32 x 1000, sum)". */
void op_describe(const crunrt_op *op, char out[OP_TEXT_MAX]);

/* ---- the flight recorder: the last operations of this process ---- */

enum flight_state { FLIGHT_STARTED, FLIGHT_COMPLETED, FLIGHT_FAILED };

/* Records that an operation begins. Returns the operation's number; pass it to flight_end() when
 * the operation ends. Any thread may call this. */
uint64_t flight_begin(const char *group, uint32_t seq, const crunrt_op *op);
void flight_end(uint64_t number, bool has_succeeded);

/* Returns the time of the call of flight_begin() that returned `number`, in ns of the monotonic
 * clock. Call this before 2000 further operations have begun, because the record keeps only
 * 2000. */
int64_t flight_started_ns(uint64_t number);

/* Sets the rank and world size that are written to the flight record, and sets its default path
 * from the environment. */
void flight_set_place(int rank, int world_size);

/* Sets what the flight record says about the channel to the agent: "connected", "gone", or the
 * reason why there is no channel. The text is cut at 255 bytes. */
void flight_set_agent(const char *state);

/* Returns the default path, which flight_set_place() has set, or "" if there is none. */
const char *flight_path(void);

/* Writes the flight record, with `reason` in it, to `path`, or to flight_path() if `path` is NULL.
 * Calls only functions that POSIX allows in a signal handler. Returns 0; -ENOENT if `path` is NULL
 * and flight_path() is ""; or another negative errno. */
int flight_dump(const char *path, const char *reason);

#endif
