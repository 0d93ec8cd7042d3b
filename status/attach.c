/* Fetches snapshots: implements attach.h. */
#include "status/attach.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/network/address.h"
#include "base/network/connect.h"
#include "base/time/clock.h"
#include "contract/packet.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t) 64 << 20) /* largest size of a snapshot in bytes */
#define ASKED_MAX  ((size_t) 256)      /* largest number of crun processes that are asked */

/* ---- the crun processes of this host ---- */

static int connect_unix(const char *path, bool is_abstract, int type) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(path), skip = is_abstract ? 1 : 0;
    if (len + skip >= sizeof(to.sun_path)) return -ENAMETOOLONG;
    memcpy(to.sun_path + skip, path, len);
    socklen_t size = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + skip + len);
    CR_AUTO_FD int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *) &to, size) < 0) return -errno;
    return cr_take_fd(&fd);
}

/* Receives the packet SHOWN, the answer to LOOK. Returns the descriptor of the file that comes with
 * it, or a negative number on error. */
static int receive_shown(int fd) {
    struct channel_packet raw, p;
    struct iovec part = {.iov_base = &raw, .iov_len = sizeof(raw)};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    int file = -1;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        memcpy(&file, CMSG_DATA(c), sizeof(file));
    }
    bool is_shown =
        n > 0 && channel_packet_decode(&raw, (size_t) n, &p) == 0 && p.type == CHANNEL_SHOWN;
    if (!is_shown) cr_close_fd(&file);
    return file;
}

static json_t *read_snapshot(int file) {
    struct stat st;
    struct cr_buffer text = {0};
    json_t *snapshot = NULL;
    if (fstat(file, &st) < 0 || st.st_size <= 0 || (size_t) st.st_size > ANSWER_MAX) return NULL;
    size_t len = (size_t) st.st_size;
    if (cr_buffer_reserve(&text, len) == 0 && pread(file, text.data, len, 0) == (ssize_t) len) {
        snapshot = json_loadb(text.data, len, 0, NULL);
    }
    cr_buffer_done(&text);
    return snapshot;
}

_Static_assert((int) STATUS_ORDER_DUMP == (int) CHANNEL_ORDER_DUMP &&
                   (int) STATUS_ORDER_NOTICE == (int) CHANNEL_ORDER_NOTICE,
               "the orders go from one to the other as they are");

/* Connects to the crun at an abstract Unix address, and sends the packet LOOK, which requests a
 * snapshot and may contain an order. Returns the connection, or a negative errno. */
static int ask(const char *address, enum status_order order, int64_t left_ms) {
    struct channel_packet look = {
        .type = CHANNEL_LOOK, .id = (uint64_t) order, .change.left_ms = left_ms};
    CR_AUTO_FD int fd = connect_unix(address, true, SOCK_SEQPACKET);
    if (fd < 0) return fd;
    if (send(fd, &look, sizeof(look), MSG_NOSIGNAL) != (ssize_t) sizeof(look)) return -EPIPE;
    return cr_take_fd(&fd);
}

/* Receives the snapshot that answers LOOK. Returns a new reference; or NULL if no answer comes
 * before the deadline, or if the answer is no snapshot. */
static json_t *take_answer(int fd, int64_t deadline_ms) {
    if (cr_wait_ready(fd, POLLIN, deadline_ms) < 0) return NULL;
    CR_AUTO_FD int file = receive_shown(fd);
    return file >= 0 ? read_snapshot(file) : NULL;
}

static bool has_job(const json_t *snapshot, const char *run_id) {
    size_t i;
    const json_t *job;
    json_array_foreach(json_object_get(snapshot, "jobs"), i, job) {
        const char *id = json_string_value(json_object_get(job, "id"));
        if (run_id == NULL || (id != NULL && strcmp(id, run_id) == 0)) return true;
    }
    return false;
}

/* One crun that was asked. */
struct asked {
    int fd;
    char address[CHANNEL_ADDRESS_MAX + 1];
};

/* Sends LOOK to each crun of this host, but to at most ASKED_MAX of them. Returns the number of
 * crun processes to which it was sent. */
static size_t ask_all(struct asked *asked) {
    char line[512];
    size_t count = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f != NULL && count < ASKED_MAX && fgets(line, sizeof(line), f) != NULL) {
        struct asked *a = &asked[count];
        /* in a line of /proc/net/unix, the flags 00010000 mean that the socket listens, and the
         * type 0005 is SOCK_SEQPACKET */
        int n = sscanf(line, "%*s %*s %*s 00010000 0005 %*s %*s @%64s", a->address);
        if (n != 1 || strncmp(a->address, "crun-", 5) != 0) continue;
        a->fd = ask(a->address, STATUS_ORDER_NONE, 0);
        if (a->fd >= 0) count++;
    }
    if (f != NULL) (void) fclose(f);
    return count;
}

