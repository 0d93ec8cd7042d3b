/* Reads the error file that a worker has written (TORCHELASTIC_ERROR_FILE in the worker's
 * environment), and writes an error file for crun's own parent process (TORCHELASTIC_ERROR_FILE in
 * crun's environment). */
#ifndef AGENT_ERROR_FILE_H
#define AGENT_ERROR_FILE_H

#include "agent/evidence/error_record.h"

#define ERROR_FILE_MAX ((size_t) 1 << 20) /* most bytes of an error file that are read */

/* Reads and parses the file at `path` into *r, whose old content is overwritten and not freed. If
 * the file does not exist, cannot be read or is no regular file, r->present is false. */
void error_file_read(struct error_record *r, const char *path);

/* Writes a worker's error record to `path`, for the program that has started crun. It writes the
 * worker's JSON; if `message` is an object in it, and the exit code is not 0, it adds the exit code
 * as message.errorCode. If the worker's record cannot be understood, it writes a record with the
 * message `fallback` instead. Returns 0 or a negative errno. */
int error_file_pass_on(const struct error_record *r, const char *fallback, int exit_code,
                       const char *path);

#endif
