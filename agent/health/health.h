/* The door of agent/health: checks whether this node is fit for the job, before it joins a round.
 *
 * A check runs in a process of its own, because a check can hang: NVML in a broken driver, or
 * statvfs() on a network file system that does not answer. The agent runs this program once more
 * for it, with the argv[0] HEALTH_NAME. That process makes the built-in checks, and then becomes
 * the user's command (--health-check). If the process fails or its time is over, the node is not
 * fit. */
#ifndef AGENT_HEALTH_HEALTH_H
#define AGENT_HEALTH_HEALTH_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* a program that has this name as its argv[0] runs health_main() */
#define HEALTH_NAME    "crun-health"
#define HEALTH_WHY_MAX 256 /* most bytes of the reason why a node is not fit, NUL included */

/* H(NAME, word): the built-in checks, and the word of each in --health-builtin. */
#define HEALTH_CHECKS(H) \
    H(CLOCK, clock) H(SHM, shm) H(MEMLOCK, memlock) H(FILES, files) H(DISK, disk) H(GPU, gpu) \
    H(LINK, link)

enum health_check {
#define H(NAME, word) HEALTH_##NAME,
    HEALTH_CHECKS(H)
#undef H
    HEALTH_CHECK_COUNT
};

/* Reads a list of built-in checks: "none", "all", or words separated by commas. Stores a mask with
 * the bit 1 << HEALTH_CLOCK, and so on, in *mask. Returns 0, or -EINVAL and a text in err. */
int health_read_checks(const char *text, uint32_t *mask, struct cr_error *err);

/* ---- the checks of one agent ---- */

struct health_options {
    uint32_t builtin;    /* mask of built-in checks; 0 = none */
    const char *command; /* for /bin/sh; NULL or "" = none */
    int64_t timeout_ms;  /* longest time that one check takes; then the node is not fit */
    uint32_t workers;    /* number of workers of this node */
    const char *folder;  /* folder whose disk the check `disk` looks at */
    const char *addr;    /* numeric address of the interface in use; NULL = the default route's */
};

struct health;
struct uv_loop_s;

/* `options` must live until health_close(). on_result gets why the node is not fit, or "" if it is
 * fit; a reason is valid until the callback returns. Returns NULL if memory is short. */
struct health *health_open(struct uv_loop_s *loop, const struct health_options *options,
                           void (*on_result)(void *arg, const char *why), void *arg);

/* Begins a check; `rounds` is the number of rounds that this node has been in. on_result follows
 * from the loop. If the node is not fit, the check is made again after 2 s, 4 s, … up to a minute,
 * with an on_result for each, until the node is fit or health_stop() is called. */
void health_begin(struct health *h, int rounds);
/* Ends the check that runs, if there is one. No on_result follows. */
void health_stop(struct health *h);
void health_close(struct health *h, void (*on_close)(void *arg), void *arg);

/* ---- the program ---- */

/* The program: crun-health MASK WORKERS ROUNDS FOLDER ADDR COMMAND. Makes the built-in checks. If
 * one fails, writes the reason to stdout and returns 1. Otherwise executes COMMAND with /bin/sh, or
 * returns 0 if COMMAND is "". */
int health_main(int argc, char **argv);

#endif
