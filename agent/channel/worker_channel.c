/* The agent's end of the channels. From top to bottom: one connection (sending, closing), the step
 * timeout, packets from workers, accepting connections, and the functions of worker_channel.h.
 *
 * Any process in the network namespace can connect to the socket. A connection from another user is
 * closed at once, unless it comes from a descendant of this process, such as a worker that has
 * changed its user. An accepted connection belongs to no worker until it has sent HELLO with the
 * token of a living worker; the number of such connections is limited (STRANGERS_MAX). */
#include "agent/channel/worker_channel.h"

#include "agent/process/nursery.h"
#include "base/cleanup.h"
#include "base/files/write_all.h"
#include "base/log/log_limit.h"
#include "base/text/token.h"
#include "base/time/clock.h"
#include "base/time/standstill.h"
#include "contract/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define STRANGERS_MAX 64 /* Limit of connections that have not sent HELLO yet, in addition to one
                          * per worker. Connections beyond the limit are refused. */
#define NO_RANK       UINT32_MAX
#define LIMIT_MAX_MS  (INT64_C(1000) * 3600 * 24 * 365)

struct channel {
    struct worker_channels *owner;
    uv_poll_t poll;
    int fd;
    uint32_t local_rank; /* local rank of the worker; NO_RANK until HELLO has come */
    int pidfd;           /* pidfd of the worker's process, for the dump signal; -1 if there is
                          * none */
    int dump_signal;
    struct channel_page *page; /* the worker's page; NULL until HELLO has come */
    /* The step timeout runs from the worker's last step, or from this time (ns, monotonic clock) if
     * this is later. INT64_MAX if no step timeout runs, because the worker is parked. */
    int64_t limit_since_ns;
    int64_t overdue_for_ns; /* due time (ns, monotonic clock) of the step that on_hung has last
                             * reported as overdue; 0 if it has reported none */
    LIST_ENTRY(channel) of_strangers;
};

LIST_HEAD(channel_list, channel);

struct slot {
    char token[CHANNEL_TOKEN_MAX]; /* the worker's token; "" if no worker has been started */
    struct channel *channel;
    /* value of stopped_for in the page when the worker's last channel was closed */
    uint64_t stopped_for;
    /* the worker's process groups, as the page showed them when its last channel was closed */
    struct progress groups[CHANNEL_GROUPS_MAX];
    size_t group_count;
    /* the worker's steps in this round, as its page showed them when its last channel was closed */
    struct worker_steps steps;
};

struct worker_channels {
    uv_loop_t *loop;
    struct worker_channel_events events;
    void *arg;
    int64_t limit_ms;
    char address[CHANNEL_ADDRESS_MAX];
    int fd;
    uv_poll_t accepting;
    uv_timer_t limit;
    int64_t limit_ns; /* time (ns, monotonic clock) for which the timer is set */
    struct slot *slots;
    uint32_t slot_count, strangers;
    struct channel_list stranger_list;
    struct cr_log_limit refusals; /* limits the rate of lines about refused connections */
    unsigned open_handles;
    void (*on_close)(void *arg);
};

/* ---- closing a channel and sending packets ---- */

static void free_if_closed(struct worker_channels *l) {
    if (l->open_handles > 0) return;
    void (*on_close)(void *) = l->on_close;
    void *arg = l->arg;
    free(l->slots);
    free(l);
    if (on_close != NULL) on_close(arg);
}

static void on_channel_closed(uv_handle_t *handle) {
    struct channel *k = handle->data;
    struct worker_channels *l = k->owner;
    cr_close_fd(&k->fd);
    free(k);
    l->open_handles--;
    free_if_closed(l);
}

static size_t read_groups(const struct channel_page *page, struct progress *out) {
    size_t count = 0;
    for (size_t i = 0; i < CHANNEL_GROUPS_MAX; i++)
        count += progress_read(&page->groups[i], &out[count]) ? 1 : 0;
    return count;
}

/* Closes a channel. Another channel can be opened for its local rank at once. The memory of the
 * closed channel is freed when the loop has closed its handle. */
static void cut_off(struct channel *k) {
    struct worker_channels *l = k->owner;
    if (k->local_rank == NO_RANK) {
        LIST_REMOVE(k, of_strangers);
        l->strangers--;
    } else {
        struct slot *slot = &l->slots[k->local_rank];
        if (k->page != NULL) slot->stopped_for = atomic_load(&k->page->stopped_for);
        if (k->page != NULL) slot->group_count = read_groups(k->page, slot->groups);
        if (k->page != NULL) worker_page_read_steps(k->page, &slot->steps);
        slot->channel = NULL;
    }
    if (k->page != NULL) (void) munmap(k->page, CHANNEL_PAGE_SIZE);
    cr_close_fd(&k->pidfd);
    uv_close((uv_handle_t *) &k->poll, on_channel_closed);
}

