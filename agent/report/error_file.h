/* Error files: reading the one that TORCHELASTIC_ERROR_FILE names in a worker's environment, and
 * writing the one that it names in ours. */
#ifndef AGENT_ERROR_FILE_H
#define AGENT_ERROR_FILE_H

#include "agent/report/error_record.h"

#define ERROR_FILE_MAX ((size_t) 1 << 20) /* bytes that are read of a file */

/* Reads and parses the file at `path` into *r. A file that is absent, unreadable or not a regular
 * file leaves r->present false. */
void error_file_read(struct error_record *r, const char *path);

/* Writes a worker's record to `path`, for the launcher that started us: the same JSON, with the
 * worker's exit code as message.errorCode (if message is an object and the code is not 0). A record
 * that cannot be understood is replaced by one with the message `fallback`.
 * Returns 0 or a negative errno. */
int error_file_pass_on(const struct error_record *r, const char *fallback, int exit_code,
                       const char *path);

#endif
