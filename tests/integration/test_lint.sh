#!/bin/sh
# Checks the source tree: the rules of make/lint_arrows.py hold, no line ends in blanks, and no
# file has the conflict markers of an unfinished merge.
status=0
make/lint_arrows.py || status=1
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z '*.[ch]' '*.cc' '*.py' '*.sh' '*.mk' '*.md' Makefile |
        xargs -0 grep -nE '[[:blank:]]+$' && { echo 'FAIL: lines that end in blanks'; status=1; }
    git grep -nE '^(<{7}|>{7}) ' && { echo 'FAIL: conflicts of a merge'; status=1; }
fi
exit $status
