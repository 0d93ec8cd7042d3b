/* An inquiry: asks the nodes of the round in which operations their workers are, and sends all
 * nodes one line that names the rank for which others wait (behind.c). An inquiry begins when an
 * operator requests a dump, when a worker is hung, or when a worker has failed that was waiting for
 * others. Nodes of protocol version 3 do not answer. */
#include "rendezvous/coordinator/coordinator_internal.h"
#include "rendezvous/rules/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INQUIRY_MS  INT64_C(1000) /* how long nodes may take to answer */
/* An inquiry takes at most this many entries for each rank of the round. A worker shows at most 60
 * groups. */
#define GROUPS_PER_RANK 64

static bool is_asked(const struct coordinator_seat *s) {
    return s->peer != NULL && s->group_rank >= 0 && s->state != SEAT_JOINED &&
           s->state != SEAT_UNFIT;
}

void coordinator_inquire(struct coordinator *c, int64_t now_ms) {
    struct rdzv_message m = {.type = RDZV_ASK_PROGRESS};
    if (c->inquiry.is_open || c->phase == COORDINATOR_ENDED) return;
    m.ask_progress.inquiry = ++c->inquiry.id;
    c->inquiry.is_open = true;
    c->inquiry.until_ms = now_ms + INQUIRY_MS;
    c->inquiry.count = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) {
        struct coordinator_seat *s = c->seats[i];
        s->owes_progress = is_asked(s);
        if (s->owes_progress) seat_send(c, s, &m);
    }
    coordinator_wake_by(c, c->inquiry.until_ms);
}

static uint32_t debtors(const struct coordinator *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->seat_count; i++) n += c->seats[i]->owes_progress ? 1 : 0;
    return n;
}

static void finish(struct coordinator *c) {
    char what[RDZV_TEXT_MAX];
    struct rdzv_message m = {.type = RDZV_BEHIND};
    uint32_t silent = debtors(c);
    m.behind.is_found = behind_describe(c->inquiry.entries, c->inquiry.count, c->world_size, what,
                                        sizeof(what));
    size_t len = strlen(what);
    if (silent > 0)
        (void) snprintf(what + len, sizeof(what) - len, " (%u node%s did not answer)", silent,
                        silent > 1 ? "s" : "");
    c->inquiry.is_open = false;
    free(c->inquiry.entries);
    c->inquiry.entries = NULL;
    c->inquiry.room = 0;
    m.behind.what = what;
    for (uint32_t i = 0; i < c->seat_count; i++) seat_send(c, c->seats[i], &m);
    if (c->actions->on_behind != NULL) c->actions->on_behind(c->arg, what);
}

static bool make_room(struct coordinator *c) {
    if (c->inquiry.count < c->inquiry.room) return true;
    if (c->inquiry.count >= (size_t) c->world_size * GROUPS_PER_RANK) return false;
    size_t room = c->inquiry.room == 0 ? 64 : 2 * c->inquiry.room;
    void *bigger = realloc(c->inquiry.entries, room * sizeof(*c->inquiry.entries));
    if (bigger == NULL) return false;
    c->inquiry.entries = bigger;
    c->inquiry.room = room;
    return true;
}

void inquiry_got_progress(struct coordinator *c, struct coordinator_seat *s,
                          const struct rdzv_progress *p) {
    if (!c->inquiry.is_open || p->inquiry != c->inquiry.id || !s->owes_progress) return;
    if (p->is_last != 0) {
        s->owes_progress = false;
        if (debtors(c) == 0) finish(c);
        return;
    }
    if (!make_room(c)) return;
    struct behind_entry *e = &c->inquiry.entries[c->inquiry.count++];
    *e = (struct behind_entry){.group = p->group, .rank = p->rank, .place = p->place,
                               .size = p->size, .state = p->state, .begun = p->begun,
                               .seq = p->seq, .peer = p->peer, .since_ms = p->since_ms};
    (void) snprintf(e->name, sizeof(e->name), "%s", p->name);
    (void) snprintf(e->op, sizeof(e->op), "%s", p->op);
}

void inquiry_tick(struct coordinator *c, int64_t now_ms) {
    if (c->inquiry.is_open && (now_ms >= c->inquiry.until_ms || debtors(c) == 0)) finish(c);
}
