#!/bin/sh
# The source keeps to its layout (make/lint_arrows.py), no line ends in blanks, and no merge was left
# half done.
status=0
make/lint_arrows.py || status=1
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z '*.[ch]' '*.cc' '*.py' '*.sh' '*.mk' '*.md' Makefile |
        xargs -0 grep -nE '[[:blank:]]+$' && { echo 'FAIL: lines that end in blanks'; status=1; }
    git grep -nE '^(<{7}|>{7}) ' && { echo 'FAIL: conflicts of a merge'; status=1; }
fi
exit $status
