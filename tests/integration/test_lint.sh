#!/bin/sh
# The source keeps to its layout (make/lint_arrows.py), and no line ends in blanks.
status=0
make/lint_arrows.py || status=1
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z '*.[ch]' '*.cc' '*.py' '*.sh' '*.mk' '*.md' Makefile |
        xargs -0 grep -nE '[[:blank:]]+$' && { echo 'FAIL: lines that end in blanks'; status=1; }
fi
exit $status
