/* The reports of the agent about its workers: the verdict on a failed attempt, error files,
 * torchrun's events, the number of out-of-memory kills, the ledger of the node's time, and the
 * event log. Code outside agent/report/ includes only this header. */
#ifndef AGENT_REPORT_H
#define AGENT_REPORT_H

#include "agent/report/error_file.h"
#include "agent/report/event_log.h"
#include "agent/report/events.h"
#include "agent/report/failures.h"
#include "agent/report/kernel_log.h"
#include "agent/report/last_lines.h"
#include "agent/report/ledger.h"
#include "agent/report/ledger_text.h"
#include "agent/report/oom.h"
#include "agent/report/verdict.h"
#include "agent/report/verdict_json.h"

#endif
