/* Copies a coordinator's state for operators, tests and the simulator, and names its states. */
#include "rendezvous/coordinator/coordinator_internal.h"

#include <string.h>

const char *coordinator_phase_name(uint32_t phase) {
    switch (phase) {
#define P(name)                                                                                    \
    case COORDINATOR_##name: return #name;
        COORDINATOR_PHASES(P)
#undef P
    default: return "?";
    }
}

const char *seat_state_name(uint32_t state) {
    switch (state) {
#define S(name)                                                                                    \
    case SEAT_##name: return #name;
        SEAT_STATES(S)
#undef S
    default: return "?";
    }
}

/* Returns how many nodes are missing before a round can form: the nodes that still stop their
 * workers, plus the number by which these and the waiting nodes fall short of min_nodes. */
static uint32_t count_awaited(const struct coordinator *c) {
    uint32_t stopping = c->in_state[SEAT_STOPPING], here = c->in_state[SEAT_JOINED] + stopping;
    if (c->phase != COORDINATOR_FORMING) return 0;
    return stopping + (here < c->min_nodes ? c->min_nodes - here : 0);
}

void coordinator_look(const struct coordinator *c, struct coordinator_view *out) {
    *out = (struct coordinator_view){.phase = c->phase,
                                     .incarnation = c->incarnation,
                                     .next_round = c->next_round,
                                     .has_discarded = c->discarded[0].rounds > 0,
                                     .restart_count = c->budget.restart_count,
                                     .spent = c->budget.spent,
                                     .losses = c->budget.losses,
                                     .max_losses = c->budget.limits_losses
                                                       ? (int64_t) c->budget.max_losses : -1,
                                     .backoff_until_ms = c->phase == COORDINATOR_FORMING
                                                             ? c->backoff_until_ms : 0,
                                     .max_restarts = c->budget.max_restarts,
                                     .min_nodes = c->min_nodes,
                                     .max_nodes = c->max_nodes,
                                     .group_world_size = c->group_size,
                                     .world_size = c->world_size,
                                     .seats = c->seat_count,
                                     .suspended = c->suspended,
                                     .awaited = count_awaited(c),
                                     .is_held = c->is_held,
                                     .lacks_majority = c->succession.lacks_majority,
                                     .decides = (c->has_formed || c->succession.now.is_won) &&
                                                !c->succession.lacks_majority,
                                     .has_heirs = c->succession.heirs.count > 0,
                                     .outcome = c->outcome,
                                     .why = c->why,
                                     .slow = c->phase == COORDINATOR_RUNNING ? c->ranks.slow : ""};
    memcpy(out->in_state, c->in_state, sizeof(out->in_state));
}

void coordinator_visit(const struct coordinator *c,
                       void (*visit)(void *arg, const struct seat_view *seat), void *arg) {
    for (uint32_t i = 0; i < c->seat_count; i++) {
        const struct coordinator_seat *s = c->seats[i];
        struct seat_view view = {.host = s->host, .addr = s->addr, .role = s->role, .pid = s->pid,
                                 .local = s->local, .suspended = s->peer == NULL,
                                 .state = s->state, .group_rank = s->group_rank,
                                 .local_world_size = s->local_world_size,
                                 .first_rank = s->first_rank, .heard_ms = s->heard_ms,
                                 .unfit = seat_unfit(s)};
        visit(arg, &view);
    }
}
