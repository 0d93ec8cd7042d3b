/* What a process authenticates with: a token file (where it is, who may read it, and reading it
 * again when it has changed), or MUNGE. */
#include "rendezvous/secure/munge_internal.h"
#include "rendezvous/secure/primitives_internal.h"
#include "rendezvous/secure/secure.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "rendezvous/types.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* where a Kubernetes secret with the key `token` is mounted, as docs/security.md says */
#define KUBERNETES_PATH "/run/secrets/crun/token"

/* Results of stat(2). If one of them differs from that of an earlier call, the file was changed, or
 * is another one. */
struct fingerprint {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct secure_ring {
    char *path;
    struct fingerprint seen;
    bool is_fixed;       /* true: the file is not read again: it is a pipe, which can be read only
                          * once, or there is no file, because the ring uses MUNGE */
    bool is_broken;      /* true: the last try to read the changed file failed, which was logged */
    uint32_t next;       /* how many keys secure_ring_choose() skips, the newest first */
    struct secure_keys keys;
};

/* ---- reading ---- */

/* Returns 0 if only this user can read the file; else -EACCES and a text in err. A mounted
 * Kubernetes secret is accepted, too: it belongs to root, and the group that can read it is that of
 * the pod. */
static int check_owner(const struct stat *st, struct cr_error *err) {
    bool is_ours = st->st_uid == geteuid();
    if (!is_ours && st->st_uid != 0) {
        return cr_fail(err, -EACCES, "user %u owns it; only this user or root may",
                       (unsigned) st->st_uid);
    }
    if (st->st_mode & (S_IRWXO | S_IWGRP)) {
        return cr_fail(err, -EACCES,
                       "others can read it or write to it (mode %04o); chmod 600 it, or give a "
                       "Kubernetes secret defaultMode: 0440", (unsigned) st->st_mode & 07777);
    }
    if (is_ours && st->st_uid != 0 && (st->st_mode & S_IRGRP)) {
        return cr_fail(err, -EACCES, "its group can read it (mode %04o); chmod 600 it",
                       (unsigned) st->st_mode & 07777);
    }
    return 0;
}

/* Reads the whole file into text[0..SECURE_FILE_MAX]. Returns its length, or a negative errno and a
 * text in err. */
static ssize_t read_all(int fd, char *text, struct cr_error *err) {
    size_t len = 0;
    while (len <= SECURE_FILE_MAX) {
        ssize_t n = read(fd, text + len, SECURE_FILE_MAX + 1 - len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cr_fail_errno(err, "cannot read it");
        if (n == 0) return (ssize_t) len;
        len += (size_t) n;
    }
    return cr_fail(err, -EFBIG, "it has more than %zu bytes", SECURE_FILE_MAX);
}

static struct fingerprint fingerprint_of(const struct stat *st) {
    return (struct fingerprint){.device = st->st_dev, .inode = st->st_ino, .size = st->st_size,
                                .changed = st->st_ctim};
}

static bool is_same(const struct fingerprint *a, const struct fingerprint *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Reads an open file into ring->keys. Returns 0, or a negative errno and a text in err; on error
 * ring->keys stays as it is. */
static int read_open(struct secure_ring *ring, int fd, const struct stat *st,
                     struct cr_error *err) {
    CR_AUTO_FREE struct secure_keys *keys = malloc(sizeof(*keys));
    CR_AUTO_FREE char *text = malloc(SECURE_FILE_MAX + 1);
    if (keys == NULL || text == NULL) return cr_fail(err, -ENOMEM, "out of memory");
    int rc = check_owner(st, err);
    ssize_t len = rc == 0 ? read_all(fd, text, err) : rc;
    rc = len < 0 ? (int) len : secure_keys_parse(text, (size_t) len, keys, err);
    if (rc == 0) {
        ring->keys = *keys;
        ring->seen = fingerprint_of(st);
        ring->next = 0;
    }
    primitive_wipe(text, SECURE_FILE_MAX + 1);
    primitive_wipe(keys, sizeof(*keys));
    return rc;
}

static int read_file(struct secure_ring *ring, struct cr_error *err) {
    struct stat st;
    CR_AUTO_FD int fd = open(ring->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0) return cr_fail_errno(err, "cannot open it");
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
        return cr_fail(err, -EINVAL, "it is neither a file nor a pipe");
    }
    ring->is_fixed = S_ISFIFO(st.st_mode);
    return read_open(ring, fd, &st, err);
}

/* ---- the calls of secure.h ---- */

static struct secure_ring *new_ring(const char *path) {
    struct secure_ring *ring = calloc(1, sizeof(*ring));
    if (ring != NULL) ring->path = strdup(path);
    if (ring != NULL && ring->path != NULL) return ring;
    free(ring);
    return NULL;
}

int secure_ring_open(const char *path, struct secure_ring **out, struct cr_error *err) {
    if (!primitives_exist()) {
        return cr_fail(err, -ENOTSUP,
                       "cannot use the token file '%.300s': this crun was built without libsodium; "
                       "build it where libsodium-dev is installed", path);
    }
    struct secure_ring *ring = new_ring(path);
    if (ring == NULL) return cr_fail(err, -ENOMEM, "cannot read the token file: out of memory");
    int rc = read_file(ring, err);
    if (rc < 0) {
        secure_ring_close(ring);
        return cr_wrap(err, "cannot use the token file '%.300s'", path);
    }
    *out = ring;
    return 0;
}

const char *secure_token_path(const char *given) {
    struct stat st;
    if (given != NULL && given[0] != '\0') return given;
    return stat(KUBERNETES_PATH, &st) == 0 ? KUBERNETES_PATH : NULL;
}

/* why the last secure_ring_find() has not used MUNGE in a task of Slurm; "" = it was used, or was
 * not needed */
static char munge_absence[200];

/* Stores a ring that authenticates by MUNGE in *out, or NULL if this host has no MUNGE daemon.
 * Returns 0, or a negative errno and a text in err. */
static int find_munge(struct secure_ring **out, struct cr_error *err) {
    struct cr_error why = {0};
    const struct secure_voucher *voucher = NULL;
    int rc = 0;
    if (primitives_exist()) rc = munge_find(&voucher, &why);
    else (void) cr_fail(&why, -ENOTSUP, "this crun was built without libsodium");
    if (rc < 0) {
        if (err != NULL) *err = why;
        return rc;
    }
    if (voucher == NULL) {
        (void) snprintf(munge_absence, sizeof(munge_absence), "%.199s", why.text);
        return 0;
    }
    *out = new_ring("MUNGE");
    if (*out == NULL) return cr_fail(err, -ENOMEM, "cannot use MUNGE: out of memory");
    (*out)->keys.voucher = voucher;
    (*out)->is_fixed = true;
    return 0;
}

static bool is_task_of_slurm(void) {
    return getenv("SLURM_JOB_ID") != NULL && getenv("SLURM_PROCID") != NULL;
}

int secure_ring_find(int auth, const char *given, struct secure_ring **out, struct cr_error *err) {
    const char *path = secure_token_path(given);
    int rc = 0;
    *out = NULL;
    munge_absence[0] = '\0';
    if (auth == RENDEZVOUS_AUTH_OFF) return 0;
    if (path != NULL && auth != RENDEZVOUS_AUTH_MUNGE) return secure_ring_open(path, out, err);
    if (auth == RENDEZVOUS_AUTH_MUNGE || is_task_of_slurm()) rc = find_munge(out, err);
    if (rc < 0 || *out != NULL || auth == RENDEZVOUS_AUTH_AUTO) return rc;
    if (auth == RENDEZVOUS_AUTH_MUNGE) {
        return cr_fail(err, -EINVAL, "cannot start: auth=munge, but %s", munge_absence);
    }
    return cr_fail(err, -EINVAL,
                   "cannot start: auth=required, but there is no secret; give --rdzv-token-file "
                   "FILE, or set CRUN_RDZV_TOKEN_FILE%s%s",
                   munge_absence[0] != '\0' ? "; MUNGE is not used: " : "", munge_absence);
}

const char *secure_munge_absence(void) { return munge_absence; }

bool secure_ring_is_munge(const struct secure_ring *ring) { return ring->keys.voucher != NULL; }

/* If the file at ring->path is not the one that was read last, or has changed since, reads it
 * again. Kubernetes replaces a mounted secret by changing a symbolic link, which stat() follows. */
static void refresh(struct secure_ring *ring) {
    struct cr_error err = {0};
    struct stat st;
    if (ring->is_fixed) return;
    int rc = stat(ring->path, &st);
    if (rc == 0) {
        struct fingerprint now = fingerprint_of(&st);
        if (is_same(&now, &ring->seen)) return;
        rc = read_file(ring, &err);
        if (rc == 0) cr_info("the token file '%s' has changed and was read again", ring->path);
    } else {
        rc = cr_fail_errno(&err, "cannot find it");
    }
    if (rc < 0 && !ring->is_broken) {
        cr_warn("the token file '%s' has changed and cannot be used, so its old contents stay in "
                "use: %s", ring->path, err.text);
    }
    ring->is_broken = rc < 0;
}

const struct secure_keys *secure_ring_keys(struct secure_ring *ring) {
    refresh(ring);
    return &ring->keys;
}

int secure_ring_choose(struct secure_ring *ring, enum secure_role role, const char *run_id,
                       uint8_t key[SECURE_KEY], struct cr_error *err) {
    uint8_t found[SECURE_KEYS_MAX][SECURE_KEY];
    uint32_t count = secure_keys_for(secure_ring_keys(ring), role, run_id, found);
    if (count == 0) {
        return cr_fail(err, -ENOENT,
                       "the token file '%.300s' has neither a secret nor the %s's key of the job "
                       "'%.200s'", ring->path, role == SECURE_MEMBER ? "member" : "operator",
                       run_id);
    }
    memcpy(key, found[ring->next % count], SECURE_KEY);
    primitive_wipe(found, sizeof(found));
    return 0;
}

void secure_ring_refused(struct secure_ring *ring) { ring->next++; }

const char *secure_ring_path(const struct secure_ring *ring) { return ring->path; }

void secure_ring_close(struct secure_ring *ring) {
    if (ring == NULL) return;
    free(ring->path);
    primitive_wipe(ring, sizeof(*ring));
    free(ring);
}
