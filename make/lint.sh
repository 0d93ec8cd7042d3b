#!/bin/sh
# Runs the checkers that this machine has over the given C files and over the scripts of the tree,
# and prints which are not installed.
#
#     make/lint.sh FILE.c…
status=0
flags='-I. -Iworker_runtime/include -D_GNU_SOURCE -DCRUN_VERSION=__FILE__'

have() {
    command -v "$1" >/dev/null && return
    echo "lint: $1 is not installed, left out"
    return 1
}

# cppcheck reads no system headers. Without this one it takes TAILQ_FOREACH (…) { … } for a call
# and a block, and the variable of the loop for uninitialised.
queue=$(echo '#include <sys/queue.h>' | ${CC:-cc} -E - |
    sed -n 's/^# 1 "\(.*queue\.h\)".*/\1/p' | head -n 1)

if have cppcheck; then
    # shellcheck disable=SC2086
    cppcheck --quiet ${queue:+"--include=$queue"} --error-exitcode=1 \
        --enable=warning,portability --inline-suppr --suppress=missingIncludeSystem \
        --suppress=unknownMacro --suppress=memleak --suppress=incorrectStringBooleanError \
        $flags "$@" || status=1
fi
if have clang-tidy; then
    # Off: rules against C as it is written here (adjacent int parameters, assignment in a
    # condition, arrays of pointers). The static analyser does not know scope cleanup; see `make
    # analyze`.
    off=easily-swappable-parameters,reserved-identifier,narrowing-conversions,branch-clone
    off=$off,sizeof-expression,implicit-widening-of-multiplication-result
    off=$off,assignment-in-if-condition,not-null-terminated-result
    checks="-*,bugprone-*,-bugprone-$(echo "$off" | sed 's/,/,-bugprone-/g')"
    # shellcheck disable=SC2016,SC2086 # the inner shell expands; flags is a list of words
    printf '%s\0' "$@" | CHECKS=$checks FLAGS=$flags xargs -0 -n 4 -P "$(nproc)" sh -c \
        'clang-tidy --quiet --warnings-as-errors="*" --checks="$CHECKS" "$@" \
            -- $FLAGS 2>/dev/null' lint || status=1
fi
if have shellcheck; then
    grep -lE '^#!/(bin/sh|bin/bash|usr/bin/env bash)' .ci/run make/* examples/*.sh tests/*/*.sh |
        xargs shellcheck --severity=warning || status=1
fi
exit $status
