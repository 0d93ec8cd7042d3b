/* The flight recorder: the last operations of this process, in memory, written as JSON when
 * something goes wrong. */
#ifndef RUNTIME_REPORT_H
#define RUNTIME_REPORT_H

#include "base/error.h"

#include <crunrt.h>

#include <stdint.h>

/* The calling thread's error text. Every exported function fails through it:
 *     return cr_fail(rt_last_error(), -EINVAL, "…"); */
struct cr_error *rt_last_error(void);

/* -EINVAL: "<what>: <argument> is NULL". */
int rt_fail_null(const char *what, const char *argument);

/* A connection that is lost is -ECONNRESET, whoever noticed: in a group -EPIPE means another thing. */
int rt_pipe_to_reset(int rc, struct cr_error *err);

/* "all_reduce" … */
const char *op_kind_name(crunrt_op_kind kind);

/* ---- the flight recorder ---- */

enum flight_state { FLIGHT_STARTED, FLIGHT_COMPLETED, FLIGHT_FAILED };

/* Notes the beginning of an operation; the number is for flight_end(). Safe from any thread. */
uint64_t flight_begin(const char *group, uint32_t seq, const crunrt_op *op);
void flight_end(uint64_t number, int ok);

/* Who we are, for the file; also where it goes unless flight_dump() is given a path. */
void flight_set_place(int rank, int world_size);

/* What has become of the link to crun's agent, for the file: one line; cut at 255 bytes. */
void flight_set_agent(const char *fact);

/* Where that is; "" = nowhere. */
const char *flight_path(void);

/* Writes all that is held to the path (NULL: the one of the place). Calls only what is safe in a
 * signal handler. 0 or a negative errno; -ENOENT: no path. */
int flight_dump(const char *path, const char *reason);

#endif
