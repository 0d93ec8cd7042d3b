/* An allocator that fails on demand, for tests of how the programs behave when memory is short.
 *
 * The programs in build/tests/failing/ are crun's own programs, linked with this file and with the
 * linker's --wrap for every function below (see module.mk): a call of malloc() in crun's code
 * becomes a call of __wrap_malloc(), which either fails with ENOMEM or calls __real_malloc(). libuv
 * and jansson are shared libraries that --wrap does not reach; they get the same functions through
 * their own hooks. Memory still comes from the real allocator, so that sanitizers see it.
 *
 * Environment, read once at start and removed, so that children are not affected:
 *
 *   CRUN_TEST_FAIL_ALLOCATION=N     the N-th call (1, 2, …) of this process fails, once
 *   CRUN_TEST_FAIL_ALLOCATION=N+    the N-th call and all later ones fail
 *   CRUN_TEST_ALLOCATION_LOG=PATH   one line per call is appended:
 *                                   PID N FUNCTION ok|failed ADDRESS…
 *                                   with the return addresses in the program, innermost first, as
 *                                   offsets in the executable (addr2line -e PROGRAM ADDRESS). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

enum { FRAMES_MAX = 12, LINE_MAX_BYTES = 512 };

/* Weak symbols: they are NULL in a program that does not link libuv or jansson. */
extern __typeof__(uv_replace_allocator) uv_replace_allocator __attribute__((weak));
extern __typeof__(json_set_alloc_funcs) json_set_alloc_funcs __attribute__((weak));

/* Symbols that the linker defines: begin of the executable in memory, and end of its code. */
extern const char __executable_start[], etext[];

static atomic_ulong calls;
static unsigned long first_failure; /* number of the first call that fails, counted from 1; 0 if no
                                     * call fails */
static int all_later_fail;
static int log_fd = -1;

/* ---- counting the calls, and failing ---- */

struct line {
    char text[LINE_MAX_BYTES];
    size_t len;
};

static void add_text(struct line *l, const char *text) {
    while (*text != '\0' && l->len < sizeof(l->text)) l->text[l->len++] = *text++;
}

static void add_number(struct line *l, const char *before, unsigned long number, unsigned base) {
    char digits[32];
    char *at = &digits[sizeof(digits) - 1];
    *at = '\0';
    do *--at = "0123456789abcdef"[number % base];
    while ((number /= base) > 0);
    add_text(l, before);
    add_text(l, at);
}

/* Adds the return addresses of all callers to the line, innermost first, by following the frame
 * pointers, which all variants of crun's build keep. Shared libraries may lack frame pointers. So
 * addresses outside the executable are left out, and the walk stops at a frame pointer that cannot
 * be right. A wrong frame pointer that is not recognised as such points into the stack, so the walk
 * reads only mapped memory, but perhaps memory that the sanitizers forbid to read. */
__attribute__((no_sanitize("address", "thread", "undefined")))
static void add_callers(struct line *l) {
    void *const *frame = __builtin_frame_address(0);
    for (int i = 0; i < FRAMES_MAX; i++) {
        void *const *next = *frame;
        const char *caller = (const char *) frame[1];
        if (caller >= __executable_start && caller < etext) {
            add_number(l, " 0x", (unsigned long) (caller - __executable_start) - 1, 16);
        }
        if ((uintptr_t) next % sizeof(void *) != 0) return;
        if (next <= frame || (uintptr_t) next - (uintptr_t) frame > (1 << 20)) return;
        frame = next;
    }
}

static __attribute__((noinline)) void log_call(const char *function, unsigned long n, int failed) {
    struct line l = {.len = 0};
    add_number(&l, "", (unsigned long) getpid(), 10);
    add_number(&l, " ", n, 10);
    add_text(&l, " ");
    add_text(&l, function);
    add_text(&l, failed ? " failed" : " ok");
    add_callers(&l);
    add_text(&l, "\n");
    ssize_t written = write(log_fd, l.text, l.len);
    /* if write() fails, the log lacks a line, and the test that reads the log fails */
    (void) written;
}

