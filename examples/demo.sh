#!/bin/sh
# The demonstration: four workers learn handwritten digits, twice. In the second run one of them is
# killed. The launcher restarts all, they resume from the checkpoint, and the weights are the same.
#
#     examples/demo.sh [BUILD_FOLDER]
set -eu
BUILD=${1:-${BUILD:-build}}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # else crun sets it, and says so each time
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n== %s\n' "$*"; }
run() { # LOG arguments… : shows the command and its output, keeps the output
    log=$1
    shift
    printf '$ %s\n' "$*"
    rc=0
    { "$@" 2>&1; echo $? > "$dir/rc"; } | tee "$log"
    rc=$(cat "$dir/rc")
    [ "$rc" = 0 ] || { echo "demo: that failed with status $rc" >&2; exit 1; }
}
weights() { sed -n 's/^.*final weights \([0-9a-f]*\)$/\1/p' "$1"; }

say 'A run that nothing disturbs'
run "$dir/calm.log" "$BUILD/bin/crun" --standalone --nproc-per-node=4 \
    "$BUILD/examples/train_digits" --checkpoint "$dir/calm.ckpt"

say 'The same run, and rank 1 is killed at step 333 of 600'
run "$dir/crash.log" "$BUILD/bin/crun" --standalone --nproc-per-node=4 --max-restarts=1 \
    "$BUILD/examples/train_digits" --checkpoint "$dir/crash.ckpt" --crash-at 333

calm=$(weights "$dir/calm.log")
crash=$(weights "$dir/crash.log")
fail() { echo "demo: $*" >&2; exit 1; }
grep -q 'resumed at step 300' "$dir/crash.log" || fail 'the second run did not resume'
[ -n "$calm" ] && [ "$calm" = "$crash" ] || fail "the weights differ: '$calm' and '$crash'"
say "Crashed, restarted, resumed: the final weights are identical, bit for bit ($calm)"
