/* Makes and reads credentials of MUNGE: see munge_internal.h. libmunge is loaded at run time,
 * because only a task of Slurm needs it. */
#include "rendezvous/secure/munge_internal.h"

#include <errno.h>

#if __has_include(<munge.h>)
#include "base/memory.h"
#include "base/time/clock.h"

#include <dlfcn.h>
#include <munge.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* How long a caller waits for munged, in milliseconds: FIRST_CALL_MS at the start of the process,
 * CALL_MS for each credential. An answer normally comes within 1 ms. Nodes, relays, coordinators
 * and the stores of rounds wait on threads of libuv's pool, and operators on their only thread.
 * Without the limit, a munged that is stopped would occupy the threads of the pool for many
 * seconds, so that other work, such as resolving names, would have to wait. */
#define FIRST_CALL_MS 10000
#define CALL_MS       500

/* The text in each credential of crun begins with this label, so a credential that another program
 * has made for another purpose is refused. */
static const char label[] = "crun rendezvous credential 1";

#define TEXT_LEN (sizeof(label) + SECURE_KEY) /* bytes of the text: the label, its NUL, a secret */

/* F(NAME) stands for libmunge's function munge_NAME(). */
#define MUNGE_FUNCTIONS(F)                                                                         \
    F(encode) F(decode) F(strerror) F(ctx_create) F(ctx_destroy) F(ctx_strerror) F(ctx_get)        \
    F(ctx_set)

#define F(name) typedef __typeof__(munge_##name) name##_function;
MUNGE_FUNCTIONS(F)
#undef F

static struct { /* functions of the loaded library */
#define F(name) name##_function *(name);
    MUNGE_FUNCTIONS(F)
#undef F
} lib;

static char socket_path[256];
/* The uid of this process as munged sees it. In a user namespace it differs from geteuid(). */
static uid_t own_uid;
/* number of threads that still wait for munged although their callers have given up */
static atomic_int stuck_calls;

/* ---- one call of libmunge ---- */

enum purpose { LEARN_UID, MAKE, READ };

/* One call of libmunge, which a thread of its own makes. */
struct call {
    pthread_mutex_t lock; /* guards is_done and is_given_up */
    pthread_cond_t done;
    bool is_done;
    bool is_given_up; /* true: the caller has left, so the thread frees this structure */
    enum purpose purpose;
    uint8_t text[TEXT_LEN];
    char credential[SECURE_CREDENTIAL_MAX];
    uid_t uid; /* result of LEARN_UID */
    int result;
    struct cr_error err;
};

/* Stores the error `e` of libmunge in c->err, and returns it as a negative errno. */
static int fail_munge(struct call *c, munge_ctx_t ctx, munge_err_t e) {
    const char *text = lib.ctx_strerror(ctx);
    return cr_fail(&c->err, e == EMUNGE_NO_MEMORY ? -ENOMEM : e == EMUNGE_SOCKET ? -EIO : -EACCES,
                   "%.150s", text != NULL ? text : lib.strerror(e));
}

/* Sets the properties of a credential, so that they do not depend on the defaults of munged: it is
 * encrypted, and only this user can have it decoded. Any user can decode the credential of
 * LEARN_UID, because own_uid is not known yet; that credential carries no secret. */
static munge_err_t set_options(const struct call *c, munge_ctx_t ctx) {
    munge_err_t e = lib.ctx_set(ctx, MUNGE_OPT_CIPHER_TYPE, MUNGE_CIPHER_AES256);
    if (e == EMUNGE_SUCCESS) e = lib.ctx_set(ctx, MUNGE_OPT_MAC_TYPE, MUNGE_MAC_SHA256);
    if (e == EMUNGE_SUCCESS && c->purpose != LEARN_UID) {
        e = lib.ctx_set(ctx, MUNGE_OPT_UID_RESTRICTION, own_uid);
    }
    return e;
}

static int encode(struct call *c, munge_ctx_t ctx) {
    char *credential = NULL;
    munge_err_t e = set_options(c, ctx);
    if (e == EMUNGE_SUCCESS) e = lib.encode(&credential, ctx, c->text, TEXT_LEN);
    if (e != EMUNGE_SUCCESS) return fail_munge(c, ctx, e);
    size_t len = strlen(credential);
    if (len < sizeof(c->credential)) memcpy(c->credential, credential, len + 1);
    free(credential);
    if (len < sizeof(c->credential)) return 0;
    return cr_fail(&c->err, -EMSGSIZE, "a credential is too long");
}

