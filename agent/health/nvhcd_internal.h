/* The messages of NVRx's node health service (nvhcd.proto), and what its answer means. A message of
 * gRPC is one byte, 0 for "not compressed", then the length as 4 bytes in big-endian order, then
 * the protocol buffer. Pure. */
#ifndef AGENT_HEALTH_NVHCD_INTERNAL_H
#define AGENT_HEALTH_NVHCD_INTERNAL_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVHCD_PATH       "/nvhcd.HealthCheckService/RunHealthCheck"
#define NVHCD_ANSWER_MAX ((size_t) 1 << 20) /* most bytes of an answer that is read */

/* The arguments that NVRx sends, and crun if the user names none. A service that runs a script
 * passes them to the script. */
#define NVHCD_ARGS "--no-slurm --group prolog epilog logs gpu"

/* An answer: HealthCheckResponse. The texts point into the bytes that were parsed, and have no NUL
 * at the end. */
struct nvhcd_answer {
    bool success;
    int32_t exit_code;
    const char *output, *error;
    size_t output_len, error_len;
};

/* Appends the gRPC message of a HealthCheckRequest, whose arguments are the words of `args`, with
 * blanks between them. Returns 0 or -ENOMEM. */
int nvhcd_write_request(struct cr_buffer *out, const char *args);

/* Parses the gRPC message of an answer. Unknown fields are skipped, as protocol buffers demand.
 * Returns 0, or -EPROTO if the bytes are no such message. */
int nvhcd_read_answer(const char *data, size_t len, struct nvhcd_answer *out);

/* Returns whether the answer says that the node is well: success is true, and `output` is not JSON
 * with a "fail_count" above 0. If not, writes the reason to `why`, which has `room` bytes: the
 * error, or the names in the JSON's "failed_checks", or else the output. */
bool nvhcd_is_well(const struct nvhcd_answer *a, char *why, size_t room);

#endif
