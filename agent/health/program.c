/* The program crun-health: makes the built-in checks of one node, and then becomes the user's
 * command. */
#include "agent/health/judge_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME, MASK, WORKERS, ROUNDS, FOLDER, ADDR, SEGMENTS, SERVICE, COMMAND, ARGUMENTS };

int health_main(int argc, char **argv) {
    char why[HEALTH_WHY_MAX];
    if (argc != ARGUMENTS) return 2;
    /* A Unix process group of its own, so that health.c can kill all that the check starts. No Unix
     * session of its own: the agent takes its children in other sessions for orphans of workers,
     * and would reap this process before libuv does. */
    (void) setpgid(0, 0);
    uint32_t mask = (uint32_t) strtoul(argv[MASK], NULL, 10);
    struct health_facts facts = {.folder = argv[FOLDER], .segments = argv[SEGMENTS],
                                 .service = argv[SERVICE],
                                 .workers = (uint32_t) strtoul(argv[WORKERS], NULL, 10)};
    if (mask != 0) health_find(&facts, mask, argv[ADDR]);
    if (facts.service_warning[0] != '\0') {
        (void) fprintf(stderr, "crun: warning: %s\n", facts.service_warning);
    }
    if (!health_judge(&facts, mask, why)) {
        (void) puts(why);
        return 1;
    }
    if (argv[COMMAND][0] == '\0') return 0;
    (void) setenv("LOCAL_WORLD_SIZE", argv[WORKERS], 1);
    (void) setenv("CRUN_ROUNDS", argv[ROUNDS], 1);
    (void) execl("/bin/sh", "sh", "-c", argv[COMMAND], (char *) NULL);
    (void) printf("cannot start /bin/sh for --health-check: %s\n", strerror(errno));
    return 1;
}
