/* The kinds of change. A change is an announced end of the round that is no failure, for example
 * because a node leaves. Each kind has a number, which messages between processes contain, and two
 * words for people: one on command lines, one in log lines. Numbers and words come from the list
 * CR_CHANGE_KINDS below. Only crunrt.h, a public header, repeats the numbers;
 * worker_runtime/runtime/step.c asserts that they are equal to those of the list. */
#ifndef CR_CHANGE_KIND_H
#define CR_CHANGE_KIND_H

#include <stdint.h>
#include <string.h>

/* clang-format off */
/* K(NAME, number, word on a command line, phrase in a log line) */
#define CR_CHANGE_KINDS(K) \
    K(JOIN,        1, "join",        "joining")     /* new nodes enter the round */ \
    K(LEAVE,       2, "leave",       "leaving")     /* a node leaves for a reason other than the
                                                     * two below */ \
    K(PREEMPTION,  3, "preemption",  "preemption")  /* the scheduler takes a node away */ \
    K(MAINTENANCE, 4, "maintenance", "maintenance") /* a node is to be repaired */
/* clang-format on */

enum cr_change_kind {
#define K(NAME, number, word, phrase) CR_CHANGE_##NAME = (number),
    CR_CHANGE_KINDS(K)
#undef K
};

/* Returns the phrase for a kind in log lines, such as "leaving". For an unknown number it returns
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

/* Returns 1 if `kind` is one that a node announces when it leaves: LEAVE, PREEMPTION or
 * MAINTENANCE. Returns 0 for JOIN and for unknown numbers. */
static inline int cr_change_kind_is_leave(uint32_t kind) {
    return kind >= CR_CHANGE_LEAVE && kind <= CR_CHANGE_MAINTENANCE;
}

#endif
