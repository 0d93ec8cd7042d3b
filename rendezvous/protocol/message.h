/* The messages between members, coordinators and operators, and their encoding.
 *
 * The end that connects first sends the 8 bytes of RDZV_MAGIC. After them frames follow in both
 * directions:
 *
 *     u32 length of the rest | u8 type | fields in the order of the lists below
 *
 * Integers are big-endian. A text is encoded as a u16 length, its bytes and a NUL. The length
 * includes the NUL, so a decoded text is a C string inside the frame. The lists below are the only
 * definition of the messages: structs, encoder and decoder are generated from them.
 *
 * HELLO and REFUSED never change, so that any two builds can at least tell each other why they
 * cannot work together. WELCOME names the version of the connection, which is the largest one that
 * both builds support. How builds of different versions work together:
 *
 *   - New fields are added only at the end of a list, after V(n), where n is the version that adds
 *     them. The encoder writes the fields of the connection's version and no later ones.
 *   - The decoder ignores bytes after the last field that it knows.
 *   - The decoder accepts a frame that ends just before a V(n). The fields after it are 0 or "".
 *   - A message that was added with version n, as its M() line says, is only sent on a connection
 *     of version n or later.
 *   - HELLO, RELAY, STATUS and OPERATE come before the version is known, so they are always encoded
 *     with RDZV_VERSION_MIN. */
#ifndef RENDEZVOUS_MESSAGE_H
#define RENDEZVOUS_MESSAGE_H

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define RDZV_MAGIC     "CRUNrdzv"
#define RDZV_MAGIC_LEN ((size_t) 8)

#define RDZV_VERSION_MIN 2 /* smallest protocol version that this build supports */
#define RDZV_VERSION_MAX 9 /* largest protocol version that this build supports */
#define RDZV_VERSION_SETTINGS 3 /* first version in which ROUND names the job's settings */
#define RDZV_VERSION_RESUME   3 /* first version with RESUME and GOODBYE */
#define RDZV_VERSION_HEIRS    4 /* first version in which ROUND names heirs */
#define RDZV_VERSION_INQUIRY  4 /* first version with INQUIRE, ASK_PROGRESS, PROGRESS and BEHIND */
#define RDZV_VERSION_NODES    4 /* first version with NODES */
#define RDZV_VERSION_INSPECT  4 /* first version with ASK_INSPECT, ROW and INSPECTED */
#define RDZV_VERSION_UNFIT    5 /* first version in which JOIN says that a node is not fit */
#define RDZV_VERSION_HOSTS    5 /* first version with STATUS_HOST and RDZV_OPERATE_ADMIT */
#define RDZV_VERSION_RELAY    6 /* first version with RELAY, ATTACH, DETACH, VIA and HOLD */
#define RDZV_VERSION_RANKS    7 /* first version with ASK_RANKS and RANK */
#define RDZV_VERSION_HANG     8 /* first version with QUIET and HUNG */
#define RDZV_VERSION_PAIRS    8 /* first version with PAIR and PAIRED */
#define RDZV_VERSION_KEPT     9 /* first version in which JOIN and ROUND count kept workers */

/* OPERATE.kind of an order to inspect workers. A host older than RDZV_VERSION_INSPECT would take
 * this number for the kind of a change. So the version_min of such an OPERATE is
 * RDZV_VERSION_INSPECT, and an older host refuses it. */
#define RDZV_OPERATE_INSPECT ((uint32_t) 100)
/* OPERATE.kind of an order to admit a host; OPERATE.host names the host. An order with this kind
 * has version_min RDZV_VERSION_HOSTS, so an older host refuses it. */
#define RDZV_OPERATE_ADMIT ((uint32_t) 101)

/* This bit is set in the id of an inspection that the coordinator has ordered because the job
 * hangs, and not in the id of an operator's inspection. */
#define RDZV_INSPECTION_OF_HANG (UINT64_C(1) << 63)

#define RDZV_FRAME_MAX ((size_t) 8192) /* largest frame in bytes, length field included */
#define RDZV_TEXT_MAX  ((size_t) 1024) /* longest text in bytes, NUL included */

/* Limits that both ends check, so that no sum or product of received numbers overflows. */
/* largest number of rounds in a job: one round per second for 136 years */
#define RDZV_ROUNDS_SEEN_MAX (UINT64_C(1) << 32)
#define RDZV_INTERVAL_MAX_MS INT64_C(86400000)   /* longest keep-alive interval: one day */
#define RDZV_ATTEMPTS_MAX    ((uint32_t) 1000)   /* largest number of intervals in a lease */

