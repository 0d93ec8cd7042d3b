/* The texts of a TrainJob status report, without I/O: the address and the body. */
#ifndef AGENT_TRAINJOB_STATUS_INTERNAL_H
#define AGENT_TRAINJOB_STATUS_INTERNAL_H

#include "agent/trainjob/trainjob.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdint.h>

/* Parses "https://HOST[:PORT]/PATH". Stores the host and the port (443 if the URL has none) in *to,
 * and a pointer to the path, which is a part of `url`, in *path. Returns 0; or -EINVAL, and sets
 * err. Plain http is an error, because the report carries a token. */
int trainjob_parse_url(const char *url, struct cr_endpoint *to, const char **path,
                       struct cr_error *err);

/* Appends the JSON body of a report. total_steps is the number of steps that the whole training
 * has; 0 if it is unknown. wall_ns is the time (ns since 1970). Returns 0 or -ENOMEM. */
int trainjob_write_body(const struct trainjob_progress *p, uint32_t total_steps, int64_t wall_ns,
                        struct cr_buffer *out);

#endif
