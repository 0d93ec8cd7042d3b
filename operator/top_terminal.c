/* The terminal of crun-agent top: reads single keys, draws on the second screen, and runs programs
 * on the first one. It writes the escape sequences that every terminal since the VT100 knows, so it
 * needs no terminal library. */
#include "operator/top_internal.h"

#include "base/error.h"
#include "base/files/write_all.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* The state is at file scope, because a process has only one terminal, and because a signal handler
 * writes ended_by. */
static struct termios before;
static bool is_open;
static volatile sig_atomic_t ended_by; /* the signal that is to end the process; 0 if none came */
static char typed[16];                 /* bytes of keys that were read and are not handled yet */
static size_t typed_len;

/* Errors are ignored: a terminal to which a write fails could not show the error either. */
static void write_bytes(const char *text, size_t len) {
    (void) cr_write_all(STDOUT_FILENO, text, len);
}

static void write_text(const char *text) { write_bytes(text, strlen(text)); }

static void take_single_keys(void) {
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t) (ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    (void) tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void enter(void) {
    take_single_keys();
    write_text("\033[?1049h\033[?25l"); /* second screen, no cursor */
    is_open = true;
}

static void top_terminal_close(void) {
    if (!is_open) return;
    is_open = false;
    write_text("\033[?25h\033[?1049l");
    (void) tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void on_end(int signum) { ended_by = signum; } /* also interrupts poll() */
static void on_resize(int signum) { (void) signum; }  /* only interrupts poll() */

int top_terminal_open(void) {
    static const int ends[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
    struct sigaction resize = {.sa_handler = on_resize}, end = {.sa_handler = on_end};
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return -ENOTTY;
    if (tcgetattr(STDIN_FILENO, &before) < 0) return -errno;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        (void) sigaction(ends[i], &end, NULL);
    }
    (void) sigaction(SIGWINCH, &resize, NULL);
    enter();
    return 0;
}

void top_terminal_size(size_t *columns, size_t *rows) {
    struct winsize size = {0};
    (void) ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *columns = size.ws_col > 0 ? size.ws_col : 80;
    *rows = size.ws_row > 0 ? size.ws_row : 24;
}

/* Writes each line over the old one, then clears the rest of the old line, so that nothing
 * flickers. The last line is written without a newline, which would scroll the screen. */
void top_terminal_draw(const char *text, size_t len) {
    write_text("\033[H");
    if (len > 0 && text[len - 1] == '\n') len--;
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end != NULL ? (size_t) (end - text) : len;
        write_bytes(text, n);
        write_text(end != NULL ? "\033[K\r\n" : "\033[K");
        n += end != NULL ? 1 : 0;
        text += n;
        len -= n;
    }
    write_text("\033[J");
}

/* Removes one key from typed[] and returns it. Terminals send an arrow key as three bytes. */
static int take_key(void) {
    bool is_arrow = typed_len >= 3 && typed[0] == '\033' && (typed[1] == '[' || typed[1] == 'O');
    size_t size = is_arrow ? 3 : 1;
    int key = (unsigned char) typed[0];
    if (is_arrow) {
        key = typed[2] == 'A' ? TOP_KEY_UP : typed[2] == 'B' ? TOP_KEY_DOWN : TOP_KEY_NONE;
    }
    typed_len -= size;
    memmove(typed, typed + size, typed_len);
    return key;
}

int top_terminal_key(int timeout_ms) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (ended_by == 0 && typed_len > 0) return take_key();
    int rc = ended_by == 0 ? poll(&in, 1, timeout_ms) : 0;
    if (ended_by != 0) return -1;
    if (rc <= 0) return TOP_KEY_NONE;
    ssize_t n = read(STDIN_FILENO, typed, sizeof(typed));
    if (n <= 0) return n < 0 && errno == EINTR ? TOP_KEY_NONE : -1;
    typed_len = (size_t) n;
    return take_key();
}

void top_terminal_end(void) {
    top_terminal_close();
    if (ended_by == 0) return;
    (void) signal(ended_by, SIG_DFL);
    (void) raise(ended_by);
}

int top_terminal_run(const char *program, char *const argv[], bool waits) {
    pid_t pid;
    int status = 0;
    top_terminal_close();
    int rc = posix_spawnp(&pid, program, NULL, NULL, argv, environ);
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (waits) {
        take_single_keys();
        write_text("\r\n(press a key)");
        while (top_terminal_key(-1) == TOP_KEY_NONE) {}
        write_text("\r\n");
    }
    enter();
    if (rc == 0) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return -rc;
}