/* Checks a decoded credential, which a process of the user `uid` has made, and stores its text in
 * c->text. Returns 0; or a negative errno, and sets c->err. */
static int take_text(struct call *c, munge_ctx_t ctx, const void *text, int len, uid_t uid) {
    uid_t restriction = 0;
    c->uid = uid;
    if (text == NULL || len != (int) TEXT_LEN || memcmp(text, label, sizeof(label)) != 0) {
        return cr_fail(&c->err, -EACCES, "the credential was not made by crun");
    }
    if (c->purpose == READ && uid != own_uid) {
        return cr_fail(&c->err, -EACCES, "user %u has made the credential", (unsigned) uid);
    }
    munge_err_t e = lib.ctx_get(ctx, MUNGE_OPT_UID_RESTRICTION, &restriction);
    if (c->purpose == READ && (e != EMUNGE_SUCCESS || restriction != own_uid)) {
        return cr_fail(&c->err, -EACCES, "other users can read the credential");
    }
    memcpy(c->text, text, TEXT_LEN);
    return 0;
}

static int decode(struct call *c, munge_ctx_t ctx) {
    void *text = NULL;
    int len = 0;
    uid_t uid = 0;
    gid_t gid;
    munge_err_t e = lib.decode(c->credential, ctx, &text, &len, &uid, &gid);
    int rc = e == EMUNGE_SUCCESS ? take_text(c, ctx, text, len, uid) : fail_munge(c, ctx, e);
    if (text != NULL) explicit_bzero(text, (size_t) len);
    free(text);
    return rc;
}

static int make_call(struct call *c) {
    munge_ctx_t ctx = lib.ctx_create();
    if (ctx == NULL) return cr_fail(&c->err, -ENOMEM, "out of memory");
    int rc = 0;
    if (lib.ctx_set(ctx, MUNGE_OPT_SOCKET, socket_path) != EMUNGE_SUCCESS) {
        rc = cr_fail(&c->err, -ENOMEM, "out of memory");
    }
    if (rc == 0 && c->purpose != READ) rc = encode(c, ctx);
    if (rc == 0 && c->purpose != MAKE) rc = decode(c, ctx);
    lib.ctx_destroy(ctx);
    return rc;
}

/* ---- with a limit of time ---- */

static void free_call(struct call *c) {
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    explicit_bzero(c, sizeof(*c));
    free(c);
}

static void *thread_main(void *arg) {
    struct call *c = arg;
    int rc = make_call(c);
    pthread_mutex_lock(&c->lock);
    c->result = rc;
    c->is_done = true;
    bool is_given_up = c->is_given_up;
    pthread_cond_signal(&c->done);
    pthread_mutex_unlock(&c->lock);
    if (is_given_up) {
        free_call(c);
        atomic_fetch_sub(&stuck_calls, 1);
    }
    return NULL;
}

/* Starts the thread of a call. All signals are blocked in that thread, because the main thread
 * handles them. Returns 0 or a positive errno. */
static int start_thread(struct call *c) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) return rc;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, thread_main, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* Waits until the thread of the call is done. Returns false if that takes too long; in that case
 * the thread frees the call. */
static bool await(struct call *c) {
    int64_t end_ms = cr_deadline_ms(c->purpose == LEARN_UID ? FIRST_CALL_MS : CALL_MS);
    struct timespec end = {.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->is_done && rc == 0) rc = pthread_cond_timedwait(&c->done, &c->lock, &end);
    bool is_done = c->is_done;
    c->is_given_up = !is_done;
    if (!is_done) atomic_fetch_add(&stuck_calls, 1);
    pthread_mutex_unlock(&c->lock);
    return is_done;
}

static struct call *new_call(enum purpose purpose) {
    pthread_condattr_t attr;
    struct call *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->purpose = purpose;
    memcpy(c->text, label, sizeof(label));
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->done, &attr);
    pthread_condattr_destroy(&attr);
    return c;
}

/* Runs a call in a thread of its own, and waits for it. Returns its result, after which the caller
 * frees *c; or a negative errno, with *c set to NULL, if there is no result. Sets err on error.
 * Fails at once while the thread of an earlier call still waits for munged. */
