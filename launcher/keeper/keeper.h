/* Jobs that live without a terminal: `crun run` starts one, `crun ps` lists them, `crun attach`
 * shows the output of one, `crun logs` prints it, `crun stop` ends it.
 *
 * Each such job has a keeper: a small process in a session of its own that starts crun, waits for
 * its end, and passes signals on. The job's folder holds its output, so nothing that follows the
 * output can slow the job down. The folders of a user lie in one folder that only this user may
 * enter, and a keeper obeys only its user and root. No daemon is needed, so none has to be
 * restarted: a new version of crun lists and stops the jobs of an old one. */
#ifndef LAUNCHER_KEEPER_H
#define LAUNCHER_KEEPER_H

#include <stdbool.h>

/* Returns whether the command line is one of these commands. It is not if the program was called by
 * another name, such as torchrun; nor if the current folder has a file with the name of the
 * command, which torchrun would run as the program. `called` is the name by which crun was
 * called. */
bool keeper_is_meant(const char *called, char *const *words);

/* Executes the command. `words` is the command line, of which words[1] is the command. Returns the
 * exit status. */
int keeper_main(char **words);

#endif
