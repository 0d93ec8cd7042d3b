/* Executes commands about kept jobs on other hosts, as in `crun ps --on HOST,...`, and reads the
 * list of the cluster's hosts. The job daemon of each host executes the command there
 * (remote/remote.h). */
#ifndef LAUNCHER_ELSEWHERE_H
#define LAUNCHER_ELSEWHERE_H

#include "base/error.h"
#include "launcher/hosts/hosts.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns true if `words`, the command line of ps, attach, logs or stop, has the option --on
 * directly behind the command. */
bool elsewhere_is_meant(char *const *words);

/* Executes the command of `words` on each host of --on. Returns the exit status: 0, or that of the
 * first host on which the command failed. */
int elsewhere_main(char *const *words);

/* Reads the hostfile `path`. `option` is the name of the option that gave the path, for error
 * texts. Sets *out to the file's text, which the caller frees. Returns 0; or a negative errno, and
 * sets err. */
int elsewhere_read_hosts(const char *option, const char *path, char **out, struct cr_error *err);

/* Reads the file that lists the hosts of the cluster, for --on=all. Sets *out to its text, which
 * the caller frees. Returns 0; or a negative errno, and sets err. */
int elsewhere_read_cluster(char **out, struct cr_error *err);

/* Calls job daemons: elsewhere_caller.call() is also the program "crun --call HOST COMMAND". */
extern const struct hosts_caller elsewhere_caller;

/* Sets *out to the port of the job daemons: the value of CRUN_AGENT_PORT, or REMOTE_PORT if the
 * variable is not set. Returns 0; or -EINVAL, and sets err, if the value is no port. */
int elsewhere_port(uint16_t *out, struct cr_error *err);

#endif
