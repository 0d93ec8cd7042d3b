/* Rules of the coordinator that need nothing of its state: which ranks the nodes of a round get,
 * how many restarts and losses are left, on which hosts something goes wrong again and again, which
 * nodes are enough to take over, which host leads a job, which rank holds up the others, which
 * ranks are slow, and which nodes test the network with each other. All are pure. Code outside
 * rendezvous/rules/ includes only this header. */
#ifndef RENDEZVOUS_RULES_H
#define RENDEZVOUS_RULES_H

#include "rendezvous/rules/assignment_internal.h"
#include "rendezvous/rules/behind_internal.h"
#include "rendezvous/rules/budget_internal.h"
#include "rendezvous/rules/electorate_internal.h"
#include "rendezvous/rules/leading_internal.h"
#include "rendezvous/rules/pairs_internal.h"
#include "rendezvous/rules/slow_internal.h"
#include "rendezvous/rules/standing_internal.h"

#endif