static int run_call(struct call **c, struct cr_error *err) {
    int rc = atomic_load(&stuck_calls) > 0 ? ETIMEDOUT : start_thread(*c);
    if (rc != 0) free_call(*c);
    else if (!await(*c)) rc = ETIMEDOUT;
    if (rc != 0) {
        *c = NULL;
        return rc == ETIMEDOUT ? cr_fail(err, -ETIMEDOUT, "munged does not answer at '%s'",
                                         socket_path)
                               : cr_fail(err, -rc, "cannot start a thread: %s", strerror(rc));
    }
    if ((*c)->result < 0) return cr_fail(err, (*c)->result, "%s", (*c)->err.text);
    return 0;
}

/* ---- the voucher ---- */

static int make(const uint8_t secret[SECURE_KEY], char out[SECURE_CREDENTIAL_MAX],
                struct cr_error *err) {
    struct call *c = new_call(MAKE);
    if (c == NULL) return cr_fail(err, -ENOMEM, "out of memory");
    memcpy(c->text + sizeof(label), secret, SECURE_KEY);
    int rc = run_call(&c, err);
    if (rc == 0) memcpy(out, c->credential, sizeof(c->credential));
    if (c != NULL) free_call(c);
    return rc < 0 ? cr_wrap(err, "MUNGE gives no credential") : 0;
}

static int read_credential(const char *credential, uint8_t secret[SECURE_KEY],
                           struct cr_error *err) {
    struct call *c = new_call(READ);
    if (c == NULL) return cr_fail(err, -ENOMEM, "out of memory");
    (void) snprintf(c->credential, sizeof(c->credential), "%s", credential);
    int rc = run_call(&c, err);
    if (rc == 0) memcpy(secret, c->text + sizeof(label), SECURE_KEY);
    if (c != NULL) free_call(c);
    return rc;
}

/* ---- finding libmunge and munged ---- */

/* Loads libmunge. Returns false, and sets err, if this host does not have it. */
static bool load(struct cr_error *err) {
    const struct {
        const char *name;
        void *place;
    } functions[] = {
#define F(name) {"munge_" #name, &lib.name},
        MUNGE_FUNCTIONS(F)
#undef F
    };
    void *handle = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) return cr_fail(err, -ENOENT, "libmunge.so.2 cannot be loaded"), false;
    for (size_t i = 0; i < CR_ARRAY_LEN(functions); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL) return cr_fail(err, -ENOENT, "libmunge lacks a function"), false;
        memcpy(functions[i].place, &address, sizeof(address));
    }
    return true;
}

/* Stores in socket_path the path of munged's socket. */
static void find_socket(void) {
    const char *given = getenv("MUNGE_SOCKET");
    char *usual = NULL;
    munge_ctx_t ctx = lib.ctx_create();
    if (ctx != NULL && (given == NULL || given[0] == '\0') &&
        lib.ctx_get(ctx, MUNGE_OPT_SOCKET, &usual) == EMUNGE_SUCCESS) {
        given = usual;
    }
    (void) snprintf(socket_path, sizeof(socket_path), "%s", given != NULL ? given : "");
    if (ctx != NULL) lib.ctx_destroy(ctx);
}

static int learn_uid(struct cr_error *err) {
    struct call *c = new_call(LEARN_UID);
    if (c == NULL) return cr_fail(err, -ENOMEM, "cannot use MUNGE: out of memory");
    int rc = run_call(&c, err);
    if (rc == 0) own_uid = c->uid;
    if (c != NULL) free_call(c);
    if (rc == 0) return 0;
    return cr_wrap(err, "cannot authenticate by MUNGE (give --rdzv-conf=auth=off to go without)");
}

int munge_find(const struct secure_voucher **out, struct cr_error *err) {
    static const struct secure_voucher voucher = {.make = make, .read = read_credential};
    struct stat st;
    *out = NULL;
    if (!load(err)) return 0;
    find_socket();
    if (stat(socket_path, &st) < 0) {
        (void) cr_fail(err, -ENOENT, "munged has no socket at '%.120s'", socket_path);
        return 0;
    }
    int rc = learn_uid(err);
    if (rc == 0) *out = &voucher;
    return rc;
}
#else
int munge_find(const struct secure_voucher **out, struct cr_error *err) {
    *out = NULL;
    (void) cr_fail(err, -ENOTSUP, "this crun was built without libmunge-dev");
    return 0;
}
#endif
