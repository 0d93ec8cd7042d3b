#!/bin/sh
# Runs unit test programs under valgrind, one after the other; errors and definite leaks fail, in the
# process that Check forks for each test, too. What a program skips (exit 77) stays a skip.
failed=0 skipped=0
for program in "$@"; do
    case $program in
    */test_worker_process)
        echo "SKIP   $program: valgrind does not know pidfds, and fails what the kernel would do"
        skipped=$((skipped + 1))
        continue
        ;;
    esac
    printf '  %-6s %s\n' MEM "$program"
    CK_FORK=yes CK_TIMEOUT_MULTIPLIER=20 valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite --show-leak-kinds=definite \
        --suppressions="$(dirname "$0")/valgrind.supp" "$program" >/dev/null
    status=$?
    [ $status -eq 0 ] || [ $status -eq 77 ] || { failed=$((failed + 1)); echo "FAILED $program: exit status $status"; }
done
echo "$(($# - failed - skipped)) passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
