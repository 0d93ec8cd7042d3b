/* The log: one line per event on stderr, "2026-11-22 06:40:12.345 host crun[pid] level: text" with
 * the local time. If stderr is connected to systemd's journal, which records time and host itself,
 * a line is "<N>crun[pid] level: text" with the priority N of syslog(3).
 *
 * Levels: error: a human must act. warning: something went wrong, the program continued, and the
 * line explains how. info: events of jobs and nodes, such as a new round. debug: details for
 * developers. A function either returns an error or logs it, never both. Unprintable characters are
 * escaped (base/text/text.h), so that text from outside cannot forge a line. All functions are
 * thread-safe, except cr_log_setup().
 *
 * Normally a line is one write(2), which waits while stderr is a full pipe. An event loop must not
 * wait, so it diverts the log: lines are kept in memory, up to CR_LOG_KEPT_MAX bytes, and a drain
 * function writes them when there is room. Lines that exceed the limit are dropped, and one line
 * with their number is logged in their place.
 *
 * The log has mutable state at file scope (the program's name, the level, the diversion, the
 * function that shows a wait, and a flag per thread) instead of a log object: a process has only
 * one stderr, and nearly every function logs, so such an object would have to be passed to all of
 * them. */
#ifndef CR_LOG_H
#define CR_LOG_H

#include "base/buffer.h"
#include "base/log/trace.h"

#include <stdbool.h>
#include <stdint.h>

#define CR_LOG_KEPT_MAX ((size_t) 256 << 10)

enum cr_log_level { CR_LOG_DEBUG, CR_LOG_INFO, CR_LOG_WARN, CR_LOG_ERROR, CR_LOG_OFF };

/* Sets the program's name, which each line contains, and the lowest level that is logged. Call this
 * in main before other threads start. `program` must stay valid: only the pointer is stored. */
void cr_log_setup(const char *program, enum cr_log_level minimum);

/* From now on each line is a JSON object: "time" (UTC), "host", "program", "pid", "level" and
 * "text". Call this in main before other threads start. */
void cr_log_use_json(void);

/* Parses the text of the environment variable LOGLEVEL as torchrun does: "debug", "info", "warning"
 * or "warn", "error" or "critical" in upper or lower case, or one of Python's numbers, 10 (debug)
 * to 50. Returns `fallback` for any other text and for NULL. */
enum cr_log_level cr_log_parse_level(const char *text, enum cr_log_level fallback);

int cr_log_enabled(enum cr_log_level level);

void cr_log(enum cr_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes one or more whole lines, such as JSON, to the same place as the log. The lines are written
 * as they are: without a level, and not escaped. Exception: after cr_log_use_json(), a text that is
 * no JSON object becomes the "text" of one object with the level "error". */
void cr_log_text(const char *text, size_t len);

#define cr_debug(...)                                                                              \
    do {                                                                                           \
        if (cr_log_enabled(CR_LOG_DEBUG)) cr_log(CR_LOG_DEBUG, __VA_ARGS__);                       \
    } while (0)
#define cr_info(...)      cr_log(CR_LOG_INFO, __VA_ARGS__)
#define cr_warn(...)      cr_log(CR_LOG_WARN, __VA_ARGS__)
#define cr_log_error(...) cr_log(CR_LOG_ERROR, __VA_ARGS__)

/* Returns a trace that logs its texts with the level debug. If that level is not logged, returns a
 * trace whose function is NULL, which does nothing. */
struct cr_trace cr_log_trace(void);

/* ---- the line of a wait ---- */

/* A function that shows the line of a wait in one place that it rewrites, such as the last line of
 * a terminal. `text` says what this process waits for; if it is NULL, the wait is over, and the
 * function removes the line. waited_ms is how long the process has waited. left_ms is how long it
 * can still wait; -1 if there is no limit. Returns whether there is such a place. */
typedef bool (*cr_log_waiting_fn)(void *arg, const char *text, int64_t waited_ms, int64_t left_ms);

/* From now on cr_log_waiting() calls `show`; if `show` is NULL, it calls no function. Only the
 * thread that calls cr_log_waiting() may call cr_log_show_waiting(). */
void cr_log_show_waiting(cr_log_waiting_fn show, void *arg);

/* Passes the line of a wait to the function of cr_log_show_waiting(); `text` is NULL if the wait is
 * over. Returns whether that function shows the line; if it does not, the caller logs the line. */
bool cr_log_waiting(const char *text, int64_t waited_ms, int64_t left_ms);

/* ---- a log that never waits ---- */

/* A drain function, which the user of the log provides: it writes as many bytes from the front of
 * `kept` as it can without waiting, and removes these bytes from `kept`. The log calls the drain
 * function after each new line and in cr_log_drain(), in the calling thread, while that thread
 * holds the lock of the log. Lines that the drain function itself logs are dropped. */
typedef void (*cr_log_drain_fn)(void *arg, struct cr_buffer *kept);

/* Starts the diversion: from now on lines are kept in memory, and `drain` writes them. If `drain`
 * is NULL, lines are only kept. When this function has returned, the drain function of an earlier
 * call is not called any more. */
void cr_log_divert(cr_log_drain_fn drain, void *arg);

/* Calls the drain function for the kept lines. Call this, for example, when stderr has become
 * writable. */
void cr_log_drain(void);

/* Diverts the log with a drain function for daemons. This drain function writes to stderr as much
 * as fits without waiting, and tries to write the remaining lines when the next line is logged. */
void cr_log_never_wait(void);

/* Ends the diversion and writes all kept lines to stderr, even if it must wait because stderr is
 * full. Call this before main returns. */
void cr_log_flush(void);

#endif
