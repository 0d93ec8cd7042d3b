/* The kinds of change that end a round early and with notice. This list is the only one: agent and
 * worker, member and coordinator, log lines and command lines take names and numbers from it. The
 * public copy in crunrt.h has the same numbers; worker_runtime/runtime/step.c asserts that. */
#ifndef CR_CHANGE_KIND_H
#define CR_CHANGE_KIND_H

#include <stdint.h>
#include <string.h>

/* clang-format off */
/* K(NAME, number, word on a command line, phrase in a log line) */
#define CR_CHANGE_KINDS(K) \
    K(JOIN,        1, "join",        "joining")     /* new nodes enter the round */ \
    K(LEAVE,       2, "leave",       "leaving")     /* a node leaves for another reason */ \
    K(PREEMPTION,  3, "preemption",  "preemption")  /* the scheduler takes a node away */ \
    K(MAINTENANCE, 4, "maintenance", "maintenance") /* a node is to be repaired */
/* clang-format on */

enum cr_change_kind {
#define K(NAME, number, word, phrase) CR_CHANGE_##NAME = (number),
    CR_CHANGE_KINDS(K)
#undef K
};

/* "leaving" and so on; "a change" for a number that is not in the list. */
static inline const char *cr_change_kind_phrase(uint32_t kind) {
    switch (kind) {
#define K(NAME, number, word, phrase)                                                              \
    case number: return phrase;
        CR_CHANGE_KINDS(K)
#undef K
    default: return "a change";
    }
}

/* The kind of that word on a command line, or 0. */
static inline uint32_t cr_change_kind_parse(const char *text) {
#define K(NAME, number, word, phrase)                                                              \
    if (strcmp(text, word) == 0) return number;
    CR_CHANGE_KINDS(K)
#undef K
    return 0;
}

/* Whether a node can give notice of it: everything but a join. */
static inline int cr_change_kind_is_leave(uint32_t kind) {
    return kind >= CR_CHANGE_LEAVE && kind <= CR_CHANGE_MAINTENANCE;
}

#endif
