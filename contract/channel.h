/* The channel between an agent and one of its workers: a connection for packets, and a page of
 * shared memory for the worker's progress. The agent and the worker runtime both include this
 * header; neither includes the other's headers.
 *
 * The agent listens on an abstract SOCK_SEQPACKET address and gives each worker the variable
 *
 *   CRUN_AGENT=<address without its first NUL>:<the worker's token>
 *
 * The worker connects and sends HELLO. The agent answers WELCOME, which carries the descriptor of
 * the page, and both sides map the page. From here on a step of the worker costs no system call:
 * the worker writes its progress into the page, and the agent increments a counter in the page, the
 * bell, after each packet that it sends. A packet is one struct channel_packet, always of
 * full size; a side that receives anything else closes the connection. A worker without a channel
 * is stopped by signals only.
 *
 * A change with notice lets all ranks stop after the same number of steps. For this, agent and
 * worker access the page in opposite orders:
 *
 *   agent:                        sends CHANGE, increments the bell, then reads `step`
 *   worker, in crunrt_step():     writes `step`, then reads the bell
 *
 * The accesses are sequentially consistent. So if the agent does not see the worker's newest step,
 * the worker sees the new bell in that step, and waits in that step. Thus a worker has made at most
 * one step more than the agent has read. Example: the agent reads 7 while the worker is about to
 * write 8. The worker writes 8, sees the bell, and waits in step 8. The coordinator takes the
 * largest step that any agent read and adds one: the agreed step is at least 8, which no worker has
 * passed. STOP_AT carries the agreed step to the workers. A worker that has made the agreed step
 * sets `stopped_for`, saves, and sends READY or REJOIN, or ends with status 0.
 *
 * If a worker connects while a change is announced, the agent sends CHANGE, and STOP_AT if the
 * agreed step is known, before WELCOME. So the worker knows of the change before its first step. */
#ifndef CONTRACT_CHANNEL_H
#define CONTRACT_CHANNEL_H

#include "base/change_kind.h"

#include <stdatomic.h>
#include <stdint.h>

#define CHANNEL_VARIABLE    "CRUN_AGENT"
#define CHANNEL_VERSION     1
/* length limit of the address, in bytes; the NUL with which it begins is not counted, the NUL at
 * its end is counted */
#define CHANNEL_ADDRESS_MAX 64
#define CHANNEL_TOKEN_MAX   33 /* bytes of a token: 32 hexadecimal digits and a NUL */
#define CHANNEL_TEXT_MAX    256
#define CHANNEL_PAGE_SIZE   4096

enum channel_type {
    /* worker to agent */
    CHANNEL_HELLO = 1,  /* the first packet; uses `hello` */
    /* the worker has saved because of change `id`; the agent may stop its process */
    CHANNEL_READY = 2,
    CHANNEL_REJOIN = 3, /* the worker is parked: it waits in its process for ROUND */
    /* the worker has tried to write flight record `id`. `text` is the path of the file; if `text`
     * is empty, the record could not be written. The worker sends this from a signal handler */
    CHANNEL_DUMPED = 4,
    CHANNEL_LIMIT = 5, /* the worker has changed limit_ms in its page */
    /* sent by crun-agent top instead of HELLO: requests SHOWN. `id` is an enum channel_order: an
     * order that the agent carries out before it sends SHOWN; the order NOTICE uses `change` */
    CHANNEL_LOOK = 6,
    /* agent to worker */
    CHANNEL_WELCOME = 65, /* answers HELLO; carries the descriptor of the page (SCM_RIGHTS) */
    CHANNEL_CHANGE = 66,  /* change `id` is announced; uses `change`, and `text` for the reason */
    CHANNEL_STOP_AT = 67, /* the agreed step of change `id` is known; uses `stop_at` */
    CHANNEL_OVER = 68, /* the round has ended without an announced change; `text` has the reason */
    CHANNEL_ROUND = 69, /* answers REJOIN and starts the worker's next round; uses `place` */
    /* the agent refuses the worker and closes the connection; `text` has the reason */
    CHANNEL_REFUSED = 70,
    /* answers LOOK, and ends the connection; carries the descriptor of a file that contains the
     * snapshot (docs/status.md) as JSON */
    CHANNEL_SHOWN = 71,
};

/* The order in a LOOK packet: what the agent has to do before it sends the snapshot. */
enum channel_order {
    CHANNEL_ORDER_NONE = 0,
    CHANNEL_ORDER_DUMP = 1,   /* request flight records of all workers */
    CHANNEL_ORDER_NOTICE = 2, /* leave the job within change.left_ms */
};

/* Why a change comes: join, leave, …; base/change_kind.h has the list. */
enum channel_change_kind {
#define K(NAME, number, word, phrase) CHANNEL_CHANGE_##NAME = (number),
    CR_CHANGE_KINDS(K)
#undef K
};

