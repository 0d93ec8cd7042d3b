/* Declarations for all files of the test program crunrt_worker: the list of modes, the runtime and
 * the group that most modes open, and REQUIRE(), which ends the process if a check fails. */
#ifndef TESTS_CRUNRT_WORKER_H
#define TESTS_CRUNRT_WORKER_H

#include <crunrt.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Lists every mode: its name on the command line, and its function. When the function returns, all
 * checks have succeeded, and the process ends with status 0. */
#define MODES(X)                                                                                   \
    X("collectives", mode_collectives)                                                             \
    X("works", mode_works)                                                                         \
    X("messages", mode_messages)                                                                   \
    X("lose-works", mode_lose_works)                                                               \
    X("lose-message", mode_lose_message)                                                           \
    X("arguments", mode_arguments)                                                                 \
    X("init", mode_init)                                                                           \
    X("backend", mode_backend)                                                                     \
    X("subgroups", mode_subgroups)                                                                 \
    X("again", mode_again)                                                                         \
    X("spawn", mode_spawn)                                                                         \
    X("lose", mode_lose)                                                                           \
    X("lose-connecting", mode_lose_connecting)                                                     \
    X("lose-store", mode_lose_store)                                                               \
    X("dead-store", mode_dead_store)                                                               \
    X("late", mode_late)                                                                           \
    X("gone", mode_gone)                                                                           \
    X("absent", mode_absent)                                                                       \
    X("monitored", mode_monitored)                                                                 \
    X("mismatch", mode_mismatch)                                                                   \
    X("differ", mode_differ)                                                                       \
    X("behind", mode_behind)                                                                       \
    X("steps", mode_steps)                                                                         \
    X("lose-opening", mode_lose_opening)                                                           \
    X("broken", mode_broken)                                                                       \
    X("nccl", mode_nccl)                                                                           \
    X("nccl-split", mode_nccl_split)                                                               \
    X("nccl-rejoin", mode_nccl_rejoin)                                                             \
    X("store", mode_store)                                                                         \
    X("flight", mode_flight)                                                                       \
    X("report", mode_report)

#define DECLARE(name, function) void function(void);
MODES(DECLARE)
#undef DECLARE

/* the arguments of the mode; "" for an argument that was not given */
extern const char *argument[2];
extern crunrt *rt;
extern crunrt_group *world;
extern int rank, size; /* rank of this process and size of the job; set by open_runtime() */

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("FAILED at %s:%d: %s: ", __FILE__, __LINE__, #condition);                       \
            printf(__VA_ARGS__);                                                                   \
            printf(" [%s]\n", crunrt_last_error());                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define REFUSED(call, text)                                                                        \
    REQUIRE((call) == -EINVAL && strstr(crunrt_last_error(), (text)) != NULL, "refused")

int64_t now_ms(void);

/* Calls crunrt_init(). If the environment variable TEST_INIT_METHOD is set, it is the method. */
void open_runtime(void);

/* Calls open_runtime(), and makes `world`, a group of all ranks. */
void open_world(int64_t timeout_ms);

/* Returns whether `world` uses the backend nccl. Unlike gloo, it has no bitwise reductions, and it
 * can average integers. */
int on_nccl(void);
void close_world(void);

/* Prints a failure in the form that the test scripts match: "error -110 after 512 ms: text". */
void print_error(int rc, int64_t since_ms);

#endif
