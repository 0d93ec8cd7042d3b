/* Kernels of NCCL: they carry out the collectives and messages of one communicator in one group.
 *
 * Modelled on NCCL 2.28.9 and 2.30.7:
 * - All operations of one communicator in one group are one launch (enqueue.cc, ncclLaunchPrepare).
 * - A kernel spins until the other ranks come. If the abort flag of its communicator is set, it
 *   ends at once, and the output buffers may be half written (device/primitives.h, checkAbort).
 * - All sends and receives of a launch make progress at the same time (device/sendrecv.h).
 * - The first collective, and the first message from or to each rank, connect on the host and block
 *   until the other ranks connect, too (group.cc, ncclCollPreconnectFunc and
 *   ncclP2PPreconnectFunc; transport.cc).
 *
 * If ranks make different calls, a GPU hangs or computes wrong results. Here the kernels of all
 * ranks spin until they are aborted, and a line on stderr reports the difference. A send is done
 * when it has been received, which is the strictest behaviour that NCCL's manual allows. With
 * HOST_NCCL_EAGER=1 it is done when its last byte is under way. */
#include "tests/host_nccl/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the connection of ranks before a launch ---- */

static bool is_message(const struct part *p) {
    return p->kind == PART_SEND || p->kind == PART_RECV;
}

static struct peers_ring *ring_of(const struct kernel *k, const struct part *p) {
    const struct ncclComm *c = k->comm;
    return p->kind == PART_SEND ? peers_ring(c->peers, c->rank, p->root)
                                : peers_ring(c->peers, p->root, c->rank);
}

static bool connect_message(struct kernel *k, const struct part *p) {
    struct peers_ring *ring = ring_of(k, p);
    bool *known = p->kind == PART_SEND ? k->comm->sends_to : k->comm->receives_from;
    for (unsigned turn = 0; !known[p->root]; turn++) {
        known[p->root] = atomic_load(&ring->sender) != 0 && atomic_load(&ring->receiver) != 0;
        if (known[p->root]) break;
        if (comm_aborted(k->comm)) return false;
        host_pause(turn);
    }
    return true;
}

ncclResult_t kernel_connect(struct kernel *k) {
    const char *lazy = getenv("NCCL_RUNTIME_CONNECT");
    bool collective = false, wait = lazy == NULL || strcmp(lazy, "0") != 0, ok = true;
    struct host_fault f = host_call("connect");
    if (f.kind == HOST_FAULT_NCCL) return nccl_fail((ncclResult_t) f.code, "connect: as ordered");
    for (const struct part *p = k->parts; p != NULL; p = p->next) {
        if (!is_message(p)) collective = true;
        if (p->kind == PART_SEND) atomic_store(&ring_of(k, p)->sender, 1);
        if (p->kind == PART_RECV) atomic_store(&ring_of(k, p)->receiver, 1);
    }
    if (collective && !k->comm->connected) {
        k->comm->connected = true;
        ok = !wait || PEERS_BARRIER(k->comm->peers, connected, NULL, comm_aborted, k->comm);
    }
    for (const struct part *p = k->parts; p != NULL && ok; p = p->next)
        if (is_message(p)) ok = connect_message(k, p);
    return ok ? ncclSuccess : ncclInternalError;
}

/* ---- aborts, and exchanges of data between all ranks ---- */

/* Returns true if the kernel must end early, because its communicator is aborted. If another rank
 * has died, the kernel goes on spinning, and this function only sets the communicator's state to
 * ncclRemoteError, as NCCL does. */

static bool kernel_ends(void *comm) {
    struct ncclComm *c = comm;
    if (comm_aborted(c)) return true;
    int dead = peers_dead(c->peers);
    if (dead >= 0 && atomic_load(&c->async) != ncclRemoteError) {
        host_say("rank %d: the connection to rank %d is lost", c->rank, dead);
        comm_set_async(c, ncclRemoteError);
    }
    return false;
}

static void spin(struct ncclComm *c, bool abortable) {
    for (unsigned turn = 0; !abortable || !kernel_ends(c); turn++) host_pause(turn);
}

/* Waits until all ranks have called step() equally often. After step() returns true, each rank may
 * read what the other ranks published before they called step(). Returns false if the kernel must
 * end early. */
