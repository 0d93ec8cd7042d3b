/* Declarations that the commands of crun-agent share. Each command is one file, which defines a
 * struct cr_command: operator_serve in serve.c, operator_status in status.c, and so on. */
#ifndef OPERATOR_INTERNAL_H
#define OPERATOR_INTERNAL_H

#include "base/network/endpoint.h"
#include "base/program/program.h"
#include "rendezvous/server.h"

#define OPERATOR_PORT       29400 /* port if the user gives none */
#define OPERATOR_RELAY_PORT 29402 /* port of a relay if the user gives none */
#define OPERATOR_TIMEOUT_MS 10000 /* longest time in ms from connecting to a coordinator to the end
                                   * of its answer */

extern const struct cr_command operator_serve, operator_relay, operator_status, operator_notify,
    operator_dump, operator_admit, operator_why, operator_top, operator_key, operator_jobs;

/* Parses the command's only argument, HOST:PORT, into *out, and calls operator_authenticate().
 * Returns 0. If the argument is wrong or operator_authenticate() fails, prints the reason and
 * returns the exit status. */
int operator_read_where(const struct cr_command *command, const struct cr_command_line *line,
                        struct cr_endpoint *out);

/* Reads the token file of the command's option --rdzv-token-file, or of CRUN_RDZV_TOKEN_FILE. From
 * then on, questions and orders are authenticated. Returns 0. If the file cannot be used, prints
 * the reason and returns the exit status. */
int operator_authenticate(const struct cr_command *command, const struct cr_command_line *line);
/* Returns the token file that --rdzv-token-file or CRUN_RDZV_TOKEN_FILE names; NULL if neither is
 * given. */
const char *operator_token_file(const struct cr_command *command,
                                const struct cr_command_line *line);

/* Stores the enum rendezvous_auth that --auth names in *out. Returns 0. If the word is not known,
 * prints the reason and returns the exit status. */
int operator_read_auth(const struct cr_command *command, const char *word, int *out);

/* Sends an order to the coordinator at `where`, and prints to how many nodes the coordinator has
 * passed this order on. After an order for flight records, also prints which rank others wait for.
 * Returns the exit status. */
int operator_give_order(const struct cr_command *command, const struct cr_endpoint *where,
                        const struct rdzv_operate *order);

/* The table entry of --job, which both notify and dump have. */
#define OPERATOR_OPTION_JOB                                                                        \
    {.name = "job", .value_name = "ID", .help = "the job: what its nodes have as --rdzv-id"}


/* The table entry of --auth, which serve and relay have. */
#define OPERATOR_OPTION_AUTH                                                                       \
    {.name = "auth", .value_name = "WORD", .default_value = "auto",                                \
     .words = "auto required munge off",                                                           \
     .help = "whether nodes and operators need the secret; auto: if there is a token file, or "    \
             "MUNGE in a task of Slurm; required: do not start without; munge: by MUNGE"}

/* The table entry of --rdzv-token-file, which all commands have that speak to a coordinator. */
#define OPERATOR_OPTION_TOKEN                                                                      \
    {.name = "rdzv-token-file", .value_name = "FILE",                                              \
     .help = "file with the secret that nodes and operators must have (default: "                  \
             "CRUN_RDZV_TOKEN_FILE)"}

#endif
