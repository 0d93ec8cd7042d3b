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

#define HOSTS_MAX        16384 /* largest number of hosts of a job */
#define HOSTS_ON_ALL     "all"  /* value of --on that means all hosts of the cluster */
/* value of `rsh` for --on: instead of ssh, this program calls the job daemon of the host */
#define HOSTS_SELF       "/proc/self/exe"
#define HOSTS_CALL       HOSTS_SELF " --call"
#define HOSTS_FAN_OUT    32    /* default of --fan-out */
#define HOSTS_SECRET_MAX ((size_t) 64 << 10) /* longest text of a token file in bytes */

struct hosts_entry {
    char name[CR_HOST_MAX]; /* "host" or "user@host", as the user wrote it, without the slots */
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
 * DeepSpeed ("HOST slots=N") or in that of MPICH ("HOST:N"). '#' begins a comment. A line may end
 * with a carriage return, and the text may begin with a byte order mark. Returns 0; or a negative
 * errno, and sets err to a text that names the line. */
int hosts_read_file(const char *text, struct hosts_list *list, struct cr_error *err);

/* Call this if the hosts are reached by their job daemons. Returns -EINVAL, and sets err, if an
 * entry of the list has the form "user@host", which only ssh can use. Otherwise returns 0. */
int hosts_refuse_users(const struct hosts_list *list, struct cr_error *err);

void hosts_list_done(struct hosts_list *list);

/* How this process calls job daemons (--on). This chamber does not include remote/, so it gets the
 * functions from the launcher. */
struct hosts_caller {
    /* Finds the user's key and keeps it for call(). Later calls do nothing. Returns 0; or a
     * negative errno, and sets err. */
    int (*prepare)(struct cr_error *err);
    /* Executes a command on a host. `argv` is {"crun", "--call", host, command, NULL}. Runs in a
     * process of its own, whose exit status the result becomes. */
    int (*call)(const char *const *argv);
};

/* A job on several hosts. The memory of all pointers belongs to the caller. Each list of texts ends
 * with NULL. */
struct hosts_job {
    const struct hosts_entry *hosts;
    size_t host_count;
    const char *const *workers;  /* [host_count]: value of --nproc-per-node on each host; NULL if it
                                  * is left out there */
    uint32_t min_nodes;          /* fewest hosts with which the job can run */
    uint32_t max_nodes;          /* largest number of hosts in one round; further hosts are
                                  * spares */
    bool user_meets;             /* true if the user's options say where the rendezvous is */
    const char *const *options;  /* options of crun, the same on all hosts */
    const char *conf;            /* value of --rdzv-conf; the deputies add is_host to it */
    const char *const *program;  /* PROGRAM and its arguments */
    /* "NAME=value": variables that are added to the launchers' environment */
    const char *const *variables;
    const char *rsh;             /* --rsh: a command and its options, separated by blanks */
    const struct hosts_caller *caller;
    uint32_t fan_out;            /* largest number of hosts that one process starts itself */
    bool copy_crun;              /* true if crun is copied to hosts that do not have it */
    bool has_pty;                /* true if the launcher of the first host gets a pseudo terminal as
                                  * stdin, stdout and stderr (--pty) */
    bool starts_local;           /* true if the deputy of a host whose name means this machine is
                                  * started without rsh */
    int64_t last_call_ms;        /* longest time in ms, from the moment when min_nodes hosts are
                                  * ready, that the starter waits for the other hosts */
    const void *secret;          /* text of the token file (--rdzv-token-file), which is sent to the
                                  * launchers by the stdin of ssh; NULL if the job has no secret */
    size_t secret_len;           /* bytes of `secret`, at most HOSTS_SECRET_MAX */
};

/* Runs the job to its end. Copies the launchers' output to stdout and stderr, with the host's name
 * in front of each line. Returns 0 if at least min_nodes launchers ended with status 0, otherwise
 * the status of the first launcher that failed. If hosts were lost and the job could not start or
 * go on without them, returns a negative errno, and sets err to a text that names a host. */
int hosts_run(const struct hosts_job *job, struct cr_error *err);

/* Runs this process as the deputy of a host. It reads its orders from stdin. Returns the exit
 * status. */
int hosts_run_deputy(const struct hosts_caller *caller);

#endif
