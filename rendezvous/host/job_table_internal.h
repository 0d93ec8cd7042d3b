/* The jobs of one host: which jobs it keeps, when it makes or frees the coordinator of a job, and
 * what it tells nodes of a job that another host leads. Pure: the owner passes the time, and keeps
 * what belongs to a job besides its coordinator. jobs.c is the shell around it, and the simulator
 * runs it, too.
 *
 * A job is made when the first node names its run id, and has a coordinator of its own. The jobs of
 * a host share the right to form rounds, the limits of their number, and the end of the host;
 * nothing else. So the end of one job changes no other job. A job without connections is kept for
 * close_timeout_ms, so that late nodes still learn how it has ended, and for longer if its nodes
 * may resume. */
#ifndef RENDEZVOUS_JOB_TABLE_INTERNAL_H
#define RENDEZVOUS_JOB_TABLE_INTERNAL_H

#include "base/error.h"
#include "base/network/network.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/protocol/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Limits of the number of jobs that nodes of other processes may make on one host. A host that ends
 * with a launcher is meant for that launcher's job, so it takes fewer other jobs. The limits exist
 * because the time of each event of the host grows with the number of its jobs. */
#define JOBS_MAX             4096
#define JOBS_MAX_IN_LAUNCHER 64
#define SHARE_OF_ADDRESS     4 /* the nodes of one address may make a quarter of these jobs */

struct job_table;

/* One job. Its owner embeds this struct; only the functions below write it. */
struct host_job {
    LIST_ENTRY(host_job) entry; /* element of table->list */
    struct job_table *table;
    char *run_id;
    /* address of the node whose HELLO has made the job; all 0 = the host's own node */
    struct cr_ip maker;
    struct coordinator *coordinator;
    bool is_own;       /* true: a node of this process is in this job; always false in crun-agent */
    /* largest epoch that a node with a seat, or another host, has named for the run `epoch_run` of
     * the job; 0 = none. The job goes on under the larger one of this epoch and the epoch in the
     * terms. This one is larger after a node that had tried to join an heir has joined here. */
    uint64_t epoch;
    uint64_t epoch_run; /* incarnation of the coordinator's run when a node last got a seat */
    /* true: another host leads the job; nodes that come are sent to that host */
    bool is_superseded;
    /* if is_superseded is true: address of the host that leads the job; "" = not known */
    char leader_addr[RDZV_ADDR_MAX];
    uint16_t leader_port;
    bool says_goodbye; /* true: GOODBYE was sent; a node that comes is refused */
    uint32_t peers;    /* number of connections of this job */
    int64_t forget_ms; /* time at which the job is freed; used while `peers` is 0 */
};

/* What the table calls. `arg` is the owner's argument of job_table_init(). */
struct job_table_actions {
    /* Returns memory for a new job, whose struct host_job is all 0; NULL if memory is short. */
    struct host_job *(*add)(void *arg);
    /* The table has no use of the job any more, and has freed its coordinator. Frees the job and
     * what the owner keeps for it, for example its store. The table frees job->run_id. */
    void (*drop)(void *arg, struct host_job *job);
    /* The actions of all coordinators; their `arg` is the struct host_job. */
    const struct coordinator_actions *coordinator;
};

/* The owner embeds this struct. After job_table_init() it sets the fields up to `own_instance`
 * before it calls another function; later it may set follows_another. The other fields are
 * private. */
struct job_table {
    struct host_session_terms *terms; /* the terms of all sessions of this host */
    bool is_heir;         /* see coordinator_host_options */
    bool allows_heirs;    /* true: if this host is lost, another node takes over its jobs */
    bool follows_another; /* true: another host may have led the jobs before */
    const char *own_run_id; /* run id of this launcher's own job; "" in crun-agent */
    uint64_t own_instance;

    const struct job_table_actions *actions;
    void *arg;
    /* time in ms at which the right to form rounds ends; CR_FOREVER = never; 0 = no right */
    int64_t right_until_ms;
    bool may_form;        /* true: this host has the right to form rounds */
    LIST_HEAD(host_jobs, host_job) list;
};

/* The table has no jobs at first. It has the right to form rounds for ever if has_right is true, or
 * else no such right. */
void job_table_init(struct job_table *t, const struct job_table_actions *actions, void *arg,
                    bool has_right);
/* Frees all jobs. */
void job_table_clear(struct job_table *t);

/* ---- nodes and their jobs ---- */

/* Returns the job with that run id, or NULL. */
struct host_job *job_table_find(const struct job_table *t, const char *run_id);
/* Stores in *out the job with that run id. If there is no such job, makes it. `maker` is the
 * address, not all 0, of the node in another process that has named the job; NULL = that of this
 * host's own node, to which no limit applies. Returns 0; or -ENOMEM, or -EUSERS if there are too
 * many jobs already, and a text in err. */