json_t *status_find(const char *run_id, int64_t timeout_ms) {
    json_t *found = json_array();
    int64_t deadline_ms = cr_deadline_ms(timeout_ms);
    struct asked *asked = calloc(ASKED_MAX, sizeof(*asked));
    size_t count = asked != NULL ? ask_all(asked) : 0;
    for (size_t i = 0; i < count; i++) {
        json_t *snapshot = take_answer(asked[i].fd, deadline_ms);
        cr_close_fd(&asked[i].fd);
        if (snapshot == NULL) continue;
        (void) json_object_set_new(snapshot, "socket", json_string(asked[i].address));
        if (has_job(snapshot, run_id)) (void) json_array_append(found, snapshot);
        json_decref(snapshot);
    }
    free(asked);
    return found;
}

int status_give_order(const char *socket, enum status_order order, int64_t left_ms,
                      int64_t timeout_ms) {
    CR_AUTO_FD int fd = ask(socket, order, left_ms);
    json_auto_t *answer = fd >= 0 ? take_answer(fd, cr_deadline_ms(timeout_ms)) : NULL;
    return answer != NULL ? 0 : -ESRCH;
}

/* ---- a status address ---- */

static int connect_tcp(const char *address, int64_t deadline_ms, int *out, struct cr_error *err) {
    struct cr_endpoint endpoint;
    struct sockaddr_storage to;
    socklen_t len;
    int rc = cr_endpoint_parse(address, 80, &endpoint, err);
    if (rc == 0) rc = cr_address_resolve(endpoint.host, endpoint.port, &to, &len, err);
    if (rc < 0) return rc;
    rc = cr_connect((struct sockaddr *) &to, len, deadline_ms, out);
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot connect to the status address '%.200s': %s", address,
                   strerror(-rc));
}

static int open_address(const char *address, int64_t deadline_ms, int *out, struct cr_error *err) {
    char host[512];
    if (strncmp(address, "unix:", 5) == 0) {
        int fd = connect_unix(address + 5, false, SOCK_STREAM);
        if (fd >= 0) return *out = fd, 0;
        return cr_fail(err, fd, "cannot connect to the status address '%.200s': %s", address,
                       strerror(-fd));
    }
    if (strncmp(address, "http://", 7) == 0) address += 7;
    (void) snprintf(host, sizeof(host), "%.*s", (int) strcspn(address, "/"), address);
    return connect_tcp(host, deadline_ms, out, err);
}

/* Appends all bytes to `out` that come until the server closes the connection. Returns 0 or a
 * negative errno. */
static int read_all(int fd, int64_t deadline_ms, struct cr_buffer *out) {
    for (;;) {
        int rc = cr_wait_ready(fd, POLLIN, deadline_ms);
        if (rc == 0) rc = cr_buffer_reserve(out, 65536);
        if (rc < 0) return rc;
        ssize_t n = recv(fd, out->data + out->len, 65536, 0);
        if (n < 0) return -errno;
        if (n == 0) return 0;
        out->len += (size_t) n;
        if (out->len > ANSWER_MAX) return -EMSGSIZE;
    }
}

/* Returns the snapshot in an HTTP answer, or NULL if the answer has none. The request was HTTP/1.0,
 * so the answer is not chunked. */
static json_t *parse_answer(const struct cr_buffer *in) {
    const char *end = in->len > 0 ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;
    if (end == NULL || in->len < 12 || memcmp(in->data, "HTTP/1.", 7) != 0 ||
        memcmp(in->data + 8, " 200", 4) != 0) {
        return NULL;
    }
    json_t *snapshot = json_loadb(end + 4, in->len - (size_t) (end + 4 - in->data), 0, NULL);
    if (json_is_array(json_object_get(snapshot, "jobs"))) return snapshot;
    json_decref(snapshot);
    return NULL;
}

int status_fetch(const char *address, int64_t timeout_ms, json_t **out, struct cr_error *err) {
    static const char request[] = "GET /status.json HTTP/1.0\r\nHost: crun\r\n\r\n";
    int64_t deadline_ms = cr_deadline_ms(timeout_ms);
    struct cr_buffer in = {0};
    CR_AUTO_FD int fd = -1;
    int rc = open_address(address, deadline_ms, &fd, err);
    if (rc < 0) return rc;
    ssize_t n = send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL);
    rc = n < 0 ? -errno : read_all(fd, deadline_ms, &in);
    *out = rc == 0 ? parse_answer(&in) : NULL;
    cr_buffer_done(&in);
    if (*out != NULL) return 0;
    return cr_fail(err, rc < 0 ? rc : -EPROTO, "no snapshot from '%.200s': %s", address,
                   rc < 0 ? strerror(-rc) : "what answers there is no status address of crun");
}
