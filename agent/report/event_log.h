/* The event log (--event-log FILE): what happened to the job on this node, one JSON object a line.
 * docs/status.md lists the events and their fields.
 *
 * Each line is one write(2) to a file that is open for appending, so the nodes of a job may share
 * one file. A line that cannot be written is lost, after one warning; the job goes on. */
#ifndef AGENT_EVENT_LOG_H
#define AGENT_EVENT_LOG_H

#include "agent/report/ledger.h"
#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

struct event_log;

/* Opens the file for appending, and creates it if necessary. `run_id` and `host` are in every line,
 * and must stay valid until event_log_close(). began_ns is the time of the monotonic clock from
 * which the field "at_s" counts. Returns 0; or a negative errno, and sets err to a text that names
 * the file. */
int event_log_open(const char *path, const char *run_id, const char *host, int64_t began_ns,
                   struct event_log **out, struct cr_error *err);

/* Writes an event. `fields` is an object with the fields of this event; the function takes over the
 * caller's reference to it. If `fields` is NULL, memory was short, and the line is lost. If `log`
 * is NULL, the function only releases `fields`. */
void event_log_write(struct event_log *log, const char *event, json_t *fields);

void event_log_close(struct event_log *log); /* `log` may be NULL */

/* Both return a new JSON object, or NULL if memory is short. ledger_row_json() has one row, with
 * its parts in seconds; ledger_json() has the sums of a ledger and the rows that it keeps. */
json_t *ledger_row_json(const struct ledger *l, const struct ledger_row *row);
json_t *ledger_json(const struct ledger *l);

#endif
