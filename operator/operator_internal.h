/* What the commands of crun-agent share. Each command is one file, entered through its table. */
#ifndef OPERATOR_INTERNAL_H
#define OPERATOR_INTERNAL_H

#include "base/endpoint.h"
#include "base/program.h"
#include "rendezvous/server.h"

#define OPERATOR_PORT       29400 /* where nobody gives a port */
#define OPERATOR_TIMEOUT_MS 10000 /* for a question and its whole answer */

extern const struct cr_command operator_serve, operator_status, operator_notify, operator_dump;

/* Parses the only argument, HOST:PORT. Returns 0, or the exit status after printing why not. */
int operator_read_where(const struct cr_command *command, const struct cr_command_line *line,
                        struct cr_endpoint *out);

/* Sends an order to the coordinator at `where` and prints how many nodes were asked to follow it.
 * Returns the exit status. */
int operator_give_order(const struct cr_command *command, const struct cr_endpoint *where,
                        const struct rdzv_operate *order);

/* The options that notify and dump have in common. */
#define OPERATOR_OPTION_JOB                                                                        \
    {.name = "job", .value_name = "ID", .help = "the job: what its nodes have as --rdzv-id"}

#endif