/* clang-format off */
/* F(type, name): one field. The type is u32, u64, i64 or text (const char *; never NULL in a
 * decoded message). V(n): the fields after it exist since version n. */

/* ---- messages of a member to the coordinator ---- */
#define RDZV_HELLO_FIELDS(F, V) /* first frame of a node; this message never changes */ \
    F(u32, version_min) F(u32, version_max) F(text, software) F(text, run_id) \
    F(u64, epoch)               /* largest epoch that this node has obeyed; 0 = none */
#define RDZV_JOIN_FIELDS(F, V) /* the node requests a place in the next round */ \
    F(text, host) F(text, addr) F(u64, pid) \
    F(u64, instance)            /* random number that a launcher keeps for its whole life */ \
    F(u64, connection)          /* counts the launcher's connections; of several connections of \
                                 * one launcher, a host uses the one with the largest number */ \
    F(text, role) \
    F(i64, node_rank)           /* requested by the user or the scheduler; -1 = none */ \
    F(u32, local_world_size) \
    F(u64, rounds_seen)         /* number of the last round this node was in, plus 1; 0 = none */ \
    F(u32, restarts_seen)       /* the job's restart count in the last round of this node */ \
    F(i64, last_rank)           /* group rank in the last round of this node; -1 = none */ \
    F(u32, min_nodes) F(u32, max_nodes) F(u32, max_restarts) F(u32, fixed_ranks) \
    F(i64, join_timeout_ms) F(i64, last_call_timeout_ms) F(i64, close_timeout_ms) \
    F(i64, keep_alive_interval_ms) F(u32, keep_alive_max_attempt) \
    /* change_notice_ms: if a round has to end because a new node has come, the end is announced \
     * this many ms before; 0 = it is not announced */ \
    F(i64, change_notice_ms) \
    V(3) \
    F(u64, incarnation)         /* run of the job that the node was in; 0 = none yet */ \
    F(u64, digest)              /* hash of the node's program and arguments; 0 = unknown */ \
    F(i64, stop_limit_ms)       /* how long the node may take to stop its workers; 0 = unknown */ \
    F(u32, store_port)          /* port of the store that the node offers; 0 = none */ \
    F(u32, last_group_size)     /* number of nodes in the last round of this node; 0 = unknown */ \
    F(u64, last_coordinator)    /* id of the coordinator of the last connection; 0 = none */ \
    F(u32, skips_last_call)     /* 1 = only the first round of a run has a last call */ \
    V(4) \
    F(u32, heir_port)           /* port at which this node would host as an heir; 0 = none */ \
    F(i64, heard_at_ms)         /* newest at_ms in this connection's WELCOME and BEAT_ACKs */ \
    F(u32, heirs)               /* number of heirs in the ROUND of the node's last round; 0 if the \
                                 * node has given up its vote of that round (SPARE.yields) */ \
    F(u32, leader)              /* `leader` in the ROUND of the node's last round */ \
    F(text, addresses)          /* the node's numeric addresses, with a blank between two */ \
    F(u32, leader_ended)        /* 1 = the coordinator has ended, as far as the node knows: it has \
                                 * closed the node's last connection */ \
    /* the fields of these names in the ROUND of the node's last round; all are 0 once that round \
     * is settled */ \
    F(u64, before_seen) F(u32, before_size) F(u32, before_place) F(u64, before_by) \
    /* formed_by: id of the coordinator that has formed the node's last round; 0 = unknown. Two \
     * coordinators may each form a round of the same number; this id tells them apart */ \
    F(u64, formed_by) \
    V(5) \
    /* settings of the restart budget and of the standing of hosts (rules/budget_internal.h, \
     * standing_internal.h) */ \
    F(u32, loss_limit)          /* max_losses plus 1; 0 = no limit */ \
    F(i64, restart_backoff_ms) F(i64, restart_refill_ms) \
    F(u32, flap_limit) F(i64, flap_window_ms) F(i64, flap_refusal_ms) \
    F(u32, aside_after) F(i64, aside_ms) \
    F(text, unfit)              /* why the node's health check has failed; "" = the node is fit */ \
    F(u32, store_gateway)       /* 1 = the node has the option --store-gateway */ \
    V(7) \
    F(u32, slow_percent)        /* the rule about slow ranks (types.h); 0 = the job has no rule */ \
    F(i64, slow_ms) F(i64, slow_notice_ms) \
    V(8) \
    F(u64, watches)             /* mask of the reasons for a hang that the node watches for \
                                 * (struct rendezvous_quiet in types.h); 0 = none */ \
    F(u32, pair_port)           /* port at which the node's paired test may listen; 0 = the node \
                                 * makes no paired tests */ \
    F(i64, pair_timeout_ms)     /* longest time of one paired test */ \
    V(9) \
    F(u32, kept)                /* 1 plus the number of the node's workers that go on in their \
                                 * processes in the next round; 0 = unknown */
