#!/bin/sh
# Runs unit test programs under valgrind, one after the other. Errors and definite leaks are
# failures, also in the process that Check forks for each test. A program that skips itself (exit
# status 77) is no failure.
failed=0 skipped=0
for program in "$@"; do
    case $program in
    */test_worker_process)
        echo "SKIP   $program: valgrind does not know pidfds, and fails system calls on them"
        skipped=$((skipped + 1))
        continue
        ;;
    esac
    printf '  %-6s %s\n' MEM "$program"
    CK_FORK=yes CK_TIMEOUT_MULTIPLIER=20 valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite --show-leak-kinds=definite \
        --suppressions="$(dirname "$0")/valgrind.supp" "$program" >/dev/null
    status=$?
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        failed=$((failed + 1))
        echo "FAILED $program: exit status $status"
    fi
done
echo "$(($# - failed - skipped)) passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
