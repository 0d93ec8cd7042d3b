/* Messages between ranks: ranks 0 and 1 send a counter to each other several times. After that
 * every rank sends to the next rank and receives from the previous rank at the same time.
 *
 *     crun --standalone --nproc-per-node=4 build/examples/ping */
#include <crunrt.h>

#include <stdio.h>
#include <stdlib.h>

static void must(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "ping: %s: %s\n", what, crunrt_last_error());
    (void) crunrt_report_error(NULL, NULL);
    exit(1);
}

/* Ranks 0 and 1, with blocking calls and in alternation: one rank adds 1 to the counter and sends
 * the counter, the other rank receives it. */
static void ping_pong(crunrt_group *world, int rank) {
    int64_t ball = 0;
    if (rank > 1) return;
    int peer = 1 - rank;
    for (int turn = 0; turn < 4; turn++) {
        if (turn % 2 == rank) {
            ball++;
            must(crunrt_group_send(world, &ball, 1, CRUNRT_INT64, peer, 0), "send");
        } else {
            must(crunrt_group_recv(world, &ball, 1, CRUNRT_INT64, peer, 0), "receive");
            printf("rank %d has the ball: %lld\n", rank, (long long) ball);
        }
    }
}

/* Each rank starts a receive from the previous rank and a send to the next rank, and waits for
 * both. If the ranks used blocking calls, all could wait in their sends for ever. */
static void shift(crunrt_group *world, int rank, int size) {
    int64_t mine = rank, from_left = -1;
    crunrt_work *sending, *receiving;
    must(crunrt_group_irecv(world, &from_left, 1, CRUNRT_INT64, (rank + size - 1) % size, 1,
                            &receiving),
         "start to receive");
    must(crunrt_group_isend(world, &mine, 1, CRUNRT_INT64, (rank + 1) % size, 1, &sending),
         "start to send");
    must(crunrt_work_wait(receiving, CRUNRT_TIMEOUT_DEFAULT), "receive");
    must(crunrt_work_wait(sending, CRUNRT_TIMEOUT_DEFAULT), "send");
    crunrt_work_free(receiving);
    crunrt_work_free(sending);
    printf("rank %d got %lld from its left\n", rank, (long long) from_left);
}

int main(void) {
    crunrt *rt;
    crunrt_group *world;
    must(crunrt_init(NULL, &rt), "start");
    must(crunrt_group_new(rt, NULL, &world), "meet the other ranks");
    int rank = crunrt_rank(rt), size = crunrt_world_size(rt);
    if (size < 2) {
        fprintf(stderr, "ping: needs two ranks or more\n");
        return 2;
    }
    ping_pong(world, rank);
    shift(world, rank, size);
    must(crunrt_group_barrier(world), "end together");
    crunrt_group_destroy(world);
    crunrt_destroy(rt);
    return 0;
}
