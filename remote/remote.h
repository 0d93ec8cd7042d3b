/* Runs commands on other hosts, as the user who has called: the daemon "crun-agent jobs", and the
 * client that "crun --on" uses in place of ssh. This header is the face of remote/.
 *
 *     crun --on=b ... ──fork──► remote_call() ──tunnel──► session of host b ──► sh -c COMMAND
 *
 * The daemon only accepts connections. For each one it starts a session: a process that
 * authenticates the caller, becomes the caller's user for good, executes the command, and carries
 * the command's input and output. So no job is disturbed when the daemon is restarted or replaced
 * by a new version; and of what a caller sends, a process of root reads only the handshake and the
 * message with the command.
 *
 * The cluster has a secret: a token file that only root can read, the same on all hosts. The key of
 * each user is derived from it (rendezvous/secure, the role SECURE_USER). A user gets this key in
 * one of two ways: from the daemon of the user's own host, which finds out by its local socket
 * which user asks; or from an administrator, who writes it by "crun-agent key --role=user",
 * as the file ~/.config/crun/key. */
#ifndef REMOTE_H
#define REMOTE_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

#define REMOTE_PORT         29401
#define REMOTE_SOCKET       "/run/crun/agent.sock" /* the local socket of the daemon */
#define REMOTE_HOSTS        "/etc/crun/hosts"      /* the hosts of "--on=all" */
#define REMOTE_SESSION_NAME "crun-agent-session"   /* argv[0] of a session */
#define REMOTE_FAILED       255 /* exit status of "crun --call" if the command was not executed, as
                                 * with ssh */

struct remote_daemon {
    struct cr_endpoint listen;
    const char *token_file; /* the cluster's secret; must live as long as the daemon runs */
    const char *socket;     /* path of the local socket */
};

/* Runs the daemon until SIGTERM or SIGINT. When it listens, it calls on_ready with the port.
 * Returns 0; or a negative errno, and sets err. */
int remote_serve(const struct remote_daemon *daemon, void (*on_ready)(uint16_t port),
                 struct cr_error *err);

/* Runs the session of the connection that is descriptor 0. The daemon has executed this process
 * with `argv`, of which argv[0] is REMOTE_SESSION_NAME. Returns the exit status of this process. */
int remote_session_main(int argc, char **argv);

/* Finds the key of this process's user, and keeps it in memory for remote_call(), also in processes
 * that this process forks. Does nothing if the key is known. Returns 0; or a negative errno, and
 * sets err. */
int remote_prepare(struct cr_error *err);

/* Executes a shell command on `host`, as the user of this process. The command's stdout and stderr
 * are those of this process; its stdin is, too, if gives_input is true, else it is empty. Returns
 * the command's exit status. If the command was not executed, or if the connection is lost, returns
 * a negative errno, and sets err to a text that names the host. */
int remote_call(const char *host, uint16_t port, const char *command, bool gives_input,
                struct cr_error *err);

/* Derives the key of the user `name` from the secret in `token_file`, and appends it to `out` as a
 * line for another token file. Returns 0; or a negative errno, and sets err. */
int remote_write_key(const char *token_file, const char *name, struct cr_buffer *out,
                     struct cr_error *err);

#endif
