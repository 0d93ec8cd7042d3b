/* Packs the operation that a worker is in into two 64-bit words, and unpacks them: implements
 * contract/progress.h. The bits of the two words:
 *
 *   collective   bits 0-31 begun, 32-47 back, 48-55 kind, 56 waits, 57 open
 *   message      bits 0-31 seq, 32-55 peer, 56 receive, 57 waits */
#include "contract/progress.h"

#define WAITS       (UINT64_C(1) << 56)
#define OPEN        (UINT64_C(1) << 57)
#define RECEIVES    (UINT64_C(1) << 56)
#define MESSAGE_IN  (UINT64_C(1) << 57)
#define PEER_MAX    0xffffffU

uint64_t progress_collective(uint32_t begun, uint32_t back, enum progress_kind kind, bool waits,
                             bool open) {
    uint64_t limited = back < PROGRESS_BEHIND_MAX ? back : PROGRESS_BEHIND_MAX;
    return begun | limited << 32 | (uint64_t) kind << 48 | (waits ? WAITS : 0) | (open ? OPEN : 0);
}

uint64_t progress_message(uint32_t seq, uint32_t peer, enum progress_kind kind, bool waits) {
    return seq | (uint64_t) (peer & PEER_MAX) << 32 | (kind == PROGRESS_RECV ? RECEIVES : 0) |
           (waits ? MESSAGE_IN : 0);
}

static void read_name(const struct channel_group *g, char out[CHANNEL_GROUP_NAME_MAX]) {
    size_t i = 0;
    for (; i < CHANNEL_GROUP_NAME_MAX - 1 && g->name[i] != '\0'; i++)
        out[i] = g->name[i] < 0x20 || g->name[i] > 0x7e ? '?' : g->name[i];
    out[i] = '\0';
}

enum progress_kind progress_kind_of(uint64_t collective) {
    uint32_t kind = (uint32_t) (collective >> 48) & 0xff;
    return kind < PROGRESS_KIND_COUNT ? (enum progress_kind) kind : PROGRESS_BARRIER;
}

static void read_collective(uint64_t word, struct progress *out) {
    uint32_t back = (uint32_t) (word >> 32) & PROGRESS_BEHIND_MAX;
    out->begun = (uint32_t) word;
    out->kind = progress_kind_of(word);
    out->state = (word & WAITS) == 0         ? (word & OPEN) != 0 ? PROGRESS_OPEN : PROGRESS_IDLE
                 : out->kind == PROGRESS_MAKE ? PROGRESS_MAKING
                                              : PROGRESS_COLLECTIVE;
    if (out->state == PROGRESS_COLLECTIVE)
        out->seq = out->begun > back ? out->begun - 1 - back : 0;
}

static void read_message(uint64_t word, struct progress *out) {
    if ((word & MESSAGE_IN) == 0) return;
    out->state = PROGRESS_MESSAGE;
    out->kind = (word & RECEIVES) != 0 ? PROGRESS_RECV : PROGRESS_SEND;
    out->seq = (uint32_t) word;
    out->peer = (uint32_t) (word >> 32) & PEER_MAX;
}

bool progress_read(const struct channel_group *g, struct progress *out) {
    uint64_t number = atomic_load(&g->number);
    if (number == 0) return false;
    *out = (struct progress){.number = number - 1, .place = g->place, .size = g->size};
    read_name(g, out->name);
    read_collective(atomic_load(&g->collective), out);
    read_message(atomic_load(&g->message), out);
    out->since_ns = atomic_load(&g->since_ns);
    return out->size > 0 && out->place < out->size;
}

const char *progress_kind_name(enum progress_kind kind) {
    static const char *const names[] = {
#define X(NAME, name) name,
        PROGRESS_KINDS(X)
#undef X
    };
    return (unsigned) kind < PROGRESS_KIND_COUNT ? names[kind] : "?";
}