/* Sends a packet without blocking. A full socket is an error: packets are few and small, so a
 * socket is full only if the worker has stopped reading, and such a channel is of no use. */
static int send_packet(struct channel *k, const struct channel_packet *packet, int pass_fd) {
    struct iovec part = {.iov_base = (void *) packet, .iov_len = sizeof(*packet)};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof(control.room);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass_fd, sizeof(int));
    }
    ssize_t n = sendmsg(k->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == (ssize_t) sizeof(*packet) ? 0 : n < 0 ? -errno : -EIO;
}

static void refuse(struct channel *k, const char *why) {
    struct channel_packet no = {.type = CHANNEL_REFUSED};
    (void) snprintf(no.text, sizeof(no.text), "%s", why);
    (void) send_packet(k, &no, -1);
    cr_log_limited(&k->owner->refusals, CR_LOG_WARN,
                   "a worker's channel to the agent is refused: %s", why);
    cut_off(k);
}

/* ---- the step timeout ---- */

static int64_t limit_of(const struct channel *k) {
    int64_t own = atomic_load(&k->page->limit_ms);
    if (own <= 0) return k->owner->limit_ms;
    return own < LIMIT_MAX_MS ? own : LIMIT_MAX_MS;
}

/* Returns the time (ns, monotonic clock) at which the worker's next step becomes overdue; INT64_MAX
 * if no step timeout runs for the worker. */
static int64_t due_ns(const struct channel *k) {
    int64_t limit = limit_of(k), last = atomic_load(&k->page->stepped_ns), now = cr_monotonic_ns();
    if (limit <= 0 || k->limit_since_ns == INT64_MAX) return INT64_MAX;
    /* the worker has stopped for a change and saves, so it is not expected to make a step */
    if (atomic_load(&k->page->stopped_for) != 0) return INT64_MAX;
    if (last < k->limit_since_ns || last > now) last = k->limit_since_ns;
    return last + limit * CR_NS_PER_MS;
}

static void on_limit(uv_timer_t *timer);

/* Starts the timer for the earliest time at which a step may be overdue. Stops the timer if no step
 * can become overdue. */
static void arm_limit(struct worker_channels *l) {
    int64_t first = INT64_MAX, now = cr_monotonic_ns();
    for (uint32_t i = 0; i < l->slot_count; i++) {
        const struct channel *k = l->slots[i].channel;
        int64_t due = k != NULL ? due_ns(k) : INT64_MAX;
        if (k != NULL && due == k->overdue_for_ns) continue;
        if (due < first) first = due;
    }
    if (first == INT64_MAX) {
        (void) uv_timer_stop(&l->limit);
        return;
    }
    uint64_t wait_ms = first > now ? (uint64_t) ((first - now) / CR_NS_PER_MS) + 1 : 0;
    l->limit_ns = first > now ? first : now;
    (void) uv_timer_start(&l->limit, on_limit, wait_ms, 0);
}

/* Leaves out a time in which this process stood still, and perhaps the workers with it: they could
 * make no step, so their steps are due as much later. */
static void leave_out(struct worker_channels *l, int64_t gap_ms) {
    for (uint32_t i = 0; i < l->slot_count; i++) {
        struct channel *k = l->slots[i].channel;
        int64_t due = k != NULL ? due_ns(k) : INT64_MAX;
        if (due == INT64_MAX || due == k->overdue_for_ns) continue;
        k->limit_since_ns = due - limit_of(k) * CR_NS_PER_MS + gap_ms * CR_NS_PER_MS;
    }
}

static void on_limit(uv_timer_t *timer) {
    struct worker_channels *l = timer->data;
    int64_t now = cr_monotonic_ns();
    int64_t gap_ms = cr_standstill_ms((now - l->limit_ns) / CR_NS_PER_MS);
    if (gap_ms > 0) {
        leave_out(l, gap_ms);
        arm_limit(l);
        return;
    }
    for (uint32_t i = 0; i < l->slot_count; i++) {
        struct channel *k = l->slots[i].channel;
        int64_t due = k != NULL ? due_ns(k) : INT64_MAX;
        if (due > now || due == k->overdue_for_ns) continue;
        k->overdue_for_ns = due;
        l->events.on_hung(l->arg, i, atomic_load(&k->page->step), limit_of(k));
    }
    arm_limit(l);
}

