/* The user's key: a caller finds it by key_find(), and the daemon gives it to a local user by
 * key_hand_out(). */
#ifndef REMOTE_KEY_H
#define REMOTE_KEY_H

#include "remote/account_internal.h"
#include "rendezvous/secure/secure.h"

struct user_key {
    char identity[ACCOUNT_TEXT_MAX]; /* "UID:NAME" */
    uint8_t keys[SECURE_KEYS_MAX][SECURE_KEY]; /* the keys, the newest first */
    uint32_t count;
};

/* Finds the keys of this process's user. They are in the file that the variable CRUN_USER_KEY
 * names. If it is not set, they are in ~/.config/crun/key ($XDG_CONFIG_HOME/crun/key if that
 * variable is set). If this file does not exist, the daemon of this host is asked for the key.
 * Returns 0; or a negative errno, and sets err. The caller wipes *out with explicit_bzero(). */
int key_find(struct user_key *out, struct cr_error *err);

/* Returns the path of the daemon's local socket: the value of the variable CRUN_AGENT_SOCKET, or
 * REMOTE_SOCKET if the variable is not set. */
const char *key_socket(void);

/* Finds out as which user the process at the other end of the local connection `fd` runs, and
 * writes the key of this user to the connection. Returns 0; or a negative errno, and sets err. */
int key_hand_out(int fd, const char *token_file, struct cr_error *err);

#endif
