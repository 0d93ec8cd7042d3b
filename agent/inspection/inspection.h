/* Inspections of this node's workers: when operators order one (answers.h), and when the workers
 * hang (hang.h). Code outside agent/inspection/ includes only this header. */
#ifndef AGENT_INSPECTION_H
#define AGENT_INSPECTION_H

#include "agent/inspection/answers.h"
#include "agent/inspection/hang.h"

#endif