/* The node is in a round, has lost its connection, and requests its seat again. The fields of JOIN
 * follow those of RESUME; in them, the last round of the node is the round that it is in. */
#define RDZV_RESUME_FIELDS(F, V) \
    F(u32, part)                /* enum rdzv_part */ \
    F(u32, first_rank) F(u32, world_size) \
    F(u64, change)              /* id of the change that was announced in this round; 0 = none */ \
    F(text, what)               /* the failure, if `part` is RDZV_PART_FAILED; else "" */ \
    F(u32, blame)               /* enum rendezvous_blame, of that failure */ \
    RDZV_JOIN_FIELDS(F, V)
#define RDZV_FAILED_FIELDS(F, V) \
    F(u64, round) F(text, what) \
    V(3) \
    F(u32, blame)               /* enum rendezvous_blame */
#define RDZV_SUCCEEDED_FIELDS(F, V) F(u64, round)
#define RDZV_LEAVE_FIELDS(F, V)     F(text, why)
#define RDZV_BEAT_FIELDS(F, V) \
    F(i64, sent_ms)             /* time on the member's clock; BEAT_ACK returns it */ \
    V(3) \
    /* rounds_over: 1 plus how many rounds of the job the node knows to be over; 0 = unknown */ \
    F(u64, rounds_over) \
    V(4) \
    F(i64, heard_at_ms)         /* newest at_ms in this connection's WELCOME and BEAT_ACKs */ \
    F(u64, rounds_seen)         /* as in JOIN, or `yields` of the last SPARE if that is larger */ \
    F(i64, wall_ns)             /* the node's wall clock, in ns since 1970; 0 = unknown */
/* The node gives up this coordinator, which did not answer, and will look for another one. ABANDON
 * is the last message of a connection. Since version 4. */
#define RDZV_ABANDON_FIELDS(F, V) F(text, why)
#define RDZV_CHANGE_ANSWER_FIELDS(F, V) /* the node's answer to CHANGE */ \
    F(u64, id) F(i64, step)     /* steps of the furthest worker; -1 = no worker counts steps */ \
    F(i64, needs_ms)            /* longest time in ms that a worker needs after its last step */
#define RDZV_CHANGE_READY_FIELDS(F, V) F(u64, id) /* the workers have made the agreed step */
#define RDZV_NOTICE_FIELDS(F, V) /* the node will leave within left_ms */ \
    F(u32, kind) F(i64, left_ms) F(text, why)

/* The evidence about a worker that has failed. A node sends it before FAILED; the host passes it on
 * to all nodes of the job, also to the sender, so that each node can write a whole verdict. Since
 * version 4. */
#define RDZV_FAILURE_FIELDS(F, V) \
    F(u64, round) F(text, host) F(u32, rank) F(u32, local_rank) F(u64, pid) \
    F(i64, exit_code)           /* exit code, or minus the number of the signal */ \
    F(text, kind)               /* a word, such as "exit" or "oom" (docs/verdict.md) */ \
    F(i64, died_ns) F(i64, wall_ns) /* node's wall clock when the worker died, and when this was \
                                     * sent; in ns */ \
    /* Set by the host: by how many ns the node's wall clock is ahead of the host's, and the \
     * largest error of this number in ns; error -1 = both are unknown */ \
    F(i64, offset_ns) F(i64, offset_error_ns) \
    F(text, what)               /* one line */ \
    F(text, message)            /* first line of the error record, or "" */ \
    F(text, last_words)         /* last lines of the worker's stderr, with newlines between */ \
    F(text, kernel)             /* line of the kernel's log, or "" */ \
    F(text, log_folder)
/* Answers ASK_RANKS: what one worker does now. A node sends one RANK for each of its workers. Since
 * version 7. */
#define RDZV_RANK_FIELDS(F, V) \
    F(u64, round)               /* as in ASK_RANKS */ \
    F(u32, rank) F(u32, local_rank) F(u64, pid) \
    F(text, state)              /* state of the worker, in lower case */ \
    F(text, kernel_state)       /* state of its main thread as in proc(5), "S" for example */ \
    F(u64, steps)               /* steps that it has made; 0 = it counts none */ \
    F(i64, step_age_ms)         /* time since its last step */ \
    F(u64, steps_per_ks)        /* steps in 1000 s, average of the round; 0 = unknown */ \
    F(i64, output_age_ms)       /* time since its last output; -1 = unknown */ \
    F(u64, rss_bytes)           /* resident memory; 0 = unknown */ \
    F(text, last_line)          /* its last line of output, or "" */
