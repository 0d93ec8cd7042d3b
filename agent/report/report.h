/* What the agent reports of its workers: the verdict on a failed attempt, torchrun's events, and the
 * count of out-of-memory kills. Code outside agent/report/ includes this header only. */
#ifndef AGENT_REPORT_H
#define AGENT_REPORT_H

#include "agent/report/error_file.h"
#include "agent/report/events.h"
#include "agent/report/oom.h"
#include "agent/report/verdict.h"

#endif
