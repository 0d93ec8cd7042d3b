/* One event, one line, on stderr:  "crun[pid] level: text".
 *
 * error = a human must act; warn = we went on, and how; info = lifecycle; debug = per message.
 * A function returns an error or logs it, never both. Control bytes are escaped, so that text which
 * came from outside cannot forge a line. Thread-safe.
 *
 * At first a line is one write(2), which waits while stderr is a full pipe. An event loop must not wait:
 * it diverts the log. Lines are then kept, CR_LOG_KEPT_MAX bytes of them, until a reader takes them; later
 * ones are counted, and the count stands where they are missing. */
#ifndef CR_LOG_H
#define CR_LOG_H

#include "base/buffer.h"

#define CR_LOG_KEPT_MAX ((size_t) 256 << 10)

enum cr_log_level { CR_LOG_DEBUG, CR_LOG_INFO, CR_LOG_WARN, CR_LOG_ERROR, CR_LOG_OFF };

/* Process-wide, set by main before threads start. `program` is borrowed for ever. */
void cr_log_setup(const char *program, enum cr_log_level minimum);

/* "debug" "info" "warning"/"warn" "error"/"critical" in any case, or Python's numbers (10…50) as
 * torchrun's LOGLEVEL takes them; anything else gives `fallback`. NULL is accepted. */
enum cr_log_level cr_log_parse_level(const char *text, enum cr_log_level fallback);

int cr_log_enabled(enum cr_log_level level);

void cr_log(enum cr_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts text of another form, whole lines, into the same stream. */
void cr_log_text(const char *text, size_t len);

#define cr_debug(...)                                                                              \
    do {                                                                                           \
        if (cr_log_enabled(CR_LOG_DEBUG)) cr_log(CR_LOG_DEBUG, __VA_ARGS__);                       \
    } while (0)
#define cr_info(...)      cr_log(CR_LOG_INFO, __VA_ARGS__)
#define cr_warn(...)      cr_log(CR_LOG_WARN, __VA_ARGS__)
#define cr_log_error(...) cr_log(CR_LOG_ERROR, __VA_ARGS__)

/* ---- not waiting for stderr ---- */

/* Takes from the front of `kept` what it can pass on. Called in the thread that logs, under the log's
 * lock: what it logs itself, perhaps that stderr is broken, is not heard. What it leaves it is asked for
 * again with the next line or cr_log_drain(). */
typedef void (*cr_log_drain_fn)(void *arg, struct cr_buffer *kept);

/* From now on lines are kept for `drain`; NULL: for nobody, for now. The one before is not running any
 * more when this returns. */
void cr_log_divert(cr_log_drain_fn drain, void *arg);

/* Offers what is kept once more. */
void cr_log_drain(void);

/* For daemons: what stderr does not take at once is kept and follows with the next line. */
void cr_log_never_wait(void);

/* Writes what is kept, however long that takes, and ends the diversion. For main, at the end. */
void cr_log_flush(void);

#endif
