/* The user's key: implements key_internal.h, and remote_write_key() of remote.h. */
#include "remote/key_internal.h"

#include "base/cleanup.h"
#include "base/files/write_all.h"
#include "base/network/connect.h"
#include "base/time/clock.h"
#include "remote/remote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ANSWER_MS 10000 /* longest time in ms that the caller waits for the daemon's answer */

/* ---- at the caller ---- */

/* Stores the identity and the keys of one user in *out. This is the user of the first line of the
 * token file that is a user's key or a whole secret. A whole secret belongs to the user of this
 * process: a user who runs a daemon without root has such a token file. Returns 0; or a negative
 * errno, and sets err. */
static int take(const struct secure_keys *keys, struct user_key *out, struct cr_error *err) {
    struct account own;
    out->identity[0] = '\0';
    for (uint32_t i = 0; i < keys->count && out->identity[0] == '\0'; i++) {
        const struct secure_secret *s = &keys->secrets[i];
        if (s->role == 0) {
            int rc = account_of_uid(geteuid(), &own, err);
            if (rc < 0) return rc;
            (void) snprintf(out->identity, sizeof(out->identity), "%s", own.identity);
        } else if (s->role == SECURE_USER && strlen(s->run_id) < sizeof(out->identity)) {
            (void) snprintf(out->identity, sizeof(out->identity), "%s", s->run_id);
        }
    }
    out->count = out->identity[0] == '\0'
                     ? 0
                     : secure_keys_for(keys, SECURE_USER, out->identity, out->keys);
    if (out->count > 0) return 0;
    return cr_fail(err, -ENOENT, "it has no user's key; crun-agent key --role=user writes one");
}

static int take_file(const char *path, struct user_key *out, struct cr_error *err) {
    struct secure_ring *ring = NULL;
    int rc = secure_ring_open(path, &ring, err);
    if (rc < 0) return rc;
    rc = take(secure_ring_keys(ring), out, err);
    secure_ring_close(ring);
    return rc < 0 ? cr_wrap(err, "cannot use the key '%.300s'", path) : 0;
}

/* Connects to the local socket of a daemon. Returns the descriptor; or a negative errno, and sets
 * err. The daemon must run as root or as this process's user. Any other user could have created a
 * socket at this path, and could give out keys of a different cluster. */
static int connect_local(const char *path, struct cr_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    if (strlen(path) >= sizeof(address.sun_path)) {
        return cr_fail(err, -ENAMETOOLONG, "the path of the socket '%.300s' is too long", path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    CR_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0) {
        return cr_fail(err, -errno, "cannot get this user's key: no daemon answers at '%.300s' "
                       "(%s), and there is no ~/.config/crun/key; start 'crun-agent jobs' on this "
                       "host, or use --hosts, which needs no daemon", path, strerror(errno));
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
        (peer.uid == 0 || peer.uid == geteuid())) {
        return cr_take_fd(&fd);
    }
    return cr_fail(err, -EPERM, "cannot get this user's key: the daemon at '%.300s' runs as the "
                   "user %u, not as root", path, (unsigned) peer.uid);
}

/* Reads until the daemon closes the connection. Returns the number of bytes, which is below `cap`;
 * -EFBIG if `cap` bytes have come; or another negative errno. */
static ssize_t read_answer(int fd, char *text, size_t cap) {
    int64_t deadline_ms = cr_deadline_ms(ANSWER_MS);
    size_t len = 0;
    while (len < cap) {
        int rc = cr_wait_ready(fd, POLLIN, deadline_ms);
        if (rc < 0) return rc;
        ssize_t n = read(fd, text + len, cap - len);
        if (n < 0 && errno != EINTR) return -errno;
        if (n == 0) return (ssize_t) len;
        if (n > 0) len += (size_t) n;
    }
    return -EFBIG;
}

static int take_from_daemon(struct user_key *out, struct cr_error *err) {
    const char *path = key_socket();
    char text[2048];
    struct secure_keys keys;
    CR_AUTO_FD int fd = connect_local(path, err);
    if (fd < 0) return fd;
    ssize_t len = read_answer(fd, text, sizeof(text));
    int rc = (int) len;
    if (len == 0) rc = cr_fail(err, -EACCES, "it has none; its log says why");
    else if (len < 0) rc = cr_fail(err, rc, "%s", strerror(-rc));
    else rc = secure_keys_parse(text, (size_t) len, &keys, err);
    if (rc == 0) rc = take(&keys, out, err);
    explicit_bzero(text, sizeof(text));
    explicit_bzero(&keys, sizeof(keys));
    if (rc == 0) return 0;
    return cr_wrap(err, "cannot get this user's key from the daemon at '%.300s'", path);
}

const char *key_socket(void) {
    const char *given = getenv("CRUN_AGENT_SOCKET");
    return given != NULL && given[0] != '\0' ? given : REMOTE_SOCKET;
}

int key_find(struct user_key *out, struct cr_error *err) {
    const char *given = getenv("CRUN_USER_KEY"), *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char path[ACCOUNT_PATH_MAX] = "";
    struct stat st;
    if (given != NULL && given[0] != '\0') return take_file(given, out, err);
    if (config != NULL && config[0] != '\0') {
        (void) snprintf(path, sizeof(path), "%s/crun/key", config);
    } else if (home != NULL) {
        (void) snprintf(path, sizeof(path), "%s/.config/crun/key", home);
    }
    if (path[0] != '\0' && stat(path, &st) == 0) return take_file(path, out, err);
    return take_from_daemon(out, err);
}

/* ---- at the daemon ---- */

static int write_key(const char *token_file, const struct account *account, struct cr_buffer *out,
                     struct cr_error *err) {
    struct secure_ring *ring = NULL;
    int rc = secure_ring_open(token_file, &ring, err);
    if (rc < 0) return rc;
    rc = secure_key_write(secure_ring_keys(ring), SECURE_USER, account->identity, out);
    secure_ring_close(ring);
    if (rc == 0) return 0;
    return cr_fail(err, rc, "the token file '%.300s' has no secret from which the key of '%s' "
                   "follows", token_file, account->name);
}

int remote_write_key(const char *token_file, const char *name, struct cr_buffer *out,
                     struct cr_error *err) {
    struct account account;
    int rc = account_of_name(name, &account, err);
    return rc < 0 ? rc : write_key(token_file, &account, out, err);
}

int key_hand_out(int fd, const char *token_file, struct cr_error *err) {
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    struct account account;
    struct cr_buffer line = {0};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        return cr_fail_errno(err, "cannot tell who asks for a key");
    }
    int rc = account_of_uid(peer.uid, &account, err);
    if (rc == 0) rc = write_key(token_file, &account, &line, err);
    if (rc == 0) rc = cr_write_all(fd, line.data, line.len);
    if (line.data != NULL) explicit_bzero(line.data, line.len);
    cr_buffer_done(&line);
    return rc;
}
