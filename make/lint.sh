#!/bin/sh
# The checkers that this machine has, over the given C files and over the scripts of the tree. What is
# not installed is said.
#
#     make/lint.sh FILE.c…
status=0
flags='-I. -Iworker_runtime/include -D_GNU_SOURCE -DCRUN_VERSION=__FILE__'

have() {
    command -v "$1" >/dev/null && return
    echo "lint: $1 is not installed, left out"
    return 1
}

# cppcheck reads no system headers, so it takes TAILQ_FOREACH (…) { … } for a call and a block, and the
# loop's variable for uninitialised. This header it must read.
queue=$(echo '#include <sys/queue.h>' | ${CC:-cc} -E - | sed -n 's/^# 1 "\(.*queue\.h\)".*/\1/p' | head -n 1)

if have cppcheck; then
    # shellcheck disable=SC2086
    cppcheck --quiet ${queue:+"--include=$queue"} --error-exitcode=1 --enable=warning,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=memleak \
        --suppress=nullPointer:launcher/options.c --suppress=incorrectStringBooleanError $flags "$@" || status=1
fi
if have clang-tidy; then
    # Off: rules that gainsay C as it is written here (adjacent int parameters, assignment in a condition,
    # arrays of pointers). The static analyser proper knows no scope cleanup; see `make analyze`.
    off=easily-swappable-parameters,reserved-identifier,narrowing-conversions,branch-clone,sizeof-expression
    off=$off,implicit-widening-of-multiplication-result,assignment-in-if-condition,not-null-terminated-result
    checks="-*,bugprone-*,-bugprone-$(echo "$off" | sed 's/,/,-bugprone-/g')"
    # shellcheck disable=SC2016,SC2086 # the inner shell expands; flags is a list of words
    printf '%s\0' "$@" | CHECKS=$checks FLAGS=$flags xargs -0 -n 4 -P "$(nproc)" sh -c \
        'clang-tidy --quiet --warnings-as-errors="*" --checks="$CHECKS" "$@" -- $FLAGS 2>/dev/null' lint || status=1
fi
if have shellcheck; then
    grep -lE '^#!/(bin/sh|bin/bash|usr/bin/env bash)' .ci/run make/* examples/*.sh tests/*/*.sh |
        xargs shellcheck --severity=warning || status=1
fi
exit $status