/* For which reasons the node's workers may hang, as far as the node knows; the masks are those of
 * struct rendezvous_quiet (types.h). A node sends QUIET when a mask changes. Since version 8. */
#define RDZV_QUIET_FIELDS(F, V) \
    F(u64, round) F(u64, silent) F(u64, broken) \
    F(i64, quiet_ms)            /* for how many ms there has been no activity */ \
    F(text, what)               /* the reason as a phrase; "" if `broken` is 0 */
/* Answers PAIR: the node's part of the paired test is over. Since version 8. */
#define RDZV_PAIRED_FIELDS(F, V) \
    F(u64, id)                  /* as in PAIR */ \
    F(text, why)                /* why the test has failed; "" = it has passed */
/* Requests an inquiry: the coordinator asks all nodes of the round what operations their workers
 * are in, and sends all of them the result in BEHIND. Since version 4. */
#define RDZV_INQUIRE_FIELDS(F, V) F(u64, round)
/* Answers ASK_PROGRESS: what one worker does in one process group. A node sends one PROGRESS for
 * each group of each of its workers, and a last one with is_last = 1. Since version 4. */
#define RDZV_PROGRESS_FIELDS(F, V) \
    F(u64, inquiry)             /* as in ASK_PROGRESS */ \
    F(u32, is_last)             /* 1: ends the node's answer; the fields below are 0 or "" */ \
    F(u32, rank) \
    F(u64, group) F(text, name) /* number of the group in the round, and its name */ \
    F(u32, place) F(u32, size)  /* the worker's rank in the group, and the group's size */ \
    F(u32, state)               /* enum rendezvous_progress_state */ \
    F(u32, begun)               /* number of collectives that the worker has entered */ \
    F(u32, seq) F(text, op)     /* number and name of the operation in which the worker waits */ \
    F(u32, peer)                /* for WAITS_MESSAGE: the other end's rank in the group */ \
    F(i64, since_ms)            /* for how many ms the worker has been in this state */
/* What an inspection has found out about workers that are at the same place (inspect/inspect.h).
 * Answers ASK_INSPECT; the host passes it on to the operator. Since version 4. */
#define RDZV_ROW_FIELDS(F, V) \
    F(u64, id)                  /* the id of ASK_INSPECT */ \
    F(text, ranks)              /* the ranks, such as "0-4,6" */ \
    F(u64, pid)                 /* process of the first of these ranks */ \
    F(text, host) F(text, state) F(text, program) F(text, kernel) F(text, operation) \
    F(text, python) F(text, native) F(text, note)
/* Ends a node's answer to ASK_INSPECT; `rows` is how many ROWs came before. Since version 4. */
#define RDZV_INSPECTED_FIELDS(F, V) F(u64, id) F(u32, rows)

/* ---- messages of an operator, sent in place of HELLO ---- */
#define RDZV_OPERATE_FIELDS(F, V) /* an order to nodes; OPERATED or REFUSED answers it */ \
    F(u32, version_min) F(u32, version_max) F(text, run_id) \
    F(text, host)               /* host of the nodes that get the order; "" = all nodes */ \
    F(u32, kind)                /* kind of change, for ASK_NOTICE; 0 = the order is ASK_DUMP; \
                                 * RDZV_OPERATE_INSPECT = the order is ASK_INSPECT; \
                                 * RDZV_OPERATE_ADMIT = the order admits the host */ \
    F(i64, left_ms) F(text, why)
/* Says that another host leads the job, and at which address its coordinator is. A node that has
 * taken over sends LEADS to the host at the job's endpoint, because new nodes connect to the
 * endpoint. LEADS has no answer. */
#define RDZV_LEADS_FIELDS(F, V) \
    F(u32, version_min) F(u32, version_max) F(text, run_id) \
    F(u64, epoch) F(text, addr) F(u32, port) /* where the coordinator is */
/* ---- messages of a relay, which carries the sessions of several members of one job over one
 * connection, its trunk (trunk.h). A member is named by its place at the relay, a number less than
 * RDZV_RELAY_PLACES. All of them exist since version 6 ---- */

/* First frame of a trunk, in place of HELLO. WELCOME or REFUSED answers it. */
#define RDZV_RELAY_FIELDS(F, V) \
    F(u32, version_min) F(u32, version_max) F(text, software) F(text, run_id)
/* A member has connected to the relay from the address `addr`. */
#define RDZV_ATTACH_FIELDS(F, V) F(u32, place) F(text, addr)
/* The connection of a member is over; sent in both directions. Each end sends one DETACH for each
 * ATTACH. When both ends have sent it, the relay may give the place to another member. */
