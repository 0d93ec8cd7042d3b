/* Reads the native stack of a process's main thread with libdw (elfutils). libdw is loaded by
 * dlopen() at the first use, so no program of crun is linked with it.
 *
 * The thread is stopped with PTRACE_SEIZE and PTRACE_INTERRUPT for some milliseconds. PTRACE_ATTACH
 * is not used, because it sends SIGSTOP to the thread: if this process died before the thread
 * reported the stop, the worker would stay stopped for good. */
#include "inspect/inspect_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES_MAX   48
#define STOP_MAX_S   1 /* longest time in seconds that a thread may take to stop */

/* ---- libdw: the part of its interface that is used here ---- */

typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Frame Dwfl_Frame;
typedef uint64_t Dwarf_Addr;

typedef struct { /* the names of the fields are libdw's */
    int (*find_elf)(Dwfl_Module *, void **, const char *, Dwarf_Addr, char **, void **);
    int (*find_debuginfo)(Dwfl_Module *, void **, const char *, Dwarf_Addr, const char *,
                          const char *, uint32_t, char **);
    int (*section_address)(Dwfl_Module *, void **, const char *, Dwarf_Addr, const char *,
                           uint32_t, const void *, Dwarf_Addr *);
    char **debuginfo_path;
} Dwfl_Callbacks;

static struct {
    Dwfl *(*begin)(const Dwfl_Callbacks *);
    void (*end)(Dwfl *);
    int (*report)(Dwfl *, pid_t);
    int (*report_end)(Dwfl *, void *, void *);
    int (*attach)(Dwfl *, pid_t, bool);
    int (*frames)(Dwfl *, pid_t, int (*)(Dwfl_Frame *, void *), void *);
    bool (*frame_pc)(Dwfl_Frame *, Dwarf_Addr *, bool *);
    Dwfl_Module *(*module_at)(Dwfl *, Dwarf_Addr);
    const char *(*name_at)(Dwfl_Module *, Dwarf_Addr);
    const char *(*module_info)(Dwfl_Module *, void ***, Dwarf_Addr *, Dwarf_Addr *, Dwarf_Addr *,
                               Dwarf_Addr *, const char **, const char **);
    const char *(*error)(int);
    int (*find_elf)(Dwfl_Module *, void **, const char *, Dwarf_Addr, char **, void **);
    char *(*demangle)(const char *, char *, size_t *, int *); /* NULL without libstdc++ */
} dw;

/* Stores the address of a symbol in the function pointer at `slot`. memcpy() is used because ISO C
 * has no conversion from an object pointer to a function pointer. */
static bool find(void *library, const char *name, void *slot) {
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static bool load(void) {
    static int state; /* 0: not tried yet; 1: loaded; -1: cannot be loaded */
    if (state != 0) return state > 0;
    state = -1;
    void *d = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (d == NULL) return false;
    bool found = find(d, "dwfl_begin", &dw.begin) && find(d, "dwfl_end", &dw.end) &&
                 find(d, "dwfl_linux_proc_report", &dw.report) &&
                 find(d, "dwfl_report_end", &dw.report_end) &&
                 find(d, "dwfl_linux_proc_attach", &dw.attach) &&
                 find(d, "dwfl_getthread_frames", &dw.frames) &&
                 find(d, "dwfl_frame_pc", &dw.frame_pc) &&
                 find(d, "dwfl_addrmodule", &dw.module_at) &&
                 find(d, "dwfl_module_addrname", &dw.name_at) &&
                 find(d, "dwfl_module_info", &dw.module_info) &&
                 find(d, "dwfl_errmsg", &dw.error) &&
                 find(d, "dwfl_linux_proc_find_elf", &dw.find_elf);
    if (!found) return false;
    void *cxx = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    if (cxx != NULL) (void) find(cxx, "__cxa_demangle", &dw.demangle);
    state = 1;
    return true;
}

/* libdw calls this function to find a file with debug information. It finds none, because libdw's
 * own search may ask a server on the network. A stack needs only the symbol tables and unwind
 * tables, which are in the programs themselves. */
static int find_no_debuginfo(Dwfl_Module *m, void **data, const char *name, Dwarf_Addr base,
                             const char *file, const char *link, uint32_t crc, char **out) {
    (void) m, (void) data, (void) name, (void) base, (void) file, (void) link, (void) crc;
    (void) out;
    return -1;
}

/* ---- names of functions ---- */

/* Cuts the parameters and the arguments of templates from a C++ name:
 * "c10d::Work::wait(std::chrono::duration<…>)" becomes "c10d::Work::wait". */
static void shorten(char *name) {
    size_t depth = 0, kept = 0;
    if (strncmp(name, "operator", 8) == 0) return;
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (name[i] == '(' && depth == 0 && kept > 0 && strncmp(name + i, "(anonymous", 10) != 0) {
            break;
        }
        if (name[i] == '<') depth++;
        if (depth == 0) name[kept++] = name[i];
        if (name[i] == '>' && depth > 0) depth--;
    }
    name[kept] = '\0';
}

static bool is_python(const char *module) {
    return strncmp(module, "libpython", 9) == 0 || strncmp(module, "python", 6) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    return slash != NULL ? slash + 1 : path != NULL ? path : "?";
}

/* What on_frame() has seen of a stack. */
struct walk {
    struct inspect_row *row;
    Dwfl *dwfl;
    int frames;
    bool in_python; /* true if the last frame belongs to the Python interpreter */
};