struct channel_packet {
    uint32_t type;     /* the kind of packet, an enum channel_type */
    uint32_t reserved; /* 0 */
    uint64_t id;
    union {
        struct {
            uint32_t version; /* in HELLO, the CHANNEL_VERSION of the worker */
            /* number of the signal whose handler writes the worker's flight record; 0 if the worker
             * has no such handler */
            int32_t dump_signal;
            char token[CHANNEL_TOKEN_MAX];
        } hello;
        struct {
            uint32_t version;
        } welcome;
        struct {
            uint32_t kind;   /* why the change comes, an enum channel_change_kind */
            /* ms until the agent stops the workers, whether they are ready or not */
            int64_t left_ms;
        } change;
        struct {
            uint64_t step;
            int64_t left_ms;
        } stop_at;
        struct { /* the worker's place in the round: the values that a new worker gets in its
                  * environment */
            uint64_t round;
            uint32_t rank, world_size, local_rank, local_world_size;
            uint32_t group_rank, group_world_size, role_rank, role_world_size;
            uint32_t restart_count, master_port;
            char master_addr[64];
            uint32_t kept; /* 1 plus the number of ranks of the round that go on in their processes,
                            * this one included; 0 = unknown */
        } place;
        char room[128];
    };
    char text[CHANNEL_TEXT_MAX]; /* one line, NUL-terminated; may be empty */
};

#define CHANNEL_GROUPS_MAX     60 /* a page shows at most this many process groups of its worker */
#define CHANNEL_GROUP_NAME_MAX 24 /* bytes of a group's name in the page, NUL included */

/* The operation that the worker is in, in one process group; the functions of contract/progress.h
 * read and write it. */
struct channel_group {
    /* 1 plus the number of the group among the groups of the round; 0 = the entry is not in use.
     * The worker writes `number` after `place`, `size` and `name`, and does not change these while
     * `number` is not 0. */
    _Atomic uint64_t number;
    uint32_t place, size; /* the worker's rank in the group, and the group's number of ranks */
    char name[CHANNEL_GROUP_NAME_MAX];
    _Atomic uint64_t collective; /* progress_collective() */
    _Atomic uint64_t message;    /* progress_message() */
    _Atomic int64_t since_ns;    /* time (ns, monotonic clock) at which the worker last entered an
                                  * operation */
};

/* When a worker can be stopped for a change. */
enum channel_answer {
    CHANNEL_AFTER_STEP = 0, /* the worker can be stopped after the agreed step */
    CHANNEL_NOW = 1,        /* the worker can be stopped at any time */
    CHANNEL_NEEDS = 2,      /* the worker can be stopped `needs_ms` after the agreed step */
};

/* The page. Each side writes only to its own half. Each side checks what it reads from the other
 * half like bytes from a network, because the other process may write any value there. */
struct channel_page {
    /* ---- the worker's half ---- */
    /* number of steps that the worker has made in this round. If the number is 0 when a change is
     * announced, the agent does not freeze the worker, unless counts_from_start is 1. */
    _Atomic uint64_t step;
    _Atomic int64_t stepped_ns; /* time of the last step, in ns of the monotonic clock */
    /* the step timeout that the worker has set for itself, in ms; 0 if it has set none: in that
     * case the job's --step-timeout applies */
    _Atomic int64_t limit_ms;
    /* time that the worker needs after the agreed step, in ms; used if answer is CHANNEL_NEEDS */
    _Atomic int64_t needs_ms;
    /* when the worker can be stopped for a change, an enum channel_answer */
    _Atomic uint32_t answer;
    /* 1 if the worker can go on in its process when the round has ended; else 0 */
    _Atomic uint32_t can_rejoin;
    _Atomic uint64_t stopped_for; /* id of the change for which the worker has stopped; 0 if none */
    /* ---- the agent's half ---- */
    _Atomic uint32_t bell;    /* number of packets that the agent has sent */
    _Atomic uint64_t dump_id; /* id of the flight record that the dump signal requests */
    /* 1 after the agent has sent OVER and until it sends ROUND; else 0. Code of the worker that
     * waits outside of a step reads this field, and stops waiting when it is 1. */
    _Atomic uint32_t over;
    /* ---- the worker's half: fields that were added later; they stand at the end so that the
     * offsets of the older fields did not change ---- */
    /* 1 if the agent freezes the worker for a change even before its first step */
    _Atomic uint32_t counts_from_start;
    /* time of the first step in this round, in ns of the monotonic clock; 0 if there was none */
    _Atomic int64_t first_step_ns;
    /* the entries of the worker's process groups; if the worker has more than CHANNEL_GROUPS_MAX
     * groups, only its oldest groups have entries */
    _Alignas(64) struct channel_group groups[CHANNEL_GROUPS_MAX];
};

_Static_assert(sizeof(struct channel_page) <= CHANNEL_PAGE_SIZE, "the page holds all fields");

#endif