#define RDZV_DETACH_FIELDS(F, V) \
    F(u32, place) \
    F(u32, is_broken)           /* 1: the connection was reset, or has timed out */
/* Names the member whose frame follows: the next frame of the trunk comes from this member, or goes
 * to it. Sent in both directions. */
#define RDZV_VIA_FIELDS(F, V) F(u32, place)
/* One message in place of the BEATs that members have sent to the relay since the relay's last
 * HOLD. The host answers HOLD with BEAT_ACK. After that, the relay answers these members' BEATs. */
#define RDZV_HOLD_FIELDS(F, V) \
    F(i64, sent_ms)             /* time on the relay's clock; BEAT_ACK returns it */ \
    F(u64, places)              /* bit p is 1 if the member at place p has sent BEAT */ \
    F(i64, heard_at_ms)         /* the smallest heard_at_ms in these BEATs */

/* Requests the state of all jobs. The answer has, for each job, one STATUS_JOB, one STATUS_NODE for
 * each of its nodes and, since version 5, one STATUS_HOST for each host that the job's coordinator
 * remembers. STATUS_DONE ends the answer. */
#define RDZV_STATUS_FIELDS(F, V) \
    F(u32, version_min) F(u32, version_max)

/* ---- messages of the coordinator to a member ---- */
#define RDZV_WELCOME_FIELDS(F, V) /* accepts a node after HELLO */ \
    F(u32, version) F(u64, epoch) \
    V(3) \
    F(u32, in_launcher)         /* 1: the coordinator ends with the launcher of a node; else 0 */ \
    F(u64, coordinator)         /* random number of this coordinator, its id; 0 = none */ \
    V(4) \
    F(i64, at_ms)               /* coordinator's clock; the node returns it in heard_at_ms */
/* Accepts a JOIN or RESUME. The keep-alive settings are those of the job's first node, and all
 * nodes use them. */
#define RDZV_ACCEPTED_FIELDS(F, V) \
    F(i64, keep_alive_interval_ms) F(u32, keep_alive_max_attempt) \
    V(3) \
    F(u64, incarnation)         /* run of the job that the node is in; 0 = not decided yet */ \
    F(text, differs)            /* settings in which the node differs from the job; "" = none */
#define RDZV_ROUND_FIELDS(F, V) /* a round has formed: the node starts its workers */ \
    F(u64, round) F(u32, restart_count) F(u32, group_rank) F(u32, group_world_size) \
    F(u32, first_rank) F(u32, world_size) F(u32, first_role_rank) F(u32, role_world_size) \
    F(text, master_addr) F(u32, master_port) \
    V(3) \
    F(u32, max_restarts)        /* the job's --max-restarts; the node's own may differ */ \
    F(u64, incarnation)         /* run of the job that this round belongs to; 0 = none */ \
    V(4) \
    /* heirs: the nodes that take over if the coordinator is lost, in this order (heirs.h) */ \
    F(text, heirs) \
    F(u32, leader)              /* group rank of the coordinator's own node, plus 1; 0 = none */ \
    /* The electorate of the previous round, which is needed until this round is settled. \
     * before_seen: number of that round, plus 1; before_size: its number of nodes; before_place: \
     * the node's group rank in it, plus 1; before_by: id of the coordinator that has formed it. 0 \
     * = none */ \
    F(u64, before_seen) F(u32, before_size) F(u32, before_place) F(u64, before_by) \
    V(9) \
    F(u32, kept)                /* 1 plus the sum of the numbers of kept workers that the nodes of \
                                 * the round have sent in JOIN; 0 = a node has sent none */
/* Addresses from which workers of the round's nodes may connect. If the round uses the store that
 * the node with group rank 0 offers, that node gets one or more of these messages before ROUND.
 * Since version 4. */
#define RDZV_NODES_FIELDS(F, V) \
    F(u64, round) \
    F(u32, part)                /* counts the messages of the round from 0 */ \
    F(text, addresses)          /* numeric addresses, separated by blanks */
/* Names the heirs of the running round to a spare, which has no place in that round. If the
 * coordinator is lost, the spare joins the heir that has taken over. Since version 4. */
#define RDZV_SPARE_FIELDS(F, V) \
    F(text, heirs)              /* as in ROUND */ \
    V(9) \
    /* yields: number of a round, plus 1. The node gives up its vote as a node of an earlier \
     * round for ever, and answers with a BEAT whose rounds_seen is this number. 0 = it keeps its \
     * vote */ \
    F(u64, yields)
/* Says why the node waits for a round; `what` ends a phrase that begins with "waiting". Since
 * version 3. */
