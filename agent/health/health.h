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
#include "base/network/port_range.h"

#include <stdbool.h>
#include <stdint.h>

/* a process that has this name as its argv[0] runs health_main() */
#define HEALTH_NAME    "crun-health"
#define HEALTH_WHY_MAX 256 /* size in bytes of the reason why a node is not fit, NUL included */

/* H(NAME, word): the built-in checks, and the word of each in --health-builtin. */
#define HEALTH_CHECKS(H) \
    H(CLOCK, clock) H(SHM, shm) H(MEMLOCK, memlock) H(FILES, files) H(DISK, disk) H(GPU, gpu) \
    H(LINK, link) H(SEGMENT, segment) H(SERVICE, service)

enum health_check {
#define H(NAME, word) HEALTH_##NAME,
    HEALTH_CHECKS(H)
#undef H
    HEALTH_CHECK_COUNT
};

/* Reads a list of built-in checks: "none", "all", or words separated by commas. Stores a mask in
 * *mask, with the bit 1 << HEALTH_CLOCK for the word "clock", and so on. Returns 0; or -EINVAL, and
 * sets err to a text that says what is wrong. */
int health_read_checks(const char *text, uint32_t *mask, struct cr_error *err);

/* ---- the checks of one agent ---- */

struct health_options {
    uint32_t builtin;    /* mask of built-in checks; 0 if there are none */
    const char *what;    /* what a failure text calls the check, for example "health check" */
    char **environment;  /* environment of the check, NULL-terminated; NULL means the agent's own */
    const char *command; /* for /bin/sh; NULL or "" if there is none */
    int64_t timeout_ms;  /* time limit in ms of one check; if it is exceeded, the node is not fit */
    uint32_t workers;    /* number of workers of this node */
    const char *segments; /* folder of --health-segment-dir; NULL or "" if there is none */
    const char *service; /* value of --health-service; NULL or "" if there is none */
    const char *folder;  /* the check `disk` checks the file system of this folder */
    const char *addr;    /* numeric address of the network interface that this node uses; NULL if it
                          * is the interface of the default route */
};

struct health;
struct uv_loop_s;

/* Opens the health checks of this node. `options` must stay valid until health_close(). on_result
 * runs after each check: `why` says why the node is not fit, or is "" if the node is fit; it is
 * valid until the callback returns. Returns NULL if memory is short. */
struct health *health_open(struct uv_loop_s *loop, const struct health_options *options,
                           void (*on_result)(void *arg, const char *why), void *arg);

/* Begins a check; `rounds` is the number of rounds that this node has been in. on_result runs on
 * the loop when the check is over. If the node is not fit, the check is made again after 2 s, 4 s,
 * … up to a minute, with an on_result for each, until the node is fit or health_stop() is
 * called. */
void health_begin(struct health *h, int rounds);
/* Ends the check that runs, if there is one. on_result does not run for that check. */
void health_stop(struct health *h);
void health_close(struct health *h, void (*on_close)(void *arg), void *arg);

/* ---- paired tests (--pair-check) ---- */

struct paired;

/* One paired test. */
struct paired_test {
    uint64_t id;
    uint32_t rank;           /* this node's rank in the pair: 0 or 1 */
    const char *host, *addr; /* host and address of the partner */
    uint16_t port;           /* port of the node with rank 0 */
};

/* Opens the paired tests of this node, and reserves a port for them until paired_close(): one of
 * `ports`, or any if `ports` has none. `command` is for /bin/sh, and must stay valid until
 * paired_close(). on_result runs after each test with the test's id: `why` says why it has failed,
 * or is "" if it has passed, and is valid until the callback returns. Returns 0; or a negative
 * errno, and sets err to a text that says what is wrong. */
int paired_open(struct uv_loop_s *loop, const char *command, int64_t timeout_ms, uint32_t workers,
                struct cr_port_range ports,
                void (*on_result)(void *arg, uint64_t id, const char *why), void *arg,
                struct paired **out, struct cr_error *err);
uint16_t paired_port(const struct paired *p);

/* Begins a test; `rounds` is the number of rounds that this node has been in. If another test still
 * runs, ends that test first, without a result. */
void paired_begin(struct paired *p, const struct paired_test *test, int rounds);
/* Ends the test that runs, if there is one. on_result does not run for that test. */
void paired_stop(struct paired *p);
void paired_close(struct paired *p, void (*on_close)(void *arg), void *arg);

/* ---- the program ---- */

/* The program: crun-health MASK WORKERS ROUNDS FOLDER ADDR SEGMENTS SERVICE COMMAND. Makes the
 * built-in checks. If a check fails, writes the reason to stdout and returns 1. If all pass,
 * executes COMMAND with /bin/sh, or returns 0 if COMMAND is "". */
int health_main(int argc, char **argv);

#endif
