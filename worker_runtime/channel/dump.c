/* Writes the flight record when the agent requests it: the agent sends a signal, whose handler
 * writes the record and sends a packet DUMPED to the agent.
 *
 * A signal is used, because a worker that hangs in a collective reads no packets. The handler can
 * interrupt any code of the program. So it calls only functions that POSIX allows in a handler, and
 * all data that it shares with other code of the library is atomic. */
#include "worker_runtime/channel/channel_internal.h"

#include "worker_runtime/report/report.h"

#include "base/text/parse.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define DUMP_SIGNAL_NAME "CRUNRT_DUMP_SIGNAL"
#define DUMP_SIGNAL      (SIGRTMIN + 5)

static struct {
    atomic_int fd;      /* connection on which DUMPED is sent; -1 if there is none */
    atomic_int running; /* number of running handlers, which may use fd and page */
    _Atomic(struct channel_page *) page;
} dump = {.fd = -1};

static void report(int fd, const struct channel_page *page, int rc) {
    struct channel_packet p = {.type = CHANNEL_DUMPED, .id = atomic_load(&page->dump_id)};
    const char *path = rc == 0 ? flight_path() : "";
    (void) strncpy(p.text, path, sizeof(p.text) - 1); /* the last byte of p.text stays NUL */
    (void) send(fd, &p, sizeof(p), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_dump_signal(int signum) {
    (void) signum;
    int saved = errno;
    int rc = flight_dump(NULL, "requested by the agent");
    (void) atomic_fetch_add(&dump.running, 1);
    int fd = atomic_load(&dump.fd);
    const struct channel_page *page = atomic_load(&dump.page);
    if (fd >= 0 && page != NULL) report(fd, page, rc);
    (void) atomic_fetch_sub(&dump.running, 1);
    errno = saved;
}

int dump_install_handler(void) {
    const char *text = getenv(DUMP_SIGNAL_NAME);
    int64_t signum = DUMP_SIGNAL;
    struct sigaction now;
    if (text != NULL && cr_parse_i64(text, 0, SIGRTMAX, &signum) < 0) return 0;
    if (signum == 0 || sigaction((int) signum, NULL, &now) < 0) return 0;
    bool has_info = (now.sa_flags & SA_SIGINFO) != 0;
    if (!has_info && now.sa_handler == on_dump_signal) return (int) signum;
    if (has_info || now.sa_handler != SIG_DFL) return 0;
    struct sigaction ours = {.sa_handler = on_dump_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    (void) sigemptyset(&ours.sa_mask);
    return sigaction((int) signum, &ours, NULL) < 0 ? 0 : (int) signum;
}

void dump_connect(int fd, struct channel_page *page) {
    atomic_store(&dump.page, page);
    atomic_store(&dump.fd, fd);
}

bool dump_disconnect(int fd) {
    if (fd < 0 || atomic_load(&dump.fd) != fd) return false;
    atomic_store(&dump.fd, -1);
    while (atomic_load(&dump.running) > 0) (void) sched_yield();
    return true;
}
