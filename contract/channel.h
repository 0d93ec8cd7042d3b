/* What an agent and the workers of its node say to one another beside signals, through the worker
 * runtime. Both sides include this; neither includes the other.
 *
 * The agent listens on an abstract SOCK_SEQPACKET address and gives each worker
 *     CRUN_AGENT=<address without its first NUL>:<the worker's token>
 * The worker connects and sends HELLO; WELCOME brings the descriptor of a page that both map. From
 * then on progress costs no system call: the worker writes its steps into the page, the agent rings
 * a bell in it when there is a packet to read. One packet is one struct channel_packet, always whole;
 * anything else ends the connection. A worker without a connection is stopped like any program.
 *
 * A change with notice, so that all ranks stop after the same number of steps:
 *
 *   agent: sends CHANGE, rings, *then* reads `step`          (all sequentially consistent)
 *   worker, in crunrt_step(): writes `step`, *then* reads the bell
 *
 * So either the worker sees the bell in this step and waits in it, or the agent sees this step: no
 * worker is more than one step beyond what its agent read. The coordinator takes the largest of all
 * nodes plus one; STOP_AT brings it; a worker that has made that many steps sets `stopped_for`, does
 * what it has to, and is ready when it says READY or REJOIN, or ends with status 0. */
#ifndef CONTRACT_CHANNEL_H
#define CONTRACT_CHANNEL_H

#include "base/change_kind.h"

#include <stdatomic.h>
#include <stdint.h>

#define CHANNEL_VARIABLE    "CRUN_AGENT"
#define CHANNEL_VERSION     1
#define CHANNEL_ADDRESS_MAX 64 /* without the first NUL, with the last */
#define CHANNEL_TOKEN_MAX   33 /* 16 random bytes in hexadecimal, and a NUL */
#define CHANNEL_TEXT_MAX    256
#define CHANNEL_PAGE_SIZE   4096

enum channel_type {
    /* worker to agent */
    CHANNEL_HELLO = 1,  /* first; hello */
    CHANNEL_READY = 2,  /* `id`: what this change asked for is done; this process may be stopped */
    CHANNEL_REJOIN = 3, /* wants to go on in this process in the next round; waits for ROUND */
    CHANNEL_DUMPED = 4, /* `id`: the dump asked for is written (sent from a signal handler); text: its path */
    CHANNEL_LIMIT = 5,  /* the page's limit_ms was set anew */
    /* agent to worker */
    CHANNEL_WELCOME = 65, /* answers HELLO; carries the page's descriptor (SCM_RIGHTS) */
    CHANNEL_CHANGE = 66,  /* `id`: announced; change */
    CHANNEL_STOP_AT = 67, /* `id`: takes place after `stop_at.step` steps */
    CHANNEL_OVER = 68,    /* the round is over without notice (a failure); text says why */
    CHANNEL_ROUND = 69,   /* answers REJOIN: the next round; place */
    CHANNEL_REFUSED = 70, /* last packet; text says why */
};

/* Why a change comes; base/change_kind.h is the list. */
enum channel_change_kind {
#define K(NAME, number, word, phrase) CHANNEL_CHANGE_##NAME = (number),
    CR_CHANGE_KINDS(K)
#undef K
};

struct channel_packet {
    uint32_t type;     /* enum channel_type */
    uint32_t reserved; /* 0 */
    uint64_t id;
    union {
        struct {
            uint32_t version;    /* CHANNEL_VERSION of the worker; the agent answers with its own */
            int32_t dump_signal; /* its handler writes the flight record; 0 = none */
            char token[CHANNEL_TOKEN_MAX];
        } hello;
        struct {
            uint32_t version;
        } welcome;
        struct {
            uint32_t kind;   /* enum channel_change_kind */
            int64_t left_ms; /* until workers are stopped regardless; from now */
        } change;
        struct {
            uint64_t step;
            int64_t left_ms;
        } stop_at;
        struct { /* as in the environment of a worker of that round */
            uint64_t round;
            uint32_t rank, world_size, local_rank, local_world_size;
            uint32_t group_rank, group_world_size, role_rank, role_world_size;
            uint32_t restart_count, master_port;
            char master_addr[64];
        } place;
        char room[128];
    };
    char text[CHANNEL_TEXT_MAX]; /* one line, ends within; may be empty */
};

/* How a worker answers changes. */
enum channel_answer {
    CHANNEL_AFTER_STEP = 0, /* when this step is done */
    CHANNEL_NOW = 1,        /* may be stopped at any time */
    CHANNEL_NEEDS = 2,      /* when this step is done, and `needs_ms` more */
};

/* The page. Each side reads the other's half as it would read a network: any value may stand there. */
struct channel_page {
    /* the worker's half */
    _Atomic uint64_t step;      /* steps made in this round; 0: takes no part in changes (yet) */
    _Atomic int64_t stepped_ns; /* monotonic clock, at the last one */
    _Atomic int64_t limit_ms; /* longest time from step to step before it counts as hung; 0: none */
    _Atomic int64_t needs_ms; /* with CHANNEL_NEEDS */
    _Atomic uint32_t answer;  /* enum channel_answer */
    _Atomic uint32_t can_rejoin;  /* 1: survives the failure of others in this process */
    _Atomic uint64_t stopped_for; /* id of the change for which it has stopped; 0 = none */
    /* the agent's half */
    _Atomic uint32_t bell;    /* one more with each packet, after it was sent */
    _Atomic uint64_t dump_id; /* of the dump asked for; the signal follows */
    _Atomic uint32_t over;    /* 1 from OVER to ROUND: for whoever waits elsewhere than in a step */
};

#endif
