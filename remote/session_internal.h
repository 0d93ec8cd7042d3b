/* What the daemon gives to the process of a session: descriptor 0 is the caller's connection,
 * descriptor SESSION_REPORT_FD is a pipe to the daemon, and argv contains the settings. */
#ifndef REMOTE_SESSION_H
#define REMOTE_SESSION_H

/* Number of the descriptor of the pipe to the daemon. The session closes the pipe when its greeting
 * is over. If the session refuses the caller, it first writes the reason into the pipe. */
#define SESSION_REPORT_FD 3
#define SESSION_WORDS     4 /* number of words in argv: the name, and the fields of struct
                             * session_settings in order */

struct session_settings {
    const char *token_file;
    const char *socket; /* path of the daemon's local socket */
    const char *port;   /* TCP port of the daemon */
};

#endif
