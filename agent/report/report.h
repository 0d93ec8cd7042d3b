/* What the agent reports while a job runs: torchrun's events, the ledger of the node's time, and
 * the event log. Code outside agent/report/ includes only this header. */
#ifndef AGENT_REPORT_H
#define AGENT_REPORT_H

#include "agent/report/cycle_info.h"
#include "agent/report/event_log.h"
#include "agent/report/events.h"
#include "agent/report/ledger.h"
#include "agent/report/ledger_text.h"

#endif
