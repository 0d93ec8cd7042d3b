/* Reports of crun's own failures: a line on stderr, and an error file for whatever started crun. A
 * launcher that runs crun as its worker reads that file as the cause of the failure. */
#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

/* Prints "crun: error: TEXT" as one line: what is not printable is escaped. */
void report_line(const char *text);

/* Writes `text` to `path` as an error record (base/error_json.h), as message and as call stack.
 * Does nothing if path is NULL or empty. Returns 0 or a negative errno. */
int report_file(const char *path, const char *text);

#endif
