/* Starts one job on several hosts without a scheduler (--hosts, --hostfile).
 *
 * The crun that the user calls is the starter. It runs no worker itself. On each host it starts a
 * deputy by ssh (or the command of --rsh): the same program, called as "crun --deputy". A deputy
 * starts this host's launcher, an ordinary crun, as its child, and may start further deputies:
 *
 *     starter ──ssh──► deputy of host 0 ──► crun --nnodes=4 --node-rank=0 ... train.py
 *             │            └──ssh──► deputy of host 1 ──► crun --node-rank=1 ...
 *             └──ssh──► deputy of host 2 ──► crun --node-rank=2 ...
 *
 * Orders travel down on the stdin of ssh, and output and results travel up on its stdout, as the
 * messages of message_internal.h. A deputy whose stdin ends kills its launcher, whose warden then
 * ends all workers. So nothing stays on a host when the starter, a deputy above, or ssh dies. */
#ifndef LAUNCHER_HOSTS_H
#define LAUNCHER_HOSTS_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTS_MAX        16384 /* most hosts of a job */
#define HOSTS_FAN_OUT    32    /* default for the most hosts that one process starts */
#define HOSTS_SECRET_MAX ((size_t) 64 << 10) /* most bytes of the text of a token file */

struct hosts_entry {
    char name[CR_HOST_MAX]; /* as the user wrote it, without the slots: "host", "user@host" */
    uint32_t slots;         /* number of workers; 0 if the user gave none */
};

/* A list of hosts without duplicates, in the user's order. */
struct hosts_list {
    struct hosts_entry *items;
    size_t count;
};

/* Appends the hosts of --hosts, "HOST[:N],...". If a host is already in the list, its slots are
 * added up. Returns 0; or a negative errno, and sets err to a text that quotes the entry. */
int hosts_read_list(const char *text, struct hosts_list *list, struct cr_error *err);

/* Appends the hosts of the text of a hostfile: one host per line, in the form of Open MPI and
 * DeepSpeed ("HOST slots=N") or in that of MPICH ("HOST:N"). '#' begins a comment. Returns 0; or a
 * negative errno, and sets err to a text that names the line. */
int hosts_read_file(const char *text, struct hosts_list *list, struct cr_error *err);

void hosts_list_done(struct hosts_list *list);

/* A job on several hosts. All pointers stay the caller's; all lists of texts end with NULL. */
struct hosts_job {
    const struct hosts_entry *hosts;
    size_t host_count;
    const char *const *workers;  /* [host_count]: value of --nproc-per-node on this host; NULL
                                  * leaves the option out */
    uint32_t min_nodes;          /* fewest hosts with which the job can run */
    uint32_t max_nodes;          /* most hosts in one round; further hosts are spares */
    bool user_meets;             /* true if the user's options say where the rendezvous is */
    const char *const *options;  /* options of crun, the same on all hosts */
    const char *conf;            /* value of --rdzv-conf, to which is_host is added */
    const char *const *program;  /* PROGRAM and its arguments */
    const char *const *variables; /* "NAME=value": what the launchers get in their environment */
    const char *rsh;             /* --rsh: a command and its options, separated by blanks */
    uint32_t fan_out;            /* most hosts that one process starts */
    bool copy_crun;              /* true if crun is copied to hosts that need it */
    bool starts_local;           /* true if the host that is this machine, by its name, gets its
                                  * deputy without rsh */
    int64_t last_call_ms;        /* longest time that the starter waits for the other hosts after
                                  * min_nodes hosts are ready */
    const void *secret;          /* text of the token file (--rdzv-token-file), which reaches the
                                  * launchers on the stdin of ssh; NULL if the job has no secret */
    size_t secret_len;           /* bytes of `secret`, at most HOSTS_SECRET_MAX */
};

/* Runs the job to its end. Copies the launchers' output to stdout and stderr, with the host in
 * front of each line. Returns the exit status of crun: 0 if at least min_nodes launchers ended with
 * 0, otherwise the status of the first launcher that failed. If the job could not be started or has
 * lost too many hosts, returns a negative errno, and sets err to a text that names the host. */
int hosts_run(const struct hosts_job *job, struct cr_error *err);

/* Runs this process as the deputy of a host, with its orders on stdin. Returns the exit status. */
int hosts_run_deputy(void);

#endif
