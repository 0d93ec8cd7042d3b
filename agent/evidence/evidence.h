/* What is read about a worker after its death: its error file, its last lines of output, the lines
 * of the kernel's log, errors of GPUs, and the number of out-of-memory kills. Code outside
 * agent/evidence/ includes only this header, and launcher/crun.c only xid_program.h. */
#ifndef AGENT_EVIDENCE_H
#define AGENT_EVIDENCE_H

#include "agent/evidence/error_file.h"
#include "agent/evidence/error_record.h"
#include "agent/evidence/kernel_log.h"
#include "agent/evidence/last_lines.h"
#include "agent/evidence/oom.h"
#include "agent/evidence/xid.h"

#endif
