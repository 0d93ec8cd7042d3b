/* Accounts of users: finds an account of this host, and makes a process run as an account. */
#ifndef REMOTE_ACCOUNT_H
#define REMOTE_ACCOUNT_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define ACCOUNT_TEXT_MAX 256  /* bytes of an identity or of a name, NUL included */
#define ACCOUNT_PATH_MAX 1024 /* bytes of a path, NUL included */

struct account {
    uid_t uid;
    gid_t gid;
    char identity[ACCOUNT_TEXT_MAX]; /* "UID:NAME", the run id of the user's key. With both parts,
                                      * the key cannot be used on a host where this name or this
                                      * number belongs to somebody else. */
    char name[ACCOUNT_TEXT_MAX];
    char home[ACCOUNT_PATH_MAX], shell[ACCOUNT_PATH_MAX];
};

/* Each of these functions finds an account of this host and stores it in *out. Returns 0; or a
 * negative errno, and sets err. The error is -ENOENT if there is no such account; for an identity,
 * also if its name and its number do not belong to the same account of this host. */
int account_of_uid(uid_t uid, struct account *out, struct cr_error *err);
int account_of_name(const char *name, struct account *out, struct cr_error *err);
int account_of_identity(const char *identity, struct account *out, struct cr_error *err);

/* Makes this process run as the account for good: sets its groups and its user, and makes it
 * undumpable, so that other processes of the user cannot read its memory. A process that is not
 * root can only go on as its own user: for any other account the function fails with -EPERM.
 * Returns 0; or a negative errno, and sets err. */
int account_become(const struct account *account, struct cr_error *err);

#endif
