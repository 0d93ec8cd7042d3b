/* What the agent records about its node: how each worker ended (case_file.h), and what happened
 * when (history.h). Code outside agent/record/ includes only this header. */
#ifndef AGENT_RECORD_H
#define AGENT_RECORD_H

#include "agent/record/case_file.h"
#include "agent/record/history.h"

#endif