/* ---- received packets ---- */

static struct slot *slot_of_token(struct worker_channels *l, const char *token) {
    for (uint32_t i = 0; i < l->slot_count; i++) {
        if (l->slots[i].token[0] != '\0' && strcmp(l->slots[i].token, token) == 0) {
            return &l->slots[i];
        }
    }
    return NULL;
}

/* Makes a page. Its seals prevent the worker from shrinking it: reading a mapping beyond the end of
 * its file would end the agent with SIGBUS. Returns the page's descriptor, or -1. */
static int make_page(struct channel_page **out) {
    int fd = memfd_create("crun-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (ftruncate(fd, CHANNEL_PAGE_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        cr_close_fd(&fd);
        return -1;
    }
    void *page = mmap(NULL, CHANNEL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) cr_close_fd(&fd);
    else *out = page;
    return fd;
}

/* Opens a pidfd of the process that has connected, for the dump signal. A signal that is sent by
 * pid could hit another process that has got the same pid later. */
static void find_process(struct channel *k, int dump_signal) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (dump_signal <= 0 || dump_signal >= NSIG) return;
    if (getsockopt(k->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0) return;
    k->pidfd = (int) syscall(SYS_pidfd_open, peer.pid, 0);
    k->dump_signal = dump_signal;
}

/* Completes the opening of a channel; page_fd is the page's descriptor, or -1. on_connected may
 * send packets to the worker, such as an announced change. They go before WELCOME, so that the
 * worker has them before it can make its first step. */
static void welcome(struct channel *k, int page_fd) {
    struct worker_channels *l = k->owner;
    struct channel_packet p = {.type = CHANNEL_WELCOME, .welcome.version = CHANNEL_VERSION};
    CR_AUTO_FD int fd = page_fd;
    uint32_t rank = k->local_rank;
    if (fd >= 0 && l->events.on_connected != NULL) l->events.on_connected(l->arg, rank);
    if (l->slots[rank].channel != k) return; /* a packet could not be sent, so k was closed */
    int rc = fd < 0 ? -ENOMEM : send_packet(k, &p, fd);
    if (rc == 0) {
        arm_limit(l);
        return;
    }
    cr_log_limited(&l->refusals, CR_LOG_WARN,
                   "cannot open the channel to the worker of local rank %u: %s", rank,
                   strerror(-rc));
    cut_off(k);
}

static void take_hello(struct channel *k, const struct channel_packet *p) {
    struct worker_channels *l = k->owner;
    if (p->hello.version != CHANNEL_VERSION) {
        refuse(k, "its worker runtime speaks another version of the channel than this crun");
        return;
    }
    struct slot *slot = slot_of_token(l, p->hello.token);
    if (slot == NULL) {
        refuse(k, "its token belongs to no living worker");
        return;
    }
    /* An earlier connection has sent HELLO with this token: the worker's process has since executed
     * another program, which now connects. The old channel is of no use. */
    if (slot->channel != NULL) cut_off(slot->channel);
    int page_fd = make_page(&k->page);
    LIST_REMOVE(k, of_strangers);
    l->strangers--;
    k->local_rank = (uint32_t) (slot - l->slots);
    slot->channel = k;
    k->limit_since_ns = cr_monotonic_ns();
    find_process(k, p->hello.dump_signal);
    welcome(k, page_fd);
}

/* Returns the descriptor of an anonymous file with this text, or -1. */
static int make_file(const char *text) {
    int fd = memfd_create("crun-snapshot", MFD_CLOEXEC);
    if (fd >= 0 && cr_write_all(fd, text, strlen(text)) < 0) cr_close_fd(&fd);
    return fd;
}

/* Handles the packet LOOK of crun-agent top: carries out the order in it, sends the snapshot, and
 * closes the connection. */
static void show(struct channel *k, const struct channel_packet *look) {
    struct worker_channels *l = k->owner;
    struct channel_packet shown = {.type = CHANNEL_SHOWN};
    enum channel_order order =
        look->id <= CHANNEL_ORDER_NOTICE ? (enum channel_order) look->id : CHANNEL_ORDER_NONE;
    CR_AUTO_FREE char *text = NULL;
    if (l->events.on_look != NULL) text = l->events.on_look(l->arg, order, look->change.left_ms);
    CR_AUTO_FD int fd = text != NULL ? make_file(text) : -1;
    if (fd >= 0) (void) send_packet(k, &shown, fd);
    cut_off(k);
}

