/* The command line of crun: the table of its options, the grammars of their values, and what the
 * options for hosts and for schedulers mean. Code outside launcher/options/ includes only this
 * header. */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include "launcher/options/hosts_options.h"
#include "launcher/options/programs.h"
#include "launcher/options/scheduler_options.h"
#include "launcher/options/table.h"
#include "launcher/options/values.h"

#endif