int job_table_get(struct job_table *t, int64_t now_ms, const char *run_id,
                  const struct cr_ip *maker, struct host_job **out, struct cr_error *err);
/* Call this when a node has sent HELLO, after job_table_judge(). Stores the job of the node in
 * *out, as job_table_get() does, and counts the connection; `is_local` is true if the node is in
 * this process. Returns 0, or a negative errno and a text in err; after -EAGAIN, which says that
 * the job goes on elsewhere, the connection is counted. */
int job_table_connect(struct job_table *t, int64_t now_ms, const char *run_id,
                      const struct cr_ip *maker, bool is_local, struct host_job **out,
                      struct cr_error *err);
/* Counts the connection of somebody else than a node, who also waits for news of the job. */
void job_table_hold(struct host_job *job);
/* Call this when a connection of the job is gone. If that was the last one, the job is kept for
 * close_timeout_ms, so that late nodes still learn how the job has ended, and the rounds of a run
 * that was discarded keep their numbers. But if the job's coordinator is EMPTY and has had no
 * round, the job is not kept. */
void job_table_disconnect(struct host_job *job, int64_t now_ms);

/* Decides whether this host serves a node that has sent HELLO (rules/leading_internal.h). Returns
 * the decision, with the epoch of the job, or with the address of the host that leads the job. */
struct host_session_verdict job_table_judge(struct job_table *t, int64_t now_ms,
                                            const struct rdzv_hello *hello);
/* Call this when a node that names the epoch `named` in its HELLO has got a seat. Sets the epoch of
 * the job (leading_admits()). */
void job_table_admitted(struct host_job *job, uint64_t named);

/* ---- time ---- */

/* Call this at job_table_deadline(). Runs the coordinators whose deadlines have come, and frees
 * jobs that have had no connection for close_timeout_ms. */
void job_table_tick(struct job_table *t, int64_t now_ms);
int64_t job_table_deadline(const struct job_table *t); /* CR_FOREVER if there is no deadline */

/* ---- the right to form rounds ---- */

/* Call this when the host gets the right to form rounds, gets it for longer, or loses it
 * (coordinator_may_form()). When the host has the right again, each job without connections is kept
 * for close_timeout_ms from now. */
void job_table_may_form(struct job_table *t, int64_t now_ms, int64_t until_ms);
/* Returns whether a round of some job is held: the round is due, but this host has no right to form
 * it. */
bool job_table_has_held(const struct job_table *t);
/* Calls coordinator_stand_by() for all jobs. */
void job_table_stand_by(struct job_table *t);

/* ---- jobs that another host leads ---- */

/* Call this when another host leads the job. Sends the nodes of the job away; nodes that come later
 * are sent to that host. */
void job_table_supersede(struct host_job *job, uint64_t epoch, const char *addr, uint16_t port);
/* Call this when another host, at `addr` and `port`, says that it leads the job. If this host's
 * coordinator may not decide, because it has formed no round of the job or lacks the majority of
 * the nodes, calls job_table_supersede(). */
void job_table_hear_leader(struct host_job *job, uint64_t epoch, const char *addr, uint16_t port);
/* If this host leads the job and may decide, stores the job's epoch in *epoch and returns true.
 * Otherwise returns false. */
bool job_table_leads(const struct job_table *t, const char *run_id, uint64_t *epoch);
/* Returns the epoch of the job at this host; `job` may be NULL. */
uint64_t job_table_epoch(const struct job_table *t, const struct host_job *job);

/* ---- the end of the host ---- */

/* Returns whether some job has not ended. */
bool job_table_has_running(const struct job_table *t);
/* Returns whether a closing host has to wait, because some node has lost its connection and does
 * not know yet how its job has ended. */
bool job_table_awaits_nodes(const struct job_table *t);
/* Returns how many jobs of other launchers have nodes and have not ended, and stores the run id of
 * one of them in *run_id. A host whose own job is over stays open for these jobs. */
uint32_t job_table_count_others(const struct job_table *t, const char **run_id);
/* Says goodbye to the nodes of all jobs; if only_own is true, only to the nodes of this launcher's
 * own job. */
void job_table_abandon(struct job_table *t, bool only_own, const char *why);
/* Returns true if the launcher's own job has heirs. In that case its coordinator forms no further
 * round, and job_table_abandon() can wait until the workers of this launcher are gone. */
bool job_table_retire_own(struct job_table *t);

/* ---- an action of the coordinators ---- */

/* The action `other_waiting`; the owner puts it into its struct coordinator_actions. */
const char *job_table_other_waiting(void *job);

#endif