#define RDZV_WAITING_FIELDS(F, V) \
    F(i64, waited_ms)           /* how long the node has waited */ \
    F(i64, left_ms)             /* longest time that it will still wait; -1 = no limit */ \
    F(text, what)
#define RDZV_STOP_FIELDS(F, V) /* the round is over: the node stops its workers */ \
    F(u64, round) F(text, why) \
    V(3) \
    F(i64, limit_ms)            /* time in which the workers must be gone; 0 = no limit */ \
    F(u32, is_late)             /* 1: the workers must be gone when the node's old lease ends */ \
    V(9) \
    F(u32, is_unawaited)        /* 1: the coordinator does not wait for a sign that the node knows \
                                 * of the end of the round; 0: the node sends a BEAT at once */
#define RDZV_END_FIELDS(F, V)       F(u32, outcome) F(text, why)
#define RDZV_GOODBYE_FIELDS(F, V) F(text, why) /* this coordinator ends, but the job does not */
#define RDZV_BEAT_ACK_FIELDS(F, V) \
    F(i64, sent_ms) \
    V(4) \
    F(i64, at_ms)               /* coordinator's clock; the node returns it in heard_at_ms */ \
    F(u64, settled)             /* number of the last round, plus 1, if it is settled; else 0 */
#define RDZV_CHANGE_FIELDS(F, V) /* the round will end soon; CHANGE_ANSWER answers it */ \
    F(u64, round) F(u64, id) F(u32, kind) /* enum rendezvous_change_kind */ \
    F(i64, left_ms) F(text, why)
/* Names the agreed step of a change. CHANGE_READY answers it. */
#define RDZV_CHANGE_AT_FIELDS(F, V) \
    F(u64, id) F(u64, step) F(i64, left_ms)
/* Requests that the node sends NOTICE with these fields. */
#define RDZV_ASK_NOTICE_FIELDS(F, V) F(u32, kind) F(i64, left_ms) F(text, why)
/* Requests that the node's workers write their flight records. */
#define RDZV_ASK_DUMP_FIELDS(F, V)   F(text, why)
/* Begins an inquiry at a node of the round, which answers with PROGRESS. Since version 4. */
#define RDZV_ASK_PROGRESS_FIELDS(F, V) F(u64, inquiry)
/* Requests that each node of the round says what its workers do now, with RANK. Since version 7. */
#define RDZV_ASK_RANKS_FIELDS(F, V) F(u64, round)
/* The result of an inquiry: which rank has not entered an operation in which others wait. Since
 * version 4. */
#define RDZV_BEHIND_FIELDS(F, V) \
    F(text, what)               /* one line */ \
    F(u32, is_found)            /* 1: some rank waits; 0: none does */
/* Requests an inspection of the node's workers: the node answers with one ROW for each place where
 * workers are, and INSPECTED. Since version 4. */
#define RDZV_ASK_INSPECT_FIELDS(F, V) F(u64, id) F(text, why)
/* The job hangs: all nodes that watch for it are silent for the same reason. The report is too long
 * for one message, so its lines come in several HUNG. Since version 8. */
#define RDZV_HUNG_FIELDS(F, V) \
    F(u64, round) \
    F(u32, rank) F(u64, pid)    /* the odd rank, and its process */ \
    F(u32, decides)             /* 1: this node reports the failure with FAILED; the other nodes \
                                 * only note it */ \
    F(u64, reasons)             /* mask of the reasons */ \
    F(i64, quiet_ms)            /* as in QUIET */ \
    F(text, what)               /* one line that names the reason and the odd rank */ \
    F(text, lines)              /* a piece of the lines that say where the workers are */ \
    F(u32, is_last)             /* 1: this is the last piece */
/* Begins a paired test at a node that waits for a round; the node runs the command of --pair-check
 * at the same time as its partner, and answers with PAIRED. It ends an earlier paired test that
 * still runs. Since version 8. */
#define RDZV_PAIR_FIELDS(F, V) \
    F(u64, id) \
    F(u32, rank)                /* the node's rank in the pair: 0 or 1 */ \
    F(text, host) F(text, addr) /* host and address of the partner */ \
    F(u32, port)                /* pair_port of the node with rank 0 in the pair */
#define RDZV_REFUSED_FIELDS(F, V) /* last frame of a connection; this message never changes */ \
    F(u32, version_min) F(u32, version_max) \
    F(u64, epoch)               /* least epoch of a coordinator to try next; 0 = give up */ \
    F(text, why)

/* Answers HELLO in place of WELCOME: another host leads the job. Since version 4. */
#define RDZV_MOVED_FIELDS(F, V) \
    F(u64, epoch) F(text, addr) F(u32, port)

