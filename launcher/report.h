/* Reports failures of crun itself (not of its workers): as a line on stderr, and as an error file.
 * If another launcher runs crun as a worker, that launcher reads the error file to find out why
 * this worker has failed. */
#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

/* Returns the name that this program has in its help and its errors: "torchrun" if it was called by
 * this name, otherwise "crun". Tools that call torchrun search its output for "torchrun:
 * error:". */
const char *report_name(void);

/* Prints "NAME: error: TEXT" on stderr as one line, where NAME is report_name(); unprintable
 * characters are escaped. */
void report_line(const char *text);

/* Writes an error record (base/files/error_json.h) to the file `path`. Both the message and the
 * call stack of the record are `text`. Does nothing if `path` is NULL or empty. Returns 0 or a
 * negative errno. */
int report_file(const char *path, const char *text);

#endif
