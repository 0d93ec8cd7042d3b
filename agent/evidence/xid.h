/* Collects the critical errors (Xid) of NVIDIA's GPUs, which NVML reports as events. They are
 * evidence of a failure. The kernel's log has the same errors, with the process that was hit; but
 * in most containers that log cannot be read.
 *
 * A wait for NVML's events blocks, and NVML can hang in a broken driver. So a process of its own
 * waits: the agent runs this program once more, with the argv[0] XID_NAME (xid_program.h). That
 * process writes each event into a pipe, which the agent reads when it gathers evidence. */
#ifndef AGENT_XID_H
#define AGENT_XID_H

#include "agent/evidence/kernel_log.h"

struct xid_watch;
struct uv_loop_s;

/* Starts the process. Returns NULL if there is nothing to do, or if the process cannot be started.
 * The environment variable CRUN_XID says when it is started: "1": always; "0": never; otherwise if
 * the machine has GPUs of NVIDIA and this process may not read the kernel's log. */
struct xid_watch *xid_watch_open(struct uv_loop_s *loop);
/* Adds the errors that have come since the last call to the log, as lines of the kind
 * KERNEL_LOG_GPU without a pid. */
void xid_watch_read(struct xid_watch *w, struct kernel_log *log);
/* Ends the process. on_close runs on the loop, when the watch is freed. */
void xid_watch_close(struct xid_watch *w, void (*on_close)(void *arg), void *arg);

/* Parses a packet of the pipe: "NANOSECONDS TEXT", with the time of the monotonic clock. Returns
 * true and fills in *out; or returns false if the bytes have another form. Pure. */
bool xid_parse(const char *packet, size_t len, struct kernel_log_line *out);

#endif