static bool step(struct ncclComm *c) {
    c->step++;
    return PEERS_BARRIER(c->peers, step, NULL, kernel_ends, c);
}

static void publish(struct ncclComm *c, size_t at, const void *from, size_t bytes) {
    memcpy(peers_chunk(c->peers, c->rank, c->step + 1) + at, from, bytes);
}

/* Multiplies the n elements that publish() has just put at the offset `at` by this rank's own
 * scalar, if the operator has one. NCCL, too, multiplies only the rank's own input
 * (device/common_kernel.h, PreOpSrcs), so the ranks may have different scalars. */
static void premultiply(struct ncclComm *c, const struct part *p, size_t at, size_t n) {
    struct arithmetic alone = p->how;
    char *chunk = peers_chunk(c->peers, c->rank, c->step + 1) + at;
    const void *from[1] = {chunk};
    if (alone.kind != ARITHMETIC_PRE_MUL_SUM) return;
    alone.ranks = 1;
    arithmetic_reduce(&alone, chunk, from, n);
}

/* Returns how to reduce elements that premultiply() has already multiplied. If the operator has a
 * scalar, this is a plain sum. Any other operator is returned as it is. */
static struct arithmetic after_premultiply(const struct part *p) {
    struct arithmetic how = p->how;
    if (how.kind == ARITHMETIC_PRE_MUL_SUM) how.kind = ARITHMETIC_SUM;
    return how;
}

static const char *published(struct ncclComm *c, int rank) {
    return peers_chunk(c->peers, rank, c->step);
}

/* ---- collectives ---- */

static uint32_t op_number(const struct part *p) { return (uint32_t) p->how.kind; }

static bool same_call(const struct peers_call *a, const struct peers_call *b) {
    return a->kind == b->kind && a->type == b->type && a->op == b->op && a->root == b->root &&
           a->count == b->count;
}

/* Returns true if all ranks have called the same collective. If they have not, the kernel spins
 * until it is aborted, and this function returns false. */
static bool agree(struct ncclComm *c, const struct part *p) {
    struct peers_call own = {(uint32_t) p->kind, (uint32_t) p->type, op_number(p),
                             (uint32_t) p->root, p->count};
    c->peers->ranks[c->rank].call[c->calls & 1] = own;
    if (!step(c)) return false;
    for (int r = 0; r < c->size; r++) {
        const struct peers_call *other = &c->peers->ranks[r].call[c->calls & 1];
        if (same_call(&own, other)) continue;
        host_say(
            "MISMATCH: rank %d runs %s of %zu elements and rank %d another call (kind %u, %llu "
            "elements): the kernels spin",
            c->rank, p->name, p->count, r, other->kind, (unsigned long long) other->count);
        spin(c, true);
        return false;
    }
    c->calls++;
    return true;
}