static __attribute__((noinline)) int fails(const char *function) {
    unsigned long n = atomic_fetch_add(&calls, 1) + 1;
    int failed = first_failure != 0 && (all_later_fail ? n >= first_failure : n == first_failure);
    if (log_fd >= 0) log_call(function, n, failed);
    if (failed) errno = ENOMEM;
    return failed;
}

/* ---- the functions that the linker puts in place of the C library's ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
int __real_vasprintf(char **out, const char *fmt, va_list ap);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__real_fdopen(int fd, const char *mode);
FILE *__real_open_memstream(char **text, size_t *len);
DIR *__real_opendir(const char *path);
DIR *__real_fdopendir(int fd);
int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);
int __wrap_vasprintf(char **out, const char *fmt, va_list ap);
int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode);
FILE *__wrap_open_memstream(char **text, size_t *len);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_fdopendir(int fd);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);

void *__wrap_malloc(size_t size) { return fails("malloc") ? NULL : __real_malloc(size); }

void *__wrap_calloc(size_t count, size_t size) {
    return fails("calloc") ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return fails("realloc") ? NULL : __real_realloc(old, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size) {
    return fails("posix_memalign") ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails("aligned_alloc") ? NULL : __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *text) { return fails("strdup") ? NULL : __real_strdup(text); }

char *__wrap_strndup(const char *text, size_t len) {
    return fails("strndup") ? NULL : __real_strndup(text, len);
}

/* Simulates vasprintf(). The C library leaves *out undefined when vasprintf() fails, so this
 * function stores a bad pointer there: code that uses *out after a failure crashes. */
int __wrap_vasprintf(char **out, const char *fmt, va_list ap) {
    if (!fails("vasprintf")) return __real_vasprintf(out, fmt, ap);
    *out = (char *) 1;
    return -1;
}

int __wrap_asprintf(char **out, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = __wrap_vasprintf(out, fmt, ap);
    va_end(ap);
    return n;
}

FILE *__wrap_fopen(const char *path, const char *mode) {
    return fails("fopen") ? NULL : __real_fopen(path, mode);
}

FILE *__wrap_fdopen(int fd, const char *mode) {
    return fails("fdopen") ? NULL : __real_fdopen(fd, mode);
}

FILE *__wrap_open_memstream(char **text, size_t *len) {
    return fails("open_memstream") ? NULL : __real_open_memstream(text, len);
}

DIR *__wrap_opendir(const char *path) { return fails("opendir") ? NULL : __real_opendir(path); }

DIR *__wrap_fdopendir(int fd) { return fails("fdopendir") ? NULL : __real_fdopendir(fd); }

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out) {
    if (fails("getaddrinfo")) return EAI_MEMORY;
    return __real_getaddrinfo(node, service, hints, out);
}

/* ---- start ---- */

static void read_wish(const char *text) {
    char *end;
    if (text == NULL) return;
    first_failure = strtoul(text, &end, 10);
    all_later_fail = *end == '+';
}

static void open_log(const char *path) {
    if (path == NULL) return;
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log_fd >= 0) {
        /* Programs pass descriptors 3, 4, … to their children, so the log gets a higher one. */
        int high = fcntl(log_fd, F_DUPFD_CLOEXEC, 500);
        (void) close(log_fd);
        log_fd = high;
    }
}

/* Runs before main(): reads the environment, and makes libuv and jansson use the failing functions.
 * libuv keeps the real realloc(): when libuv cannot enlarge its table of watched descriptors, it
 * calls abort(), which no program can prevent. */
static __attribute__((constructor)) void begin(void) {
    read_wish(getenv("CRUN_TEST_FAIL_ALLOCATION"));
    open_log(getenv("CRUN_TEST_ALLOCATION_LOG"));
    (void) unsetenv("CRUN_TEST_FAIL_ALLOCATION");
    (void) unsetenv("CRUN_TEST_ALLOCATION_LOG");
    if (uv_replace_allocator != NULL) {
        (void) uv_replace_allocator(__wrap_malloc, __real_realloc, __wrap_calloc, free);
    }
    if (json_set_alloc_funcs != NULL) json_set_alloc_funcs(__wrap_malloc, free);
}
