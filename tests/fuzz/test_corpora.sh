#!/bin/sh
# Every fuzz target over its corpus, and over small changes of it. A target without a corpus runs on
# the empty input alone, which is said.
set -eu
build=${BUILD:-build}
failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    program=$build/tests/fuzz/replay_$name
    corpus=tests/fuzz/corpus/$name
    if [ ! -x "$program" ]; then
        echo "$name: $program is not built"
        failed=1
    elif [ -d "$corpus" ]; then
        printf '%s: ' "$name"
        find "$corpus" -type f -print0 | sort -z | xargs -0 "$program" || failed=1
    else
        printf '%s: no corpus: ' "$name"
        "$program" /dev/null || failed=1
    fi
done
exit $failed
