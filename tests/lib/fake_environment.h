/* The environment variables that a unit test passes to the code under test in place of its own. */
#ifndef TESTS_FAKE_ENVIRONMENT_H
#define TESTS_FAKE_ENVIRONMENT_H

#include <stddef.h>
#include <string.h>

/* "NAME=value" texts, NULL-terminated; NULL if the environment is empty */
static const char *const *environment;

/* A lookup function as base/program/command_line.h defines it. It ignores `arg`. */
static inline const char *lookup(void *arg, const char *name) {
    size_t n = strlen(name);
    (void) arg;
    for (const char *const *at = environment; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, name, n) == 0 && (*at)[n] == '=') return *at + n + 1;
    }
    return NULL;
}

/* Makes a copy of the list the environment. The texts must live on, but not the list itself. */
static inline void set_environment(const char *const *list) {
    static const char *kept[16];
    size_t n = 0;
    do kept[n] = list[n];
    while (list[n++] != NULL);
    environment = kept;
}

#endif
