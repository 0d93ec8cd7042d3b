/* The kinds of change, that is, of an announced end of a round that is no failure. The numbers go
 * over the wire between agent and worker and between member and coordinator; the words appear in
 * log lines and on command lines. All of them come from the one list below, except for the public
 * copy of the numbers in crunrt.h; worker_runtime/runtime/step.c asserts that both are equal. */
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

/* Returns the phrase of a kind for log lines, such as "leaving"; for an unknown number it returns
 * "a change". */
static inline const char *cr_change_kind_phrase(uint32_t kind) {
    switch (kind) {
#define K(NAME, number, word, phrase)                                                              \
    case number: return phrase;
        CR_CHANGE_KINDS(K)
#undef K
    default: return "a change";
    }
}

/* Returns the kind for a word from a command line, such as "leave", or 0 if the word is unknown. */
static inline uint32_t cr_change_kind_parse(const char *text) {
#define K(NAME, number, word, phrase)                                                              \
    if (strcmp(text, word) == 0) return number;
    CR_CHANGE_KINDS(K)
#undef K
    return 0;
}

/* Returns whether this is a kind that a node announces when it leaves: all kinds but JOIN. */
static inline int cr_change_kind_is_leave(uint32_t kind) {
    return kind >= CR_CHANGE_LEAVE && kind <= CR_CHANGE_MAINTENANCE;
}

#endif
