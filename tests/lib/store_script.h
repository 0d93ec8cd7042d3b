/* Servers that follow a script, for the tests of the store's clients. A script contains each byte
 * that the client must send, and the server's answers. An answer in a script can be split, wrong,
 * late, cut off or too long.
 *
 * A script is a list of lines, and each line is one command for the server:
 *
 *     > HEX     receive exactly these bytes
 *     < HEX     send these bytes
 *     <1 HEX    send these bytes one by one
 *     e         wait until the client closes the connection; no byte may arrive before
 *     ~         discard all bytes and send nothing until the client closes the connection
 *     x         close the connection
 *     x!        reset the connection
 *
 * If other bytes arrive, the server stops, and the field `wrong` describes them. */
#ifndef TESTS_STORE_SCRIPT_H
#define TESTS_STORE_SCRIPT_H

#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCRIPT(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define SCRIPTS(...) ((const char *const *const[]){__VA_ARGS__, NULL})

/* ---- the server's end of one connection ---- */

struct peer {
    pthread_t thread;
    int fd;
    const char *const *script;
    char wrong[256]; /* text that describes the first difference from the script; "" if none */
};

static inline size_t from_hex(const char *hex, uint8_t *out, size_t max) {
    size_t n = 0;
    for (; *hex != '\0' && n < max; hex++) {
        if (*hex == ' ') continue;
        char pair[3] = {hex[0], hex[1], 0};
        out[n++] = (uint8_t) strtoul(pair, NULL, 16);
        hex++;
    }
    return n;
}

static inline void peer_expect(struct peer *p, const char *hex) {
    uint8_t want[1024], got[1024];
    size_t len = from_hex(hex, want, sizeof(want)), have = 0;
    while (have < len) {
        ssize_t n = recv(p->fd, got + have, len - have, 0);
        if (n <= 0) break;
        have += (size_t) n;
    }
    if (have == len && memcmp(got, want, len) == 0) return;
    size_t at = 0;
    while (at < have && got[at] == want[at]) at++;
    (void) snprintf(p->wrong, sizeof(p->wrong), "got %zu bytes, other at %zu, instead of %s", have,
                    at, hex);
}

static inline void peer_expect_end(struct peer *p) {
    uint8_t byte;
    if (recv(p->fd, &byte, 1, 0) > 0)
        (void) snprintf(p->wrong, sizeof(p->wrong), "got byte %02x instead of the end", byte);
}

static inline void peer_be_silent(struct peer *p) {
    uint8_t bytes[256];
    while (recv(p->fd, bytes, sizeof(bytes), 0) > 0) {
    }
}

static inline void peer_answer(struct peer *p, const char *hex, int one_by_one) {
    uint8_t bytes[1024];
    size_t len = from_hex(hex, bytes, sizeof(bytes));
    size_t step = one_by_one ? 1 : len;
    for (size_t i = 0; i < len; i += step) (void) send(p->fd, bytes + i, step, MSG_NOSIGNAL);
}

static inline void *peer_play(void *arg) {
    struct peer *p = arg;
    for (const char *const *line = p->script; *line != NULL && p->wrong[0] == '\0'; line++) {
        if ((*line)[0] == '>')
            peer_expect(p, *line + 1);
        else if ((*line)[0] == '<')
            peer_answer(p, *line + 2, (*line)[1] == '1');
        else if ((*line)[0] == 'e')
            peer_expect_end(p);
        else if ((*line)[0] == '~')
            peer_be_silent(p);
        else if ((*line)[1] == '!') {
            struct linger now = {1, 0};
            (void) setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        }
    }
    (void) close(p->fd);
    return NULL;
}

/* ---- a listener: plays one script per connection, from accept() on ---- */

#define SCRIPTS_MAX 8

struct listener {
    pthread_t thread;
    int fd;
    uint16_t port;
    const char *const *const *scripts; /* one script per connection, in the order of accept() */
    char wrong[256];
};

static inline void *listener_accept_all(void *arg) {
    struct listener *l = arg;
    struct peer peers[SCRIPTS_MAX];
    size_t count = 0;
    for (; l->scripts[count] != NULL && count < SCRIPTS_MAX; count++) {
        struct peer *p = &peers[count];
        *p = (struct peer){.fd = accept(l->fd, NULL, NULL), .script = l->scripts[count]};
        if (p->fd < 0 || pthread_create(&p->thread, NULL, peer_play, p) != 0) break;
    }
    for (size_t i = 0; i < count; i++) {
        (void) pthread_join(peers[i].thread, NULL);
        if (peers[i].wrong[0] != '\0') memcpy(l->wrong, peers[i].wrong, sizeof(l->wrong));
    }
    return NULL;
}

/* Binds a port without listening: connections to it are refused, and no other process can take
 * it. */
static inline void listener_bind(struct listener *l) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(l->fd, (struct sockaddr *) &a, sizeof(a)), 0);
    ck_assert_int_eq(getsockname(l->fd, (struct sockaddr *) &a, &len), 0);
    l->port = ntohs(a.sin_port);
}

static inline void serve(struct listener *l, const char *const *const *scripts) {
    *l = (struct listener){.scripts = scripts};
    listener_bind(l);
    ck_assert_int_eq(listen(l->fd, 8), 0);
    ck_assert_int_eq(pthread_create(&l->thread, NULL, listener_accept_all, l), 0);
}

/* Waits until all scripts have ended, and checks that no client deviated from its script. */
static inline void end_serving(struct listener *l) {
    ck_assert_int_eq(pthread_join(l->thread, NULL), 0);
    (void) close(l->fd);
    ck_assert_msg(l->wrong[0] == '\0', "the peer %s", l->wrong);
}

/* ---- handshakes ---- */

#define VALIDATE      "00 cef7853c"
#define LEGACY_ANSWER "> 06", "< 0000000000000000"
#define NOPING_ANSWER "> " VALIDATE " 07", "< 0000000000000000"

/* Writes `prefix`, and after it the client's nonce in hex, to `text`. A client's nonce is its
 * process id. */
static inline const char *with_nonce(char text[64], const char *prefix) {
    uint32_t pid = (uint32_t) getpid();
    (void) snprintf(text, 64, "%s %02x%02x%02x%02x", prefix, pid & 255, pid >> 8 & 255,
                    pid >> 16 & 255, pid >> 24);
    return text;
}

/* The script of an old server that receives VALIDATE. The old server reads these bytes as the
 * beginning of a SET and waits for the rest, until the client closes the connection. */
#define SILENT SCRIPT("~")

#endif
