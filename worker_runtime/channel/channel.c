/* Connecting to the agent, packets, and the flight record on its request.
 *
 * One link a process: it belongs to the first runtime that is made, since the agent knows one worker
 * by one token. A runtime without it does without. */
#include "worker_runtime/channel/channel.h"

#include "worker_runtime/report/report.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WELCOME_MS       INT64_C(5000) /* an agent on this host that needs longer is stopped */
#define DUMP_SIGNAL_NAME "CRUNRT_DUMP_SIGNAL"
#define DUMP_SIGNAL      (SIGRTMIN + 5)

static atomic_int link_taken;

/* What the dump's handler works with. */
static struct {
    atomic_int fd, running; /* handlers that may be using it */
    _Atomic(struct channel_page *) page;
} dump = {.fd = -1};

/* ---- the flight record on request ---- */

static void on_dump_signal(int signum) {
    int saved = errno, rc = flight_dump(NULL, "asked for by the agent");
    (void) signum;
    (void) atomic_fetch_add(&dump.running, 1);
    int fd = atomic_load(&dump.fd);
    struct channel_page *page = atomic_load(&dump.page);
    if (fd >= 0 && page != NULL) {
        struct channel_packet p = {.type = CHANNEL_DUMPED, .id = atomic_load(&page->dump_id)};
        const char *text = rc == 0 ? flight_path() : "nowhere: there is no place for it";
        (void) strncpy(p.text, text,
                       sizeof(p.text) - 1); /* safe in a handler; the last stays NUL */
        (void) send(fd, &p, sizeof(p), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    (void) atomic_fetch_sub(&dump.running, 1);
    errno = saved;
}

/* A signal that nobody handles, so that the program's own are left alone. 0 = none. */
static int install_dump_handler(void) {
    const char *text = getenv(DUMP_SIGNAL_NAME);
    int64_t signum = DUMP_SIGNAL;
    struct sigaction now;
    if (text != NULL && cr_parse_i64(text, 0, SIGRTMAX, &signum) < 0) return 0;
    if (signum == 0 || sigaction((int) signum, NULL, &now) < 0) return 0;
    if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == on_dump_signal) return (int) signum;
    if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return 0;
    struct sigaction ours = {.sa_handler = on_dump_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    (void) sigemptyset(&ours.sa_mask);
    return sigaction((int) signum, &ours, NULL) < 0 ? 0 : (int) signum;
}

/* ---- connecting ---- */

/* "<address>:<token>". */
static int read_variable(struct sockaddr_un *at, socklen_t *len, char token[CHANNEL_TOKEN_MAX],
                         struct cr_error *why) {
    const char *text = getenv(CHANNEL_VARIABLE);
    if (text == NULL || text[0] == '\0') return -ENOENT;
    const char *colon = strrchr(text, ':');
    size_t name_len = colon != NULL ? (size_t) (colon - text) : 0;
    if (name_len == 0 || name_len >= CHANNEL_ADDRESS_MAX || strlen(colon + 1) != CHANNEL_TOKEN_MAX - 1) {
        return cr_fail(why, -EINVAL, "reach the agent: " CHANNEL_VARIABLE "='%.100s' is no address",
                       text);
    }
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path + 1, text, name_len);
    *len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + name_len);
    (void) stpcpy(token, colon + 1);
    return 0;
}

/* Anybody may take an abstract name once its owner is gone. */
static int is_trusted(int fd) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) return 0;
    return peer.uid == 0 || peer.uid == getuid() || peer.uid == geteuid();
}

/* The page's descriptor comes with the packet. */
static int receive_welcome(int fd, struct channel_packet *p, int *page_fd) {
    struct iovec part = {.iov_base = p, .iov_len = sizeof(*p)};
    union {
        struct cmsghdr align;
        char room[CMSG_LEN(sizeof(int))]; /* for one and no more */
    } control;
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) return -errno;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c != NULL && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(page_fd, CMSG_DATA(c), sizeof(int));
    }
    return n == (ssize_t) sizeof(*p) ? 0 : -EPROTO;
}

