/* What crun says about its own failures: one line on stderr, and the error file that a launcher
 * above us may read. */
#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

/* "crun: error: <text>", one line whatever the text holds: control bytes are escaped. */
void report_line(const char *text);

/* Writes `text` to `path` as an error record (base/error_json.h), as message and as call stack.
 * Does nothing if path is NULL or empty. Returns 0 or a negative errno. */
int report_file(const char *path, const char *text);

#endif
