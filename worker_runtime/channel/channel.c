/* Connects to the agent, and sends and receives packets.
 *
 * A worker must not hang if its agent is stopped (SIGSTOP) and so accepts no connection and reads
 * no packets. So connecting and sending have a time limit. */
#include "worker_runtime/channel/channel.h"

#include "worker_runtime/channel/channel_internal.h"
#include "worker_runtime/report/report.h"

#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define AGENT_ANSWERS_MS INT64_C(5000)

static atomic_bool channel_is_taken; /* true if a runtime of this process uses the channel */

/* Wakes the threads in worker_channel_wait_over() when another thread has read the packet OVER or
 * has closed the connection: the kernel does not wake them for a packet that another thread reads
 * first. Neither belongs to one channel, because a thread may still wait when its channel is
 * closed. */
static struct {
    atomic_int fd;        /* an eventfd, which is never read and never closed; 0: not made yet */
    atomic_int waiting;   /* number of threads that wait */
    atomic_uint closings; /* how often a connection was closed */
} waker;

static int make_waker(struct cr_error *why) {
    if (atomic_load(&waker.fd) != 0) return 0;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return cr_fail_errno(why, "reach the agent: make an eventfd");
    atomic_store(&waker.fd, fd);
    return 0;
}

static void wake_waiting_threads(void) {
    const uint64_t one = 1;
    if (atomic_load(&waker.waiting) == 0) return;
    (void) !write(atomic_load(&waker.fd), &one, sizeof(one));
}

/* ---- connecting ---- */

/* Parses the environment variable CRUN_AGENT, which is "<address>:<token>". The address is a Unix
 * socket address in Linux's abstract name space. */
static int read_variable(struct sockaddr_un *at, socklen_t *len, char token[CHANNEL_TOKEN_MAX],
                         struct cr_error *why) {
    const char *text = getenv(CHANNEL_VARIABLE);
    if (text == NULL || text[0] == '\0') {
        return cr_fail(why, -ENOENT, CHANNEL_VARIABLE " is not set");
    }
    const char *colon = strrchr(text, ':');
    size_t name_len = colon != NULL ? (size_t) (colon - text) : 0;
    if (name_len == 0 || name_len >= CHANNEL_ADDRESS_MAX ||
        strlen(colon + 1) != CHANNEL_TOKEN_MAX - 1) {
        return cr_fail(why, -EINVAL,
                       "reach the agent: " CHANNEL_VARIABLE "='%.100s' is not an address", text);
    }
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path + 1, text, name_len);
    *len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + name_len);
    (void) stpcpy(token, colon + 1);
    return 0;
}

/* Returns true if the process at the other end of the connection runs as root or as this process's
 * user. This is checked because any user can listen at the agent's abstract address once the agent
 * no longer listens at it. */
static bool is_trusted(int fd) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) return false;
    return peer.uid == 0 || peer.uid == getuid() || peer.uid == geteuid();
}

static int connect_to(struct worker_channel *c, const struct sockaddr_un *at, socklen_t len,
                      struct cr_error *why) {
    c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    /* SO_SNDTIMEO limits the time of connect() and of each send(). */
    struct timeval limit = {.tv_sec = AGENT_ANSWERS_MS / 1000};
    if (c->fd >= 0) (void) setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *) at, len) < 0) {
        return cr_fail_errno(why, "reach the agent at '@%s'", at->sun_path + 1);
    }
    if (!is_trusted(c->fd)) {
        return cr_fail(why, -EACCES, "reach the agent at '@%s': another user listens there",
                       at->sun_path + 1);
    }
    return 0;
}

static int send_hello(struct worker_channel *c, const char *token) {
    struct channel_packet hello = {
        .type = CHANNEL_HELLO,
        .hello = {.version = CHANNEL_VERSION, .dump_signal = dump_install_handler()}};
    (void) stpcpy(hello.hello.token, token);
    return send(c->fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t) sizeof(hello) ? 0 : -errno;
}

/* ---- receiving the agent's answer ---- */

/* Waits until fd is readable (returns true) or the deadline has passed (returns false). A signal
 * that interrupts poll() does not end the wait. */
