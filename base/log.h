/* The log: one line per event on stderr, "crun[pid] level: text".
 *
 * error: a human must act. warning: the program went on, and the line says how. info: what
 * happens to jobs and nodes. debug: single messages. A function returns an error or logs it,
 * never both. What is not printable is escaped (base/text.h), so that text from outside cannot
 * forge a line. All functions may be called by any thread.
 *
 * Normally a line is one write(2), which waits while stderr is a full pipe. An event loop must
 * not wait, so it diverts the log: lines are kept in memory, up to CR_LOG_KEPT_MAX bytes, until a
 * function takes them. Lines that do not fit are dropped, and a line with their number takes
 * their place.
 *
 * The log has mutable state at file scope (the program's name, the level, the diversion, and a
 * flag per thread). A process has one stderr, and every function may log: passing a log object
 * through all calls would not make two of them possible. */
#ifndef CR_LOG_H
#define CR_LOG_H

#include "base/buffer.h"

#define CR_LOG_KEPT_MAX ((size_t) 256 << 10)

enum cr_log_level { CR_LOG_DEBUG, CR_LOG_INFO, CR_LOG_WARN, CR_LOG_ERROR, CR_LOG_OFF };

/* For main, before threads start. Keeps the pointer `program`. */
void cr_log_setup(const char *program, enum cr_log_level minimum);

/* Reads a level as torchrun's LOGLEVEL has it: "debug", "info", "warning" or "warn", "error" or
 * "critical" in any case, or one of Python's numbers, 10 (debug) to 50. Returns `fallback` for
 * other texts and for NULL. */
enum cr_log_level cr_log_parse_level(const char *text, enum cr_log_level fallback);

int cr_log_enabled(enum cr_log_level level);

void cr_log(enum cr_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes whole lines that have a form of their own, such as JSON, into the same stream. Nothing in
 * them is escaped. */
void cr_log_text(const char *text, size_t len);

#define cr_debug(...)                                                                              \
    do {                                                                                           \
        if (cr_log_enabled(CR_LOG_DEBUG)) cr_log(CR_LOG_DEBUG, __VA_ARGS__);                       \
    } while (0)
#define cr_info(...)      cr_log(CR_LOG_INFO, __VA_ARGS__)
#define cr_warn(...)      cr_log(CR_LOG_WARN, __VA_ARGS__)
#define cr_log_error(...) cr_log(CR_LOG_ERROR, __VA_ARGS__)

/* ---- a log that never waits ---- */

/* Consumes bytes from the front of `kept`, as many as it can pass on now. Runs in whichever
 * thread logs, under the lock of the log, so lines that it logs itself are dropped. It is called
 * again with the next line, and by cr_log_drain(), for the bytes that it left. */
typedef void (*cr_log_drain_fn)(void *arg, struct cr_buffer *kept);

/* Keeps lines from now on and offers them to `drain`; NULL: only keeps them. When this returns, a
 * function that was set before is not running and will not be called any more. */
void cr_log_divert(cr_log_drain_fn drain, void *arg);

/* Offers the kept lines to the function again, for instance when stderr has become writable. */
void cr_log_drain(void);

/* Diverts the log of a daemon: writes what stderr takes without waiting; the rest follows with the
 * next line. */
void cr_log_never_wait(void);

/* Ends the diversion and writes what is kept, however long that takes. For main, at the end. */
void cr_log_flush(void);

#endif