/* Appends the function of one frame to the stack. libdw calls this for each frame, the innermost
 * one first. Of consecutive functions of the Python interpreter only the first one is appended,
 * because the others depend on the version of Python, not on what the program does. */
static int on_frame(Dwfl_Frame *frame, void *arg) {
    struct walk *w = arg;
    Dwarf_Addr pc, start = 0;
    bool is_activation;
    char name[512];
    if (w->frames++ >= FRAMES_MAX || !dw.frame_pc(frame, &pc, &is_activation)) return 1;
    /* In all frames but the innermost one, pc is the return address, which is behind the call and
     * can belong to the next function in memory. The address pc - 1 is within the call. */
    if (!is_activation) pc--;
    Dwfl_Module *module = dw.module_at(w->dwfl, pc);
    const char *path = module == NULL ? NULL
                                      : dw.module_info(module, NULL, &start, NULL, NULL, NULL,
                                                       NULL, NULL);
    const char *symbol = module != NULL ? dw.name_at(module, pc) : NULL;
    bool python = is_python(base_name(path));
    if (python && w->in_python) return 0;
    w->in_python = python;
    if (symbol == NULL) {
        (void) snprintf(name, sizeof(name), "%.100s+0x%llx", base_name(path),
                        (unsigned long long) (pc - start));
        return inspect_add_function(w->row->native, name) ? 0 : 1;
    }
    int status = -1;
    char *plain = dw.demangle != NULL && strncmp(symbol, "_Z", 2) == 0
                      ? dw.demangle(symbol, NULL, NULL, &status) : NULL;
    (void) snprintf(name, sizeof(name), "%s", plain != NULL && status == 0 ? plain : symbol);
    if (plain != NULL) shorten(name);
    free(plain);
    name[strcspn(name, "@")] = '\0'; /* cuts the version, as in "poll@@GLIBC_2.2.5" */
    if (!inspect_add_function(w->row->native, name)) return 1;
    return strcmp(name, "main") == 0 ? 1 : 0; /* 0 continues with main()'s caller; 1 ends the stack
                                               * at main() */
}

/* ---- stopping the thread ---- */

static void on_alarm(int signum) { (void) signum; }

/* Waits until the thread has stopped, at most STOP_MAX_S. Returns true if it has stopped. */
static bool wait_stopped(pid_t tid) {
    /* SA_RESTART is not set, so that SIGALRM ends waitpid(). */
    struct sigaction action = {.sa_handler = on_alarm}, before;
    int status = 0;
    (void) sigaction(SIGALRM, &action, &before);
    unsigned left = alarm(STOP_MAX_S);
    pid_t found = waitpid(tid, &status, __WALL);
    (void) alarm(left);
    (void) sigaction(SIGALRM, &before, NULL);
    return found == tid && WIFSTOPPED(status);
}

static bool stop_thread(struct inspect_row *row) {
    pid_t tid = (pid_t) row->pid;
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
        inspect_note(row, "native stack: ptrace is forbidden (%s); see kernel.yama.ptrace_scope, "
                          "or give the container CAP_SYS_PTRACE",
                     strerror(errno));
        return false;
    }
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0 && wait_stopped(tid)) return true;
    inspect_note(row, "native stack: the process does not stop; it is inside of the kernel");
    /* This process is still attached to the thread. It ends soon, and the kernel then detaches it,
     * so the thread runs on. */
    return false;
}

static void read_frames(struct inspect_row *row) {
    static const Dwfl_Callbacks no_callbacks;
    Dwfl_Callbacks callbacks = no_callbacks;
    pid_t tid = (pid_t) row->pid;
    callbacks.find_elf = dw.find_elf;
    callbacks.find_debuginfo = find_no_debuginfo;
    struct walk w = {.row = row, .dwfl = dw.begin(&callbacks)};
    bool ok = w.dwfl != NULL && dw.report(w.dwfl, tid) == 0 &&
              dw.report_end(w.dwfl, NULL, NULL) == 0 && dw.attach(w.dwfl, tid, true) == 0;
    /* The result of dw.frames() is ignored, because for most stacks it is an error at the last
     * frame. */
    if (ok) (void) dw.frames(w.dwfl, tid, on_frame, &w);
    if (row->native[0] == '\0') inspect_note(row, "native stack: %s", dw.error(-1));
    if (w.dwfl != NULL) dw.end(w.dwfl);
}

/* Cuts the functions of the C library that call main(). */
static void cut_start(char *stack) {
    char *start = strstr(stack, INSPECT_CALLED_BY "__libc_start_main");
    if (start == NULL) return;
    *start = '\0';
    /* The C library has a function without a name between main() and __libc_start_main(). */
    char *last = strstr(stack, INSPECT_CALLED_BY "libc.so");
    if (last != NULL && strstr(last + 1, INSPECT_CALLED_BY) == NULL) *last = '\0';
}

void inspect_native_stack(struct inspect_row *row) {
    if (row->state == 'D' || row->state == 'Z' || row->state == 'X') return;
    if (!load()) {
        inspect_note(row, "native stack: libdw.so.1 (elfutils) is not installed");
        return;
    }
    if (!stop_thread(row)) return;
    read_frames(row);
    cut_start(row->native);
    (void) ptrace(PTRACE_DETACH, (pid_t) row->pid, NULL, NULL);
}
