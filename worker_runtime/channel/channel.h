/* The worker's end of contract/channel.h. */
#ifndef RT_AGENT_LINK_INTERNAL_H
#define RT_AGENT_LINK_INTERNAL_H

#include "contract/channel.h"
#include "base/error.h"

/* All zeros but fd = -1: there is no agent, and every call below does nothing. */
struct agent_link {
    int fd;
    struct channel_page *page; /* NULL without a connection */
    uint64_t steps;         /* made in this round */
    uint64_t heard;         /* the bell when all packets had been read last */
    struct channel_packet change; /* type 0: none is announced */
    uint64_t stop_at;          /* steps after which it takes place; 0 = not known */
    int64_t change_until_ms;   /* monotonic; when it takes place regardless */
    int over;                  /* the round has ended without notice */
    int asked;                 /* REJOIN was sent */
};

/* Connects as CRUN_AGENT says. Not being able to is no error: an agent is a help, not a need; `why`
 * then says what was in the way ("" = no agent is named). */
void agent_link_open(struct agent_link *l, struct cr_error *why);
void agent_link_close(struct agent_link *l);

/* 0 or a negative errno; then the link is closed. */
int agent_link_send(struct agent_link *l, enum channel_type type, uint64_t id);

/* Reads one packet into *p, waiting at most until the deadline (cr_monotonic_ms). 1, 0 when there is
 * none by then, or a negative errno: the link is closed. */
int agent_link_receive(struct agent_link *l, int64_t deadline_ms, struct channel_packet *p);

#endif
