/* Reads the error file that a worker wrote (TORCHELASTIC_ERROR_FILE in its environment), and writes
 * the error file that our own parent process expects (TORCHELASTIC_ERROR_FILE in ours). */
#ifndef AGENT_ERROR_FILE_H
#define AGENT_ERROR_FILE_H

#include "agent/report/error_record.h"

#define ERROR_FILE_MAX ((size_t) 1 << 20) /* how many bytes of an error file are read */

/* Reads and parses the file at `path` into *r. If the file is absent, unreadable or not a regular
 * file, r->present is false. */
void error_file_read(struct error_record *r, const char *path);

/* Writes a worker's error record to `path`, for the launcher that started us: the worker's JSON,
 * with its exit code added as message.errorCode (if message is an object and the code is not 0). If
 * the record cannot be understood, a record with the message `fallback` is written instead. Returns
 * 0 or a negative errno. */
int error_file_pass_on(const struct error_record *r, const char *fallback, int exit_code,
                       const char *path);

#endif