static bool is_readable(int fd, int64_t deadline_ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int n = 0;
    do {
        n = poll(&ready, 1, cr_poll_timeout(deadline_ms));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* Receives the agent's answer to HELLO into *p. The descriptor of the shared page comes with this
 * packet and is stored in *page_fd; if it is absent, *page_fd stays -1. */
static int receive_welcome(int fd, struct channel_packet *p, int *page_fd) {
    struct channel_packet raw;
    struct iovec part = {.iov_base = &raw, .iov_len = sizeof(raw)};
    union {
        struct cmsghdr align;
        /* room for one descriptor; the kernel closes any further descriptors of the packet */
        char room[CMSG_LEN(sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) return -errno;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(page_fd, CMSG_DATA(c), sizeof(int));
    }
    return channel_packet_decode(&raw, (size_t) n, p);
}

/* Returns true if the page's file is long enough. If it were too short, an access of the worker
 * beyond its end would raise SIGBUS. */
static bool is_long_enough(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && s.st_size >= CHANNEL_PAGE_SIZE;
}

/* Receives packets until one comes that is neither CHANGE nor STOP_AT, and stores that one in *p:
 * it should be WELCOME. If a change is announced, the agent sends it before WELCOME, so that this
 * worker makes no step without knowing of the change. */
static int receive_answer(struct worker_channel *c, struct channel_packet *p, int *page_fd,
                          struct cr_error *why) {
    int64_t deadline_ms = cr_deadline_ms(AGENT_ANSWERS_MS);
    for (;;) {
        if (!is_readable(c->fd, deadline_ms)) {
            return cr_fail(why, -ETIMEDOUT, "reach the agent: it does not answer; is it stopped?");
        }
        int rc = receive_welcome(c->fd, p, page_fd);
        if (rc < 0) {
            return cr_fail(why, rc,
                           "reach the agent: it closed the connection or sent a damaged packet");
        }
        if (p->type != CHANNEL_CHANGE && p->type != CHANNEL_STOP_AT) return 0;
        round_state_receive(&c->round, p, cr_monotonic_ms());
    }
}

static int receive_page(struct worker_channel *c, struct cr_error *why) {
    struct channel_packet p = {0};
    CR_AUTO_FD int page_fd = -1;
    int rc = receive_answer(c, &p, &page_fd, why);
    if (rc < 0) return rc;
    if (p.type == CHANNEL_REFUSED) {
        return cr_fail(why, -EACCES, "reach the agent: %s", p.text);
    }
    if (p.type != CHANNEL_WELCOME || page_fd < 0 || !is_long_enough(page_fd)) {
        return cr_fail(why, -EPROTO, "reach the agent: its answer is not a valid WELCOME packet");
    }
    void *page = mmap(NULL, CHANNEL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    if (page == MAP_FAILED) return cr_fail_errno(why, "reach the agent: map its page");
    c->page = page;
    return 0;
}

static int connect_to_agent(struct worker_channel *c, struct cr_error *why) {
    struct sockaddr_un at;
    socklen_t len = 0;
    char token[CHANNEL_TOKEN_MAX];
    int rc = read_variable(&at, &len, token, why);
    if (rc == 0) rc = make_waker(why);
    if (rc == 0) rc = connect_to(c, &at, len, why);
    if (rc < 0) return rc;
    rc = send_hello(c, token);
    if (rc < 0) {
        return cr_fail(why, rc, "reach the agent at '@%s': it closed the connection",
                       at.sun_path + 1);
    }
    return receive_page(c, why);
}

void worker_channel_open(struct worker_channel *c, struct cr_error *why) {
    *c = (struct worker_channel){.fd = -1};
    cr_error_clear(why);
    if (atomic_exchange(&channel_is_taken, true)) {
        (void) cr_fail(why, -EBUSY, "another runtime of this process has the channel to the agent");
        return;
    }
    int rc = connect_to_agent(c, why);
    if (rc < 0) {
        if (rc != -ENOENT) flight_set_agent(why->text);
        worker_channel_close(c);
        atomic_store(&channel_is_taken, false);
        return;
    }
    c->was_open = true;
    flight_set_agent("connected");
    dump_connect(c->fd, c->page);
}

/* Closes the connection. The page stays mapped, because on another thread the signal handler of
 * dump.c may still be reading it. */
void worker_channel_close(struct worker_channel *c) {
    if (dump_disconnect(c->fd)) {
        atomic_store(&channel_is_taken, false);
        flight_set_agent("gone");
    }
    int fd = atomic_exchange(&c->fd, -1);
    atomic_store(&c->page, NULL);
    (void) atomic_fetch_add(&waker.closings, 1);
    wake_waiting_threads();
    cr_close_fd(&fd);
}

/* ---- packets ---- */

int worker_channel_send(struct worker_channel *c, enum channel_type type, uint64_t id) {
    struct channel_packet p = {.type = (uint32_t) type, .id = id};
    if (c->fd < 0) return -ENOTCONN;
    ssize_t n = 0;
    do {
        n = send(c->fd, &p, sizeof(p), MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t) sizeof(p)) return 0;
    int rc = -errno;
    worker_channel_close(c);
    return rc;
}

int worker_channel_receive(struct worker_channel *c, int64_t deadline_ms,
                           struct channel_packet *p) {
    while (c->fd >= 0) {
        struct channel_packet raw;
        ssize_t n = recv(c->fd, &raw, sizeof(raw), MSG_DONTWAIT | MSG_TRUNC);
        if (n >= 0) {
            if (channel_packet_decode(&raw, (size_t) n, p) == 0) {
                if (p->type == CHANNEL_OVER) wake_waiting_threads();
                return 1;
            }
            break; /* the bytes are no valid packet; or n is 0, because the agent has closed the
                    * connection */
        }
        if (errno != EAGAIN && errno != EINTR) break;
        if (deadline_ms != CR_FOREVER && deadline_ms <= cr_monotonic_ms()) return 0;
        (void) is_readable(c->fd, deadline_ms);
    }
    worker_channel_close(c);
    return -ENOTCONN;
}

void worker_channel_read_all(struct worker_channel *c) {
    struct channel_packet p;
    uint32_t bell = atomic_load(&c->page->bell);
    while (worker_channel_receive(c, round_state_wait_until_ms(&c->round), &p) > 0) {
        round_state_receive(&c->round, &p, cr_monotonic_ms());
        if (c->round.is_refused) worker_channel_close(c);
    }
    c->bell_seen = bell;
    if (round_state_is_frozen(&c->round)) c->round.change = (struct channel_packet){0};
}

static int add_arrivals(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/* Returns an epoll descriptor that becomes ready when a packet arrives on fd, and when another
 * thread wakes this one. EPOLLET makes it ready once for each of these: without it, the descriptor
 * would stay ready until another thread has read the packet. On failure, returns a negative
 * errno. */
static int open_arrivals(int fd) {
    int arrivals = epoll_create1(EPOLL_CLOEXEC);
    if (arrivals < 0) return -errno;
    int rc = add_arrivals(arrivals, fd);
    if (rc == 0) rc = add_arrivals(arrivals, atomic_load(&waker.fd));
    if (rc == 0) return arrivals;
    (void) close(arrivals);
    return rc == -EBADF ? -ENOTCONN : rc;
}

/* Waits until `over` is set. The end of the round cannot be missed: the agent sets `over` before it
 * sends the packet OVER, and `arrivals` is opened before `over` is read. So if `over` is not set
 * yet, either OVER or the thread that reads OVER first makes `arrivals` ready. */
static int wait_over(const struct channel_page *page, int arrivals, unsigned closings,
                     int64_t deadline_ms) {
    while (atomic_load(&page->over) == 0) {
        struct epoll_event event;
        if (atomic_load(&waker.closings) != closings) return -ENOTCONN;
        int n = epoll_wait(arrivals, &event, 1, cr_poll_timeout(deadline_ms));
        if (n < 0 && errno != EINTR) return -errno;
        if (n > 0 && (event.events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0) return -ENOTCONN;
        if (n == 0 && deadline_ms != CR_FOREVER && deadline_ms <= cr_monotonic_ms())
            return -ETIMEDOUT;
    }
    return 1;
}

int worker_channel_wait_over(struct worker_channel *c, int64_t deadline_ms) {
    unsigned closings = atomic_load(&waker.closings);
    const struct channel_page *page = c->page;
    if (page == NULL) return -ENOTCONN;
    CR_AUTO_FD int arrivals = open_arrivals(c->fd);
    if (arrivals < 0) return arrivals;
    (void) atomic_fetch_add(&waker.waiting, 1);
    int rc = wait_over(page, arrivals, closings, deadline_ms);
    (void) atomic_fetch_sub(&waker.waiting, 1);
    return rc;
}

/* ---- groups ---- */

void worker_channel_show(struct worker_channel *c, const struct shown_group *group,
                         struct channel_group **entry) {
    size_t i = 0;
    *entry = NULL;
    while (i < CHANNEL_GROUPS_MAX && c->shown[i] != NULL) i++;
    if (c->page == NULL || i == CHANNEL_GROUPS_MAX) return;
    struct channel_group *g = &c->page->groups[i];
    g->place = group->place;
    g->size = group->size;
    size_t len = strnlen(group->name, sizeof(g->name) - 1);
    memcpy(g->name, group->name, len);
    memset(g->name + len, 0, sizeof(g->name) - len);
    atomic_store(&g->collective, 0);
    atomic_store(&g->message, 0);
    atomic_store(&g->since_ns, 0);
    atomic_store(&g->number, group->number + 1);
    c->shown[i] = entry;
    *entry = g;
}

void worker_channel_hide(struct worker_channel *c, struct channel_group **entry) {
    for (size_t i = 0; i < CHANNEL_GROUPS_MAX; i++) {
        if (c->shown[i] != entry) continue;
        c->shown[i] = NULL;
        atomic_store(&(*entry)->number, 0);
    }
    *entry = NULL;
}

void worker_channel_begin_round(struct worker_channel *c) {
    c->round = (struct round_state){0};
    for (size_t i = 0; i < CHANNEL_GROUPS_MAX; i++) {
        if (c->shown[i] != NULL) worker_channel_hide(c, c->shown[i]);
    }
}
