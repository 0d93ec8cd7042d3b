#!/bin/sh
# Runs unit test programs under valgrind, one after the other; errors and definite leaks fail.
# What a program skips for want of something (exit 77) stays a skip.
failed=0
for program in "$@"; do
    printf '  %-6s %s\n' MEM "$program"
    CK_FORK=no CK_TIMEOUT_MULTIPLIER=20 valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite --show-leak-kinds=definite --child-silent-after-fork=yes \
        "$program" >/dev/null
    status=$?
    [ $status -eq 0 ] || [ $status -eq 77 ] || { failed=$((failed + 1)); echo "FAILED $program: exit status $status"; }
done
echo "$(($# - failed)) passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
