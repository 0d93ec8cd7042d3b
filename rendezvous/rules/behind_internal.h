/* Finds the rank for which others wait. The input says what each worker of a round does in each of
 * its process groups. Pure. */
#ifndef RENDEZVOUS_BEHIND_INTERNAL_H
#define RENDEZVOUS_BEHIND_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BEHIND_NAME_MAX 24

/* What one worker does in one process group. The fields are those of the message PROGRESS. */
struct behind_entry {
    uint64_t group;
    char name[BEHIND_NAME_MAX], op[BEHIND_NAME_MAX];
    uint32_t rank, place, size, state, begun, seq, peer;
    int64_t since_ms;
};

/* Writes one line to `out`: which ranks have not entered an operation in which others wait, and
 * which operation this is. Examples:
 *
 *   rank 5 has not entered all_reduce #17 of group 'dp', in which 63 ranks wait, rank 0 for 8.2 s
 *   all 4 ranks are in all_reduce #17 of group 'world', rank 2 for 2.0 s
 *   no rank waits in an operation of a process group
 *
 * A rank for which others wait is not named if it waits for another rank, perhaps in another group.
 * If no rank waits, the line names the ranks that have not entered an operation that others have
 * started on a stream. Sorts `entries`. `world_size` is the number of ranks of the round. Returns
 * whether any rank waits, or has not entered such an operation. */
bool behind_describe(struct behind_entry *entries, size_t count, uint32_t world_size, char *out,
                     size_t out_size);

#endif
