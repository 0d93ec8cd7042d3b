/* A library for LD_PRELOAD: it changes what epoll_wait() does in a process with groups on gloo.
 *
 * IDLE_LOOP_MS=N: an idle loop of Gloo makes a turn only every N ms, instead of every 10 ms. So a
 * call that waits for such a turn takes N ms.
 * BUSY_LOOP_MS=N: a loop of Gloo pauses N ms before it handles an event. During the pause Gloo does
 * not close the connection that the event is about. At the end of the process the library writes
 * "watch: <n>": how often the thread that watches the connections of a group has been woken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

static atomic_int woken;

static int number(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : 0;
}

static const char *file_of(const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) != 0 ? info.dli_fname : "";
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    static int (*real)(int, struct epoll_event *, int, int);
    const char *file = file_of(__builtin_return_address(0));
    int is_loop = strstr(file, "libgloo") != NULL, is_watch = strstr(file, "/gloo.so") != NULL;
    int idle_ms = number("IDLE_LOOP_MS"), busy_ms = number("BUSY_LOOP_MS");
    if (real == NULL) *(void **) &real = dlsym(RTLD_NEXT, "epoll_wait");
    int n = real(fd, events, most, is_loop && idle_ms > 0 ? idle_ms : timeout);
    if (is_watch) atomic_fetch_add(&woken, 1);
    if (is_loop && n > 0 && busy_ms > 0)
        (void) nanosleep(&(struct timespec){busy_ms / 1000, busy_ms % 1000 * 1000000L}, NULL);
    return n;
}

__attribute__((destructor)) static void report(void) {
    if (number("BUSY_LOOP_MS") > 0) (void) fprintf(stderr, "watch: %d\n", atomic_load(&woken));
}
