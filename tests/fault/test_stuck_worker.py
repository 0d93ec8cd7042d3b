#!/usr/bin/python3
# timeout: 300
"""A worker in an uninterruptible sleep, in a file system that never answers, is not ended by
SIGKILL. crun describes it, ends within the grace plus five seconds all the same, and leaves it to
the warden, which ends with it. The other nodes form their next round without this node."""
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from crun_test import SCALE, read_text, run_tests, script, skip, wait_for  # noqa: E402
from fuse_that_hangs import HangingFuse, missing  # noqa: E402
from nodes import Nodes  # noqa: E402
from processes import (Crun, assert_gone, cgroups_of, children, is_alive,  # noqa: E402
                       stat, until)

if missing():
    skip(missing())

DEATH_S = 5  # what crun may take after the grace
SLOW_S = 20 * SCALE  # what a busy machine may add
# Rank 1 opens a file in the file system that hangs; rank 0 waits. rank 1's child is stuck as well,
# in a Unix session of its own.
STUCK = """
echo $$ >$PIDS/$LOCAL_RANK.pid
if [ $LOCAL_RANK = 1 ]; then
    setsid sh -c 'echo $$ >$PIDS/child.pid; exec cat $HANGS/y' &
    exec cat $HANGS/x
fi
exec sleep 1000
"""


def sleeps(fuse, pid):
    """Returns whether SIGKILL cannot end the process. It waits for an answer of the file system,
    which the kernel shows as an interruptible sleep until the first signal; the file system must
    have read the request, because the kernel takes back one that was not read. Or it waits for a
    lock of another such process."""
    fields = stat(pid)
    if fields is not None and read_text(f"/proc/{pid}/wchan") == "request_wait_answer":
        return pid in fuse.readers
    return fields is not None and fields[0] == "D"


def assert_described(said, pid, who):
    line = [line for line in said.splitlines() if f"cannot kill {who}, pid {pid} (cat)" in line]
    assert line, said
    assert " s after SIGKILL, in state D, waiting in the kernel in " in line[0], line


def ends_in_time(tmp, cgroup):
    with HangingFuse(tmp) as fuse:
        with Crun("--shutdown-timeout=1", "--nproc-per-node=2", "--no-python", "/bin/sh", "-c",
                  STUCK, env={"HANGS": str(tmp), "CRUN_CGROUP": cgroup}) as crun:
            pids = [crun.pid_of(name) for name in ("0.pid", "1.pid", "child.pid")]
            until(lambda: sleeps(fuse, pids[1]) and sleeps(fuse, pids[2]),
                  "the uninterruptible sleep")
            warden, begin = crun.warden(), time.monotonic()
            os.kill(crun.pid, signal.SIGTERM)
            assert crun.wait() == 1
            took = time.monotonic() - begin
            assert took < 1 + DEATH_S + SLOW_S, took
            assert_described(crun.said(), pids[1], "rank 1 (local rank 1)")
            assert_described(crun.said(), pids[2], "a process that a worker has started")
            assert "cannot end 2 process(es) of host" in crun.said(), crun.said()
            assert not is_alive(pids[0]) and is_alive(pids[1]) and is_alive(pids[2])
            assert is_alive(warden), "nobody waits for the end of the processes"
            fuse.end()
            assert_gone(pids, "stuck process")
            assert_gone([warden], "the warden")
            until(lambda: not cgroups_of(crun.pid), "the removal of the cgroup")


def test_crun_ends_without_a_cgroup(tmp):
    ends_in_time(tmp, "0")


def test_crun_ends_with_a_cgroup(tmp):
    ends_in_time(tmp, "1")


def test_other_nodes_go_on(tmp):
    """The grace after a failure is 30 s, as torchrun's; so this takes that long."""
    stuck = script(tmp, "stuck", "#!/bin/sh\nexec cat $HANGS/x\n")
    (tmp / "hangs").mkdir()
    with (HangingFuse(tmp / "hangs") as fuse,
          Nodes(tmp, "--nnodes=1:2", "--max-restarts=3") as nodes):
        a = nodes.start_host("a")
        b = nodes.start("b", "--no-python", program=stuck, HANGS=str(tmp / "hangs"))
        worker = wait_for(lambda: [w for w in nodes.workers() if w.world == 2 and w.alive],
                          "a round of both nodes")[0]
        wait_for(lambda: any(sleeps(fuse, p) for p in children(b.process.pid)), "the sleep")
        begin = time.monotonic()
        worker.signal(signal.SIGUSR1)  # fails
        assert b.wait() == 1, b.text
        assert time.monotonic() - begin < 30 + DEATH_S + SLOW_S
        assert "cannot end 1 process(es) of host" in b.text, b.text
        alone = nodes.round(workers=1)[0]
        alone.signal(nodes.WELL)
        assert a.wait() == 0, a.text


if __name__ == "__main__":
    run_tests(globals())
