/* One event, one line, on stderr:  "crun[pid] level: text".
 *
 * error = a human must act; warn = we went on, and how; info = lifecycle; debug = per message.
 * A function returns an error or logs it, never both. Control bytes are escaped, so that text which
 * came from outside cannot forge a line. Thread-safe: a line is one write(2). */
#ifndef CR_LOG_H
#define CR_LOG_H

enum cr_log_level { CR_LOG_DEBUG, CR_LOG_INFO, CR_LOG_WARN, CR_LOG_ERROR, CR_LOG_OFF };

/* A sink gets the finished text (no newline). The default writes the line to stderr. */
typedef void (*cr_log_sink_fn)(void *arg, enum cr_log_level level, const char *text);

/* Process-wide, set by main before threads start. `program` is borrowed for ever. */
void cr_log_setup(const char *program, enum cr_log_level minimum, cr_log_sink_fn sink, void *arg);

/* "debug" "info" "warning"/"warn" "error"/"critical" in any case, or Python's numbers (10…50) as
 * torchrun's LOGLEVEL takes them; anything else gives `fallback`. NULL is accepted. */
enum cr_log_level cr_log_parse_level(const char *text, enum cr_log_level fallback);

int cr_log_enabled(enum cr_log_level level);

void cr_log(enum cr_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define cr_debug(...)                                                                              \
    do {                                                                                           \
        if (cr_log_enabled(CR_LOG_DEBUG)) cr_log(CR_LOG_DEBUG, __VA_ARGS__);                       \
    } while (0)
#define cr_info(...)      cr_log(CR_LOG_INFO, __VA_ARGS__)
#define cr_warn(...)      cr_log(CR_LOG_WARN, __VA_ARGS__)
#define cr_log_error(...) cr_log(CR_LOG_ERROR, __VA_ARGS__)

#endif
