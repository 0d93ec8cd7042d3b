/* Accounts of users: implements account_internal.h. */
#include "remote/account_internal.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ENTRY_MAX 16384 /* size in bytes of the buffer for the texts of one struct passwd */

static int copy(char *out, size_t size, const char *text) {
    return snprintf(out, size, "%s", text) < (int) size ? 0 : -ENAMETOOLONG;
}

/* Call this with the result of getpwuid_r() or getpwnam_r(): its return value `code`, and the entry
 * `found`, which is NULL if there is none. The function copies the entry to *out. `what` names the
 * account in error texts. Returns 0; -ENOENT if there is no such account; or another negative
 * errno. On error, sets err. */
static int take(int code, const struct passwd *found, const char *what, struct account *out,
                struct cr_error *err) {
    if (found == NULL) {
        return cr_fail(err, code != 0 ? -code : -ENOENT, "there is no account of the user '%s'%s%s",
                       what, code != 0 ? ": " : "", code != 0 ? strerror(code) : "");
    }
    *out = (struct account){.uid = found->pw_uid, .gid = found->pw_gid};
    int rc = copy(out->name, sizeof(out->name), found->pw_name);
    if (rc == 0) rc = copy(out->home, sizeof(out->home), found->pw_dir);
    if (rc == 0) rc = copy(out->shell, sizeof(out->shell), found->pw_shell);
    if (rc == 0 && snprintf(out->identity, sizeof(out->identity), "%u:%s", (unsigned) out->uid,
                            out->name) >= (int) sizeof(out->identity)) {
        rc = -ENAMETOOLONG;
    }
    return rc == 0 ? 0 : cr_fail(err, rc, "the account of the user '%s' has too long texts", what);
}

int account_of_uid(uid_t uid, struct account *out, struct cr_error *err) {
    char texts[ENTRY_MAX], what[32];
    struct passwd entry, *found = NULL;
    (void) snprintf(what, sizeof(what), "%u", (unsigned) uid);
    int code = getpwuid_r(uid, &entry, texts, sizeof(texts), &found);
    return take(code, found, what, out, err);
}

int account_of_name(const char *name, struct account *out, struct cr_error *err) {
    char texts[ENTRY_MAX];
    struct passwd entry, *found = NULL;
    int code = getpwnam_r(name, &entry, texts, sizeof(texts), &found);
    return take(code, found, name, out, err);
}

int account_of_identity(const char *identity, struct account *out, struct cr_error *err) {
    const char *colon = strchr(identity, ':');
    int rc = account_of_name(colon != NULL ? colon + 1 : identity, out, err);
    if (rc < 0 || strcmp(identity, out->identity) == 0) return rc;
    return cr_fail(err, -ENOENT, "the user '%s' has the number %u on this host, but the key is for "
                   "'%s'; give the user the same number on all hosts", out->name,
                   (unsigned) out->uid, identity);
}

int account_become(const struct account *account, struct cr_error *err) {
    uid_t uid = account->uid;
    if (geteuid() != 0 && geteuid() != uid) {
        return cr_fail(err, -EPERM, "this daemon runs as the user %u, so it runs no command of "
                       "'%s'; run it as root", (unsigned) geteuid(), account->name);
    }
    bool ok = geteuid() != 0 || (initgroups(account->name, account->gid) == 0 &&
                                 setresgid(account->gid, account->gid, account->gid) == 0 &&
                                 setresuid(uid, uid, uid) == 0);
    if (!ok) return cr_fail_errno(err, "cannot become the user '%s'", account->name);
    if (uid != 0 && setuid(0) == 0) {
        return cr_fail(err, -EPERM, "the user '%s' could become root again", account->name);
    }
    if (prctl(PR_SET_DUMPABLE, 0) < 0) return cr_fail_errno(err, "cannot hide the session");
    return 0;
}
