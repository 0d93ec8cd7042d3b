/* Starts, measures and ends the servers that the store benchmark compares: see store_peers.h. */
#include "tests/bench/store_peers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVER_CORE 1

void pin_to_core(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t) core, &set);
    (void) sched_setaffinity(0, sizeof(set), &set); /* on failure, the process runs unpinned */
}

/* ---- the floor: an epoll loop that sends back what it received ---- */

static void echo_broadcast(int epoll, int from, int highest) {
    (void) epoll;
    for (int fd = from + 1; fd <= highest; fd++)
        (void) send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void echo_serve(int listener) {
    static char buffer[256 << 10];
    int epoll = epoll_create1(0), highest = listener, first = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[1024];
    (void) epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(epoll, events, 1024, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    if (first == 0) first = fd;
                    if (fd > highest) highest = fd;
                    event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
                    (void) epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
                }
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
            if (got > 0 && (unsigned char) buffer[0] == ECHO_BROADCAST) {
                echo_broadcast(epoll, first, highest);
            } else if (got > 0) {
                (void) send(fd, buffer, (size_t) got, MSG_NOSIGNAL);
            } else if (got == 0 || errno != EAGAIN) {
                (void) close(fd);
            }
        }
    }
}

static int listen_anywhere(uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, 65535) < 0) {
        perror("cannot listen");
        exit(1);
    }
    (void) getsockname(fd, (struct sockaddr *) &address, &len);
    *port = ntohs(address.sin_port);
    return fd;
}

/* ---- starting a server ---- */

/* Forks a child on the server's core, with its stdout in a pipe whose reading end is stored in
 * *out. The kernel kills the child when this process dies. Returns 0 in the child. */
static pid_t fork_server(int *out) {
    int ends[2];
    if (pipe(ends) < 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin_to_core(SERVER_CORE);
        (void) dup2(ends[1], STDOUT_FILENO);
        (void) close(ends[0]);
        (void) close(ends[1]);
        return 0;
    }
    (void) close(ends[1]);
    *out = ends[0];
    return pid;
}

static bool torch_is_greeted;

bool peer_is_greeted(enum peer_kind kind) {
    return kind == PEER_OURS || (kind == PEER_TORCH && torch_is_greeted);
}

/* Returns the port at the end of the first line that the server prints, or 0 if there is none. A
 * torch that requires the greeting says so at the start of this line. */
static uint16_t read_port(int fd) {
    char line[256];
    FILE *f = fdopen(fd, "r");
    char *got = fgets(line, sizeof(line), f);
    char *colon = got == NULL ? NULL : strrchr(line, ':');
    (void) fclose(f);
    if (got != NULL && strncmp(line, "greeted", strlen("greeted")) == 0) torch_is_greeted = true;
    return colon == NULL ? 0 : (uint16_t) atoi(colon + 1);
}

/* Torch's server looks up the host name of each client that connects, and does nothing else
 * meanwhile. A name server that answers slowly or not at all would be measured in its place, so the
 * process looks only into /etc/hosts. */
static const char torch_program[] =
    "import ctypes, signal, torch, torch.distributed as d\n"
    "ctypes.CDLL(None).__nss_configure_lookup(b'hosts', b'files')\n"
    "s = d.TCPStore('127.0.0.1', 0, None, True, wait_for_workers=False)\n"
    "version = tuple(int(n) for n in torch.__version__.split('.')[:2])\n"
    "print('%s:%d' % ('greeted' if version >= (2, 4) else 'port', s.port), flush=True)\n"
    "signal.pause()\n";

static void exec_ours(void) {
    const char *build = getenv("BUILD");
    char path[512];
    (void) snprintf(path, sizeof(path), "%s/bin/crun-store", build == NULL ? "build" : build);
    (void) execl(path, path, "serve", "--host", "127.0.0.1", (char *) NULL);
}

static void exec_torch(void) {
    const char *python = getenv("CRUN_TEST_TORCH_PYTHON");
    if (python == NULL) python = "/usr/bin/python3";
    (void) freopen("/dev/null", "w", stderr);
    (void) execl(python, python, "-c", torch_program, (char *) NULL);
}

/* Executes Redis. Redis cannot choose a free port by itself, so the caller passes one. */
static void exec_redis(uint16_t port) {
    char text[8];
    (void) snprintf(text, sizeof(text), "%u", port);
    (void) freopen("/dev/null", "w", stdout);
    (void) execlp("redis-server", "redis-server", "--port", text, "--bind", "127.0.0.1", "--save",
                  "", "--appendonly", "no", "--maxclients", "20000", "--tcp-backlog", "65535",
                  "--proto-max-bulk-len", "64mb", "--protected-mode", "no", (char *) NULL);
}

static int accepts(uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (struct sockaddr *) &address, sizeof(address));
    (void) close(fd);
    return rc == 0;
}

static void start_redis(struct peer *p) {
    int out;
    (void) close(listen_anywhere(&p->port));
    p->pid = fork_server(&out);
    if (p->pid == 0) {
        exec_redis(p->port);
        _exit(127);
    }
    (void) close(out);
    for (int i = 0; i < 500 && waitpid(p->pid, NULL, WNOHANG) == 0; i++) {
        if (accepts(p->port)) return;
        (void) usleep(10000);
    }
    p->pid = 0;
}

static void start_echo(struct peer *p) {
    int out, listener = listen_anywhere(&p->port);
    p->pid = fork_server(&out);
    if (p->pid == 0) echo_serve(listener);
    (void) close(out);
    (void) close(listener);
}

static void start_speaking(struct peer *p, void (*start)(void)) {
    int out;
    p->pid = fork_server(&out);
    if (p->pid == 0) {
        start();
        _exit(127);
    }
    p->port = read_port(out);
    if (p->port != 0) return;
    (void) waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

struct peer peer_start(enum peer_kind kind) {
    static const char *const names[PEER_COUNT] = {"crun-store", "torch", "redis", "echo"};
    struct peer p = {.kind = kind, .name = names[kind]};
    if (kind == PEER_OURS) start_speaking(&p, exec_ours);
    if (kind == PEER_TORCH) start_speaking(&p, exec_torch);
    if (kind == PEER_REDIS) start_redis(&p);
    if (kind == PEER_ECHO) start_echo(&p);
    return p;
}

void peer_stop(struct peer *p) {
    if (p->pid == 0) return;
    (void) kill(p->pid, SIGKILL);
    (void) waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

/* ---- CPU time and memory of a server ---- */

int64_t peer_cpu_ns(const struct peer *p) {
    char path[300];
    int64_t total = 0;
    (void) snprintf(path, sizeof(path), "/proc/%d/task", (int) p->pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL) return 0;
    struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        long long ns = 0;
        (void) snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int) p->pid,
                        entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f == NULL) continue;
        if (fscanf(f, "%lld", &ns) == 1) total += ns;
        (void) fclose(f);
    }
    (void) closedir(tasks);
    return total;
}

long peer_resident_kib(const struct peer *p) {
    char path[64];
    long pages = 0;
    (void) snprintf(path, sizeof(path), "/proc/%d/statm", (int) p->pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    if (fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    (void) fclose(f);
    return pages * 4;
}
