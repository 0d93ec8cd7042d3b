/* Declarations that the commands of crun-agent share. Each command is one file, which defines its
 * struct cr_command: operator_serve, operator_status and so on. */
#ifndef OPERATOR_INTERNAL_H
#define OPERATOR_INTERNAL_H

#include "base/endpoint.h"
#include "base/program.h"
#include "rendezvous/server.h"

#define OPERATOR_PORT       29400 /* port that is used if the user gives none */
#define OPERATOR_TIMEOUT_MS 10000 /* longest time in ms from connecting to the end of the answer */

extern const struct cr_command operator_serve, operator_status, operator_notify, operator_dump;

/* Parses the command's only argument, HOST:PORT, into *out. Returns 0; or prints the reason of an
 * error and returns the exit status. */
int operator_read_where(const struct cr_command *command, const struct cr_command_line *line,
                        struct cr_endpoint *out);

/* Sends an order to the coordinator at `where`, and prints to how many nodes the coordinator has
 * sent it on. Returns the exit status. */
int operator_give_order(const struct cr_command *command, const struct cr_endpoint *where,
                        const struct rdzv_operate *order);

/* The table entry of --job, an option of both notify and dump. */
#define OPERATOR_OPTION_JOB                                                                        \
    {.name = "job", .value_name = "ID", .help = "the job: what its nodes have as --rdzv-id"}

#endif
