/* Reads the error file that a worker has written (TORCHELASTIC_ERROR_FILE in the worker's
 * environment), and writes an error file for crun's own parent process (TORCHELASTIC_ERROR_FILE in
 * crun's environment). */
#ifndef AGENT_ERROR_FILE_H
#define AGENT_ERROR_FILE_H

#include "agent/evidence/error_record.h"

#define ERROR_FILE_MAX ((size_t) 1 << 20) /* the first 1 MiB of an error file is read */

/* Reads and parses the file at `path` into *r, whose old content is overwritten and not freed. If
 * the file does not exist, cannot be read or is no regular file, r->present is false. */
void error_file_read(struct error_record *r, const char *path);

/* Writes an error file to `path`, for the program that has started crun. Its content is the JSON of
 * the worker's error record `r`; if that cannot be understood, it is a new record with the message
 * `fallback`. If the field "message" of the record is an object, and exit_code is not 0, this
 * function adds the exit code to that object as "errorCode". Returns 0 or a negative errno. */
int error_file_pass_on(const struct error_record *r, const char *fallback, int exit_code,
                       const char *path);

#endif