/* ---- messages of the coordinator to an operator ---- */
#define RDZV_STATUS_JOB_FIELDS(F, V) \
    F(text, run_id) F(u32, phase) /* is an enum coordinator_phase */ \
    F(u64, rounds) F(u32, restart_count) F(u32, max_restarts) F(u32, min_nodes) F(u32, max_nodes) \
    F(u32, group_world_size) F(u32, world_size) F(u32, nodes) \
    F(u32, awaited)             /* how many nodes are missing before a round can form */ \
    F(text, why)                /* why the last round was stopped, or the job ended */ \
    V(5) \
    F(u32, spent)               /* restarts that were charged and not given back */ \
    F(u32, losses)              /* rounds that ended because a node was gone */ \
    F(u32, loss_limit)          /* rounds that may end because a node is gone, plus 1; 0 = any */ \
    F(i64, backoff_ms)          /* for how many ms the next round still waits after a failure */ \
    V(7) \
    F(text, slow)               /* ranks that are slow (types.h), one line; "" = none is known */
/* A host on which something went wrong; the fields are those of host_view (coordinator.h). Since
 * version 5. */
#define RDZV_STATUS_HOST_FIELDS(F, V) \
    F(text, host) F(u32, short_lives) F(u32, failures) \
    F(i64, slowed_ms) F(i64, refused_ms) F(i64, aside_ms)
#define RDZV_STATUS_NODE_FIELDS(F, V) \
    F(text, host) F(text, addr) F(text, role) F(u32, state) /* is an enum seat_state */ \
    F(u64, pid) F(i64, group_rank) F(u32, first_rank) F(u32, local_world_size) \
    /* silent_ms: ms since the node's last message; -1 = it is in the coordinator's process */ \
    F(i64, silent_ms) \
    V(5) \
    F(text, unfit)              /* why the node is not fit; "" = it is fit */
#define RDZV_STATUS_DONE_FIELDS(F, V) F(u32, jobs)
#define RDZV_OPERATED_FIELDS(F, V) \
    F(u32, nodes)               /* number of nodes that got the order, or of admitted hosts */ \
    V(4) \
    F(text, behind)             /* after ASK_DUMP: the result of the inquiry; else "" */

/* M(NAME, name, number, since): the messages, the type numbers in their frames, and the first
 * protocol version that has the message. */
#define RDZV_MESSAGES(M)                   \
    M(HELLO,         hello,         1,  2) \
    M(JOIN,          join,          2,  2) \
    M(FAILED,        failed,        3,  2) \
    M(SUCCEEDED,     succeeded,     4,  2) \
    M(LEAVE,         leave,         5,  2) \
    M(BEAT,          beat,          6,  2) \
    M(STATUS,        status,        7,  2) \
    M(CHANGE_ANSWER, change_answer, 8,  2) \
    M(CHANGE_READY,  change_ready,  9,  2) \
    M(NOTICE,        notice,        10, 2) \
    M(OPERATE,       operate,       11, 2) \
    M(RESUME,        resume,        12, 3) \
    M(ROW,           row,           13, 4) \
    M(INSPECTED,     inspected,     14, 4) \
    M(ABANDON,       abandon,       15, 4) \
    M(LEADS,         leads,         16, 4) \
    M(INQUIRE,       inquire,       17, 4) \
    M(PROGRESS,      progress,      18, 4) \
    M(FAILURE,       failure,       19, 4) \
    M(RELAY,         relay,         20, 6) \
    M(ATTACH,        attach,        21, 6) \
    M(DETACH,        detach,        22, 6) \
    M(VIA,           via,           23, 6) \
    M(HOLD,          hold,          24, 6) \
    M(RANK,          rank,          25, 7) \
    M(QUIET,         quiet,         26, 8) \
    M(PAIRED,        paired,        27, 8) \
    M(WELCOME,       welcome,       65, 2) \
    M(ACCEPTED,      accepted,      66, 2) \
    M(ROUND,         round,         67, 2) \
    M(STOP,          stop,          68, 2) \
    M(END,           end,           69, 2) \
    M(BEAT_ACK,      beat_ack,      70, 2) \
    M(REFUSED,       refused,       71, 2) \
    M(STATUS_JOB,    status_job,    72, 2) \
    M(STATUS_NODE,   status_node,   73, 2) \
    M(STATUS_DONE,   status_done,   74, 2) \
    M(CHANGE,        change,        75, 2) \
    M(CHANGE_AT,     change_at,     76, 2) \
    M(ASK_NOTICE,    ask_notice,    77, 2) \
    M(ASK_DUMP,      ask_dump,      78, 2) \
    M(OPERATED,      operated,      79, 2) \
    M(GOODBYE,       goodbye,       80, 3) \
    M(WAITING,       waiting,       81, 3) \
    M(ASK_INSPECT,   ask_inspect,   82, 4) \
    M(MOVED,         moved,         83, 4) \
    M(ASK_PROGRESS,  ask_progress,  84, 4) \
    M(BEHIND,        behind,        85, 4) \
    M(NODES,         nodes,         90, 4) \
    M(STATUS_HOST,   status_host,   91, 5) \
    M(SPARE,         spare,         92, 4) \
    M(ASK_RANKS,     ask_ranks,     93, 7) \
    M(HUNG,          hung,          94, 8) \
    M(PAIR,          pair,          95, 8)
