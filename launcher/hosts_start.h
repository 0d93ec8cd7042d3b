/* Starts the job of --hosts or --hostfile: reads the hostfile and the environment for
 * launcher/options/hosts_options.h, and runs the starter (launcher/hosts/hosts.h). */
#ifndef LAUNCHER_HOSTS_START_H
#define LAUNCHER_HOSTS_START_H

#include "base/error.h"
#include "launcher/options/options.h"

#include <stdbool.h>

/* Runs the job to its end and returns the exit status. On failure, returns a negative errno, sets
 * err, and sets *is_usage to true if nothing was started because the options are wrong. */
int hosts_start(const struct options *options, bool *is_usage, struct cr_error *err);

#endif