/* Signals that the program handles do not end the wait. */
static int is_readable(int fd, int64_t deadline_ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int n = 0;
    do {
        n = poll(&ready, 1, cr_poll_timeout(deadline_ms));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* A shorter file would be a SIGBUS at the first step. */
static int is_page(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && s.st_size >= CHANNEL_PAGE_SIZE;
}

static int take_welcome(struct agent_link *l, struct cr_error *why) {
    struct channel_packet p = {0};
    CR_AUTO_FD int page_fd = -1;
    if (!is_readable(l->fd, cr_deadline_ms(WELCOME_MS))) {
        return cr_fail(why, -ETIMEDOUT, "reach the agent: it does not answer; is it stopped?");
    }
    int rc = receive_welcome(l->fd, &p, &page_fd);
    if (rc < 0) return cr_fail(why, rc, "reach the agent: it hung up");
    if (p.type == CHANNEL_REFUSED) {
        return cr_fail(why, -EACCES, "reach the agent: %.*s", CHANNEL_TEXT_MAX - 1, p.text);
    }
    if (p.type != CHANNEL_WELCOME || p.reserved != 0 || page_fd < 0 || !is_page(page_fd)) {
        return cr_fail(why, -EPROTO, "reach the agent: it answered with something else");
    }
    void *page = mmap(NULL, CHANNEL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    if (page == MAP_FAILED) return cr_fail_errno(why, "reach the agent: map its page");
    l->page = page;
    return 0;
}

static int say_hello(struct agent_link *l, const char *token) {
    struct channel_packet hello = {
        .type = CHANNEL_HELLO,
        .hello = {.version = CHANNEL_VERSION, .dump_signal = install_dump_handler()}};
    (void) stpcpy(hello.hello.token, token);
    return send(l->fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t) sizeof(hello) ? 0 : -errno;
}

static int connect_link(struct agent_link *l, struct cr_error *why) {
    struct sockaddr_un at;
    socklen_t len = 0;
    char token[CHANNEL_TOKEN_MAX];
    int rc = read_variable(&at, &len, token, why);
    if (rc < 0) return rc;
    l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    /* A stopped agent takes neither connections nor packets: no call of ours waits longer. */
    struct timeval limit = {.tv_sec = WELCOME_MS / 1000};
    if (l->fd >= 0) (void) setsockopt(l->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (l->fd < 0 || connect(l->fd, (struct sockaddr *) &at, len) < 0) {
        return cr_fail_errno(why, "reach the agent at '@%s'", at.sun_path + 1);
    }
    if (!is_trusted(l->fd)) {
        return cr_fail(why, -EACCES, "reach the agent at '@%s': another user listens there",
                       at.sun_path + 1);
    }
    rc = say_hello(l, token);
    if (rc < 0) return cr_fail(why, rc, "reach the agent at '@%s': it hung up", at.sun_path + 1);
    return take_welcome(l, why);
}

void agent_link_open(struct agent_link *l, struct cr_error *why) {
    *l = (struct agent_link){.fd = -1};
    cr_error_clear(why);
    if (atomic_exchange(&link_taken, 1) != 0) return;
    int rc = connect_link(l, why);
    if (rc < 0) {
        if (rc != -ENOENT) flight_set_agent(why->text);
        agent_link_close(l);
        atomic_store(&link_taken, 0);
        return;
    }
    flight_set_agent("connected");
    atomic_store(&dump.page, l->page);
    atomic_store(&dump.fd, l->fd);
}

/* The page stays mapped: the dump's handler may be in it. */
void agent_link_close(struct agent_link *l) {
    if (l->fd >= 0 && atomic_load(&dump.fd) == l->fd) {
        atomic_store(&dump.fd, -1);
        while (atomic_load(&dump.running) > 0) (void) sched_yield(); /* on another thread */
        atomic_store(&link_taken, 0);
        flight_set_agent("gone");
    }
    cr_close_fd(&l->fd);
    l->page = NULL;
}

/* ---- packets ---- */

int agent_link_send(struct agent_link *l, enum channel_type type, uint64_t id) {
    struct channel_packet p = {.type = (uint32_t) type, .id = id};
    if (l->fd < 0) return -ENOTCONN;
    ssize_t n = 0;
    do {
        n = send(l->fd, &p, sizeof(p), MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t) sizeof(p)) return 0;
    int code = -errno;
    agent_link_close(l);
    return code;
}

int agent_link_receive(struct agent_link *l, int64_t deadline_ms, struct channel_packet *p) {
    while (l->fd >= 0) {
        ssize_t n = recv(l->fd, p, sizeof(*p), MSG_DONTWAIT | MSG_TRUNC);
        if (n == (ssize_t) sizeof(*p) && p->reserved == 0) {
            p->text[sizeof(p->text) - 1] = '\0';
            return 1;
        }
        if (n >= 0 || (errno != EAGAIN && errno != EINTR)) break;
        if (deadline_ms != CR_FOREVER && deadline_ms <= cr_monotonic_ms()) return 0;
        (void) is_readable(l->fd, deadline_ms);
    }
    agent_link_close(l);
    return -ENOTCONN;
}