static void views_of(struct ncclComm *c, size_t at, const void **views) {
    for (int r = 0; r < c->size; r++) views[r] = published(c, r) + at;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Runs an all-reduce, reduce, broadcast or all-gather, chunk by chunk. In each exchange every rank
 * publishes one chunk, which all ranks can read; in a broadcast only the root does. */
static bool run_pieces(struct ncclComm *c, const struct part *p, const char *send, char *recv) {
    size_t size = arithmetic_size(p->type), most = PEERS_CHUNK / size;
    const struct arithmetic how = after_premultiply(p);
    const void **views = calloc((size_t) c->size, sizeof(*views));
    bool ok = views != NULL;
    for (size_t done = 0; ok && done < p->count; done += smaller(most, p->count - done)) {
        size_t n = smaller(most, p->count - done);
        bool gives = p->kind != PART_BROADCAST || c->rank == p->root;
        if (gives) publish(c, 0, send + done * size, n * size);
        if (gives) premultiply(c, p, 0, n);
        ok = step(c);
        if (!ok) break;
        views_of(c, 0, views);
        if (p->kind == PART_ALL_REDUCE || (p->kind == PART_REDUCE && c->rank == p->root))
            arithmetic_reduce(&how, recv + done * size, views, n);
        if (p->kind == PART_BROADCAST) memcpy(recv + done * size, views[p->root], n * size);
        for (int r = 0; p->kind == PART_ALL_GATHER && r < c->size; r++)
            memcpy(recv + ((size_t) r * p->count + done) * size, views[r], n * size);
    }
    free(views);
    return ok;
}

/* Runs a reduce-scatter. In each exchange every rank publishes one piece for each rank, and reduces
 * the pieces that all ranks have published for it. */
static bool run_reduce_scatter(struct ncclComm *c, const struct part *p, const char *send,
                               char *recv) {
    size_t size = arithmetic_size(p->type), most = PEERS_CHUNK / size / (size_t) c->size;
    const struct arithmetic how = after_premultiply(p);
    const void **views = calloc((size_t) c->size, sizeof(*views));
    bool ok = views != NULL;
    for (size_t done = 0; ok && done < p->count; done += smaller(most, p->count - done)) {
        size_t n = smaller(most, p->count - done);
        for (int r = 0; r < c->size; r++) {
            publish(c, (size_t) r * most * size, send + ((size_t) r * p->count + done) * size,
                    n * size);
            premultiply(c, p, (size_t) r * most * size, n);
        }
        ok = step(c);
        if (!ok) break;
        views_of(c, (size_t) c->rank * most * size, views);
        arithmetic_reduce(&how, recv + done * size, views, n);
    }
    free(views);
    return ok;
}

static size_t send_count(const struct ncclComm *c, const struct part *p) {
    if (p->kind == PART_RECV) return 0;
    if (p->kind == PART_BROADCAST && c->rank != p->root) return 0;
    return p->kind == PART_REDUCE_SCATTER ? p->count * (size_t) c->size : p->count;
}

static size_t recv_count(const struct ncclComm *c, const struct part *p) {
    if (p->kind == PART_SEND) return 0;
    if (p->kind == PART_REDUCE && c->rank != p->root) return 0;
    return p->kind == PART_ALL_GATHER ? p->count * (size_t) c->size : p->count;
}

/* Stores in *send and *recv the addresses at which the model accesses an operation's buffers.
 * Returns false, and poisons the CUDA context, if a buffer is in memory that a device cannot
 * access. */
static bool find_memory(const struct ncclComm *c, const struct part *p, const char **send,
                        char **recv) {
    size_t size = arithmetic_size(p->type), out = send_count(c, p), in = recv_count(c, p);
    *send = out > 0 ? host_memory_view(p->send, out * size) : NULL;
    *recv = in > 0 ? host_memory_view(p->recv, in * size) : NULL;
    if ((out == 0 || *send != NULL) && (in == 0 || *recv != NULL)) return true;
    char why[160];
    const void *bad = out > 0 && *send == NULL ? p->send : p->recv;
    (void) snprintf(why, sizeof(why), "%s touched %p, which is no memory of the device", p->name,
                    bad);
    host_poison(cudaErrorIllegalAddress, why);
    return false;
}

static bool run_collective(struct ncclComm *c, const struct part *p) {
    const char *send;
    char *recv;
    if (!agree(c, p) || !find_memory(c, p, &send, &recv)) return false;
    return p->kind == PART_REDUCE_SCATTER ? run_reduce_scatter(c, p, send, recv)
                                          : run_pieces(c, p, send, recv);
}

/* ---- sends and receives ---- */

struct message {
    const struct part *part;
    struct peers_ring *ring;
    char *at;
    size_t bytes, moved;
    uint64_t end; /* of a send: the value that ring->written has after the message's last byte */
    bool over;
};

static bool move_out(struct message *m, bool eager) {
    struct peers_ring *ring = m->ring;
    uint64_t written = atomic_load(&ring->written);
    size_t room = PEERS_RING - (size_t) (written - atomic_load(&ring->read));
    size_t n = smaller(room, m->bytes - m->moved), at = (size_t) (written % PEERS_RING);
    size_t first = smaller(n, PEERS_RING - at);
    memcpy(ring->data + at, m->at + m->moved, first);
    memcpy(ring->data, m->at + m->moved + first, n - first);
    m->moved += n;
    atomic_store(&ring->written, written + n);
    m->end = written + n;
    m->over = m->moved == m->bytes && (eager || atomic_load(&ring->read) >= m->end);
    return n > 0 || m->over;
}

static bool move_in(struct message *m) {
    struct peers_ring *ring = m->ring;
    uint64_t read = atomic_load(&ring->read);
    size_t there = (size_t) (atomic_load(&ring->written) - read);
    size_t n = smaller(there, m->bytes - m->moved), at = (size_t) (read % PEERS_RING);
    size_t first = smaller(n, PEERS_RING - at);
    memcpy(m->at + m->moved, ring->data + at, first);
    memcpy(m->at + m->moved + first, ring->data, n - first);
    m->moved += n;
    atomic_store(&ring->read, read + n);
    m->over = m->moved == m->bytes;
    return n > 0;
}

/* Returns true if a message may move data now, that is, if no earlier message between the same two
 * ranks in the same direction is unfinished. So these messages keep their order. */
static bool is_next(const struct message *list, const struct message *m) {
    for (const struct message *o = list; o < m; o++)
        if (!o->over && o->ring == m->ring && o->part->kind == m->part->kind) return false;
    return true;
}

static bool move_all(struct message *list, size_t count, bool eager, bool *over) {
    bool moved = false;
    *over = true;
    for (struct message *m = list; m < list + count; m++) {
        if (!m->over && is_next(list, m))
            moved |= m->part->kind == PART_SEND ? move_out(m, eager) : move_in(m);
        *over &= m->over;
    }
    return moved;
}

static bool run_messages(struct kernel *k, size_t count) {
    struct message *list = calloc(count, sizeof(*list)), *m = list;
    const char *text = getenv("HOST_NCCL_EAGER");
    bool eager = text != NULL && *text == '1', over = false, ok = list != NULL;
    for (const struct part *p = k->parts; ok && p != NULL; p = p->next) {
        const char *send = NULL;
        char *recv = NULL;
        if (!is_message(p)) continue;
        ok = find_memory(k->comm, p, &send, &recv);
        m->part = p;
        m->ring = ring_of(k, p);
        m->at = p->kind == PART_SEND ? (char *) (uintptr_t) send : recv;
        m->bytes = p->count * arithmetic_size(p->type);
        m++;
    }
    for (unsigned idle = 0; ok && !over; idle++) {
        if (move_all(list, count, eager, &over)) idle = 0;
        if (!over && kernel_ends(k->comm)) ok = false;
        if (!over) host_pause(idle);
    }
    free(list);
    return ok;
}

/* ---- kernels ---- */

/* Waits until no other kernel of the communicator runs, because a kernel that a graph launches is
 * not ordered after the communicator's other kernels. Returns false if the communicator is aborted.
 */
static bool take_turn(struct ncclComm *c) {
    for (unsigned turn = 0; pthread_mutex_trylock(&c->running) != 0; turn++) {
        if (comm_aborted(c)) return false;
        host_pause(turn);
    }
    return true;
}

void kernel_run(void *arg) {
    struct kernel *k = arg;
    struct ncclComm *c = k->comm;
    struct host_fault f = host_call("kernel");
    size_t messages = 0;
    host_count("kernels", 1);
    if (f.kind == HOST_FAULT_CUDA) {
        host_poison((cudaError_t) f.code, "a kernel failed, as ordered by HOST_NCCL_FAULT");
        return;
    }
    if (f.kind == HOST_FAULT_STALL || f.kind == HOST_FAULT_WEDGE)
        spin(c, f.kind == HOST_FAULT_STALL);
    if (comm_aborted(c) || !take_turn(c)) return;
    bool ok = true;
    for (const struct part *p = k->parts; ok && p != NULL; p = p->next) {
        if (is_message(p))
            messages++;
        else
            ok = run_collective(c, p);
    }
    if (ok && messages > 0) (void) run_messages(k, messages);
    (void) pthread_mutex_unlock(&c->running);
}

void kernel_free(void *arg) {
    struct kernel *k = arg;
    for (struct part *p = k->parts, *next; p != NULL; p = next) {
        next = p->next;
        free(p);
    }
    free(k);
}

size_t kernel_accesses(const struct kernel *k, struct host_access *out) {
    size_t count = 0;
    for (const struct part *p = k->parts; p != NULL; p = p->next) {
        size_t size = arithmetic_size(p->type);
        size_t sent = send_count(k->comm, p), received = recv_count(k->comm, p);
        if (sent > 0) out[count++] = (struct host_access){p->send, sent * size, false};
        if (received > 0) out[count++] = (struct host_access){p->recv, received * size, true};
    }
    return count;
}
