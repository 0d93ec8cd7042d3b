/* crun-store: a store server on its own, and the operator's tool to look into any. */
#include "store/command/command.h"

#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name, *summary;
    command_fn run;
} commands[] = {
    {"serve", "run a store", command_serve},
    {"get", "print the value of a key", command_get},
    {"set", "set a key", command_set},
    {"add", "count a key up or down", command_add},
    {"wait", "wait for keys", command_wait},
    {"keys", "list the keys", command_keys},
    {"delete", "delete keys", command_delete},
    {"stat", "show clients, keys, traffic, and who waits for what since when", command_stat},
    {"ping", "say what a server speaks and how far away it is", command_ping},
};

static void print_help(void) {
    (void) printf("usage: crun-store COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < CR_ARRAY_LEN(commands); i++) {
        (void) printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    }
    (void) printf("\n'crun-store COMMAND --help' shows the options of one.\n");
}

static int run_command(const char *name, int argc, char **argv) {
    for (size_t i = 0; i < CR_ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc, argv);
    }
    if (name[0] == '\0') {
        command_complain("", "no command given; try 'crun-store --help'");
    } else {
        command_complain("", "unknown command '%.400s'; try 'crun-store --help'", name);
    }
    return COMMAND_USAGE;
}

/* An answer that could not be written is no answer. */
static int finish(int status) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return status;
    (void) fprintf(stderr, "crun-store: cannot write to stdout: %s\n", strerror(errno));
    return COMMAND_FAILED;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    cr_keep_standard_files();
    cr_log_setup("crun-store", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return finish(0);
    }
    if (strcmp(name, "--version") == 0) {
        (void) printf("crun-store %s\n", CRUN_VERSION);
        return finish(0);
    }
    return finish(run_command(name, argc - 1, argv + 1));
}
