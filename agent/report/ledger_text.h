/* Writes the ledger of a node as a table for people: "where the time went". Pure: no I/O. */
#ifndef AGENT_LEDGER_TEXT_H
#define AGENT_LEDGER_TEXT_H

#include "agent/report/ledger.h"
#include "base/buffer.h"

#define LEDGER_TEXT_ROWS_MAX 20 /* the table lists only the last rounds, up to this number */

/* Appends lines such as
 *
 *   crun: where the time went, in seconds: 2.000, of which 69.5 % is work; 1 round after the first
 *   crun: round  cause          detect      stop rendezvous     spawn first_step      work …
 *   crun:     0  start           0.000     0.000      0.002     0.003      0.500     0.495 …
 *
 * one line for each row of the ledger and one for the sums, in seconds, and a NUL. Read a running
 * ledger with ledger_read() first. Returns 0 or -ENOMEM. */
int ledger_text(struct cr_buffer *out, const struct ledger *l);

#endif
