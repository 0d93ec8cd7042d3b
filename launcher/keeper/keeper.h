/* Jobs that live without a terminal: `crun run` starts one, `crun ps` lists them, `crun attach`
 * shows the output of one, `crun logs` prints it, `crun stop` ends it.
 *
 * Each such job has a keeper: a small process in a Unix session of its own that starts crun, waits
 * for its end, and sends it the signals of clients. The output goes to a file in the job's folder,
 * so a slow reader of the output cannot slow the job down. The folders of a user's jobs are in one
 * folder that only this user may enter, and a keeper obeys only its user and root. There is no
 * daemon, so nothing must be restarted when a new version of crun is installed: the new version
 * lists and stops the jobs of an old version, too. */
#ifndef LAUNCHER_KEEPER_H
#define LAUNCHER_KEEPER_H

#include <stdbool.h>

/* Returns true if the command line is one of these commands. `called` is the name by which crun was
 * called: if it is another one, such as torchrun, the result is false. It is also false if the
 * current folder has a file with the name of the command, because torchrun would run this file as
 * the program. */
bool keeper_is_meant(const char *called, char *const *words);

/* Executes the command words[1] of the command line `words`. Returns the exit status. */
int keeper_main(char **words);

#endif