static void take_packet(struct channel *k, const struct channel_packet *p) {
    struct worker_channels *l = k->owner;
    uint32_t rank = k->local_rank;
    if (rank == NO_RANK) {
        if (p->type == CHANNEL_HELLO) take_hello(k, p);
        else if (p->type == CHANNEL_LOOK) show(k, p);
        else refuse(k, "it did not begin with HELLO");
        return;
    }
    switch (p->type) {
    case CHANNEL_READY: l->events.on_ready(l->arg, rank, p->id); return;
    case CHANNEL_REJOIN:
        k->limit_since_ns = INT64_MAX;
        l->events.on_rejoin(l->arg, rank);
        return;
    case CHANNEL_DUMPED: l->events.on_dumped(l->arg, rank, p->id, p->text); return;
    case CHANNEL_LIMIT:
        k->limit_since_ns = cr_monotonic_ns();
        arm_limit(l);
        return;
    default: refuse(k, "it sent a packet of an unknown type");
    }
}

/* Reads one packet per call. The callback that handles the packet may close the channel, and a
 * closed channel must not be read. */
static void on_readable(uv_poll_t *poll, int status, int events) {
    struct channel *k = poll->data;
    struct channel_packet raw, p;
    (void) status, (void) events;
    ssize_t n = recv(k->fd, &raw, sizeof(raw), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        cut_off(k);
    } else if (channel_packet_decode(&raw, (size_t) n, &p) < 0) {
        refuse(k, "it sent something that is not a packet");
    } else {
        take_packet(k, &p);
    }
}

/* ---- listening and accepting ---- */

/* Returns whether the process at the other end may be a worker: its user is this process's or root,
 * or it is a descendant of this process. */
static bool may_be_worker(struct worker_channels *l, int fd) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) return false;
    if (peer.uid == geteuid() || peer.uid == 0 || nursery_is_descendant(peer.pid)) return true;
    cr_log_limited(&l->refusals, CR_LOG_WARN,
                   "a worker's channel to the agent is refused: process %d belongs to user %u",
                   (int) peer.pid, (unsigned) peer.uid);
    return false;
}

static void on_connection(uv_poll_t *poll, int status, int events) {
    struct worker_channels *l = poll->data;
    (void) status, (void) events;
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (!may_be_worker(l, fd)) {
        (void) close(fd);
        return;
    }
    struct channel *k = l->strangers < STRANGERS_MAX + l->slot_count ? calloc(1, sizeof(*k)) : NULL;
    if (k == NULL || uv_poll_init(l->loop, &k->poll, fd) < 0) {
        cr_log_limited(&l->refusals, CR_LOG_WARN,
                       "a worker's channel to the agent is refused: too many connections without a "
                       "HELLO, or no memory left");
        free(k);
        (void) close(fd);
        return;
    }
    k->owner = l;
    k->poll.data = k;
    k->fd = fd;
    k->pidfd = -1;
    k->local_rank = NO_RANK;
    l->open_handles++;
    l->strangers++;
    LIST_INSERT_HEAD(&l->stranger_list, k, of_strangers);
    (void) uv_poll_start(&k->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

static int listen_at(struct worker_channels *l) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char name[17];
    int rc = token_draw(name, 8);
    if (rc < 0) return rc;
    int n = snprintf(l->address, sizeof(l->address), "crun-%d-%s", (int) getpid(), name);
    memcpy(a.sun_path + 1, l->address, (size_t) n);
    socklen_t len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + (size_t) n);
    l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 || bind(l->fd, (struct sockaddr *) &a, len) < 0 || listen(l->fd, SOMAXCONN) < 0) {
        return -errno;
    }
    return 0;
}

/* ---- the calls of worker_channel.h ---- */

