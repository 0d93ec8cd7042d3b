/* The verdict on a failed attempt: which worker failed first and of what. It is written as text for
 * people and as verdict.json for programs. Code outside agent/verdict/ includes only this
 * header. */
#ifndef AGENT_VERDICT_H
#define AGENT_VERDICT_H

#include "agent/verdict/decision.h"
#include "agent/verdict/failures.h"
#include "agent/verdict/json_file.h"

#endif
