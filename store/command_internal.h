/* crun-store's commands: one file each, command_NAME.c, entered through the table in crun_store.c. */
#ifndef STORE_COMMAND_INTERNAL_H
#define STORE_COMMAND_INTERNAL_H

#define COMMAND_USAGE 2 /* exit status for a line that cannot be understood */

/* argv[0] is the command's own name; returns the exit status. */
typedef int (*command_fn)(int argc, char **argv);

int command_serve(int argc, char **argv);

/* "crun-store NAME: TEXT; try 'crun-store NAME --help'" on stderr; returns COMMAND_USAGE. */
int command_usage_error(const char *name, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