int worker_channels_open(uv_loop_t *loop, uint32_t workers, int64_t limit_ms,
                         const struct worker_channel_events *events, void *arg,
                         struct worker_channels **out, struct cr_error *err) {
    struct worker_channels *l = calloc(1, sizeof(*l));
    if (l != NULL) l->slots = calloc(workers, sizeof(*l->slots));
    if (l == NULL || l->slots == NULL) {
        free(l);
        return cr_fail(err, -ENOMEM, "cannot open the workers' channels: no memory left");
    }
    l->loop = loop;
    l->events = *events;
    l->arg = arg;
    l->limit_ms = limit_ms;
    l->slot_count = workers;
    l->fd = -1;
    l->refusals.about = "the workers' channels";
    int rc = listen_at(l);
    if (rc == 0) rc = uv_poll_init(loop, &l->accepting, l->fd);
    if (rc < 0) {
        (void) cr_fail(err, rc, "cannot open the workers' channel '@%s': %s", l->address,
                       strerror(-rc));
        cr_close_fd(&l->fd);
        free(l->slots);
        free(l);
        return rc;
    }
    (void) uv_timer_init(loop, &l->limit);
    l->accepting.data = l->limit.data = l;
    l->open_handles = 2;
    (void) uv_poll_start(&l->accepting, UV_READABLE, on_connection);
    *out = l;
    return 0;
}

int worker_channels_prepare(struct worker_channels *l, uint32_t local_rank,
                            char variable[WORKER_CHANNEL_VARIABLE_MAX]) {
    struct slot *s = &l->slots[local_rank];
    if (s->channel != NULL) cut_off(s->channel);
    s->stopped_for = 0;
    s->group_count = 0;
    s->steps = (struct worker_steps){0};
    int rc = token_draw(s->token, 16);
    if (rc < 0) return rc;
    (void) snprintf(variable, WORKER_CHANNEL_VARIABLE_MAX, CHANNEL_VARIABLE "=%s:%s", l->address,
                    s->token);
    return 0;
}

void worker_channels_read_page(const struct worker_channels *l, uint32_t local_rank,
                               struct worker_progress *out) {
    const struct slot *s = &l->slots[local_rank];
    *out = (struct worker_progress){.stopped_for = s->stopped_for};
    if (s->channel != NULL) worker_page_read(s->channel->page, out);
}

size_t worker_channels_read_groups(const struct worker_channels *l, uint32_t local_rank,
                                   struct progress *out) {
    const struct slot *s = &l->slots[local_rank];
    if (s->channel != NULL) return read_groups(s->channel->page, out);
    memcpy(out, s->groups, s->group_count * sizeof(*out));
    return s->group_count;
}

void worker_channels_read_steps(const struct worker_channels *l, uint32_t local_rank,
                                struct worker_steps *out) {
    const struct slot *s = &l->slots[local_rank];
    *out = s->steps;
    if (s->channel != NULL) worker_page_read_steps(s->channel->page, out);
}

int worker_channels_send(struct worker_channels *l, uint32_t local_rank,
                         const struct channel_packet *packet) {
    struct channel *k = l->slots[local_rank].channel;
    if (k == NULL) return -ENOTCONN;
    if (packet->type == CHANNEL_OVER) atomic_store(&k->page->over, 1);
    int rc = send_packet(k, packet, -1);
    if (rc < 0) cut_off(k);
    else (void) atomic_fetch_add(&k->page->bell, 1);
    return rc;
}

int worker_channels_ask_dump(struct worker_channels *l, uint32_t local_rank, uint64_t dump_id) {
    struct channel *k = l->slots[local_rank].channel;
    if (k == NULL) return -ENOTCONN;
    if (k->pidfd < 0) return -ENOTSUP;
    atomic_store(&k->page->dump_id, dump_id);
    return syscall(SYS_pidfd_send_signal, k->pidfd, k->dump_signal, NULL, 0) < 0 ? -errno : 0;
}

void worker_channels_begin_round(struct worker_channels *l, uint32_t local_rank) {
    struct channel *k = l->slots[local_rank].channel;
    l->slots[local_rank].stopped_for = 0;
    l->slots[local_rank].group_count = 0;
    l->slots[local_rank].steps = (struct worker_steps){0};
    if (k == NULL) return;
    worker_page_begin_round(k->page);
    k->limit_since_ns = cr_monotonic_ns();
    arm_limit(l);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct worker_channels *l = handle->data;
    l->open_handles--;
    free_if_closed(l);
}

void worker_channels_close(struct worker_channels *l, void (*on_close)(void *arg)) {
    l->on_close = on_close;
    cr_log_limit_end(&l->refusals);
    for (uint32_t i = 0; i < l->slot_count; i++) {
        if (l->slots[i].channel != NULL) cut_off(l->slots[i].channel);
    }
    while (!LIST_EMPTY(&l->stranger_list)) cut_off(LIST_FIRST(&l->stranger_list));
    cr_close_fd(&l->fd);
    uv_close((uv_handle_t *) &l->accepting, on_handle_closed);
    uv_close((uv_handle_t *) &l->limit, on_handle_closed);
}