/* clang-format on */

#define RDZV_RELAY_PLACES ((uint32_t) 64) /* largest number of members on one trunk */

/* What a node that resumes does in its round. Messages carry these numbers. */
enum rdzv_part {
    RDZV_PART_RUNS = 0,      /* the node's workers run */
    RDZV_PART_SUCCEEDED = 1, /* the node's workers have ended well */
    RDZV_PART_FAILED = 2,    /* a worker has failed, and the others are stopped or being stopped */
    RDZV_PART_STOPS = 3,     /* the node was sent STOP, and its workers are being stopped */
};

typedef uint32_t rdzv_u32;
typedef uint64_t rdzv_u64;
typedef int64_t rdzv_i64;
typedef const char *rdzv_text;

enum rdzv_message_type {
#define M(NAME, name, wire, since) RDZV_##NAME = (wire),
    RDZV_MESSAGES(M)
#undef M
};

#define F(type, name) rdzv_##type name;
#define V(version)
#define M(NAME, name, wire, since)                                                                 \
    struct rdzv_##name {                                                                           \
        RDZV_##NAME##_FIELDS(F, V)                                                                 \
    };
RDZV_MESSAGES(M)
#undef M
#undef V
#undef F

struct rdzv_message {
    enum rdzv_message_type type;
    union {
#define M(NAME, name, wire, since) struct rdzv_##name name;
        RDZV_MESSAGES(M)
#undef M
    };
};

/* Returns the name of a message type, "HELLO" for example, or "?" for an unknown number. */
const char *rdzv_message_name(unsigned type);

/* Returns the first protocol version that has this message. An end of an older version closes the
 * connection when it receives the message, because it does not know the type. So a sender compares
 * this version with that of the connection before it sends. */
uint32_t rdzv_message_since(enum rdzv_message_type type);

/* Copy the fields that RESUME and JOIN have in common. Texts in *to point to those of *from. Other
 * fields of *to keep their values. */
void rdzv_join_of_resume(const struct rdzv_resume *from, struct rdzv_join *to);
void rdzv_resume_of_join(const struct rdzv_join *from, struct rdzv_resume *to);

/* Encodes `m` with the fields of protocol version `version`, and appends the frame to `out`. Texts
 * longer than RDZV_TEXT_MAX - 1 bytes are cut. Returns 0 or -ENOMEM. */
int rdzv_message_encode(const struct rdzv_message *m, uint32_t version, struct cr_buffer *out);

/* Returns the size in bytes of the frame at the start of `data`, with its length field; 0 if the
 * frame is not complete yet; or -EPROTO if the length is not that of a frame. */
int64_t rdzv_frame_size(const char *data, size_t len);

/* Decodes the frame at the start of `data`. Stores the size of the frame in *used, or 0 if the
 * frame is not complete yet. Texts in *m point into `data`. Returns 0; or returns -EPROTO and a
 * text in err if the length of the frame is out of range, its type is unknown, the frame ends
 * inside a version's fields, or a text is malformed. After an error the rest of the stream must be
 * discarded, because it is unknown where the next frame begins. */
int rdzv_message_decode(const char *data, size_t len, struct rdzv_message *m, size_t *used,
                        struct cr_error *err);

/* Handles one message. Texts in *m are valid until the function returns. Returns 0 to go on with
 * the next message, a positive value to stop, or a negative errno and a text in err. */
typedef int (*rdzv_take_fn)(void *arg, const struct rdzv_message *m, struct cr_error *err);

/* Removes the complete frames from the front of `in` and calls `take` for each. An incomplete frame
 * stays in `in`. If `take` reuses or frees `in`, it must return a negative value. Returns 0 if all
 * complete frames were handled, -EPROTO and a text in err if a frame cannot be decoded, or the
 * value other than 0 that `take` has returned. After a positive value the frames that follow are
 * still in `in`. */
int rdzv_messages_take(struct cr_buffer *in, rdzv_take_fn take, void *arg, struct cr_error *err);

#endif
