#!/usr/bin/python3
"""A crun that is stopped (SIGSTOP) or frozen (cgroup freezer) cannot stop its workers when its
lease ends. Its warden does, before the other nodes form their next round. When crun goes on, it
says so and joins again; nothing is charged."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from crun_test import PACE, run_tests, skip, wait_for  # noqa: E402
from nodes import Nodes  # noqa: E402
from processes import cgroup_delegated, cgroup_root  # noqa: E402

# 2 s. The warden has to run before the lease is over, and a slow build gets longer for that.
BEAT_S = 0.5 * PACE
LEASE = f"keep_alive_interval={BEAT_S},keep_alive_max_attempt=4,last_call_timeout=0.3"


def check(tmp, hold, release, conf=LEASE):
    with Nodes(tmp, "--nnodes=1:2", "--max-restarts=0", conf=conf) as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        both = nodes.round(workers=2)
        of_b = next(worker for worker in both if worker.node == "b")
        hold(b.process.pid)
        # the worker must be dead when the coordinator gives up the node, and logs that
        wait_for(lambda: "is over" in a.text, "the end of the round on a")
        assert not of_b.alive, "the worker of the stopped crun runs into the next round"
        nodes.round(workers=1)
        release(b.process.pid)
        wait_for(lambda: "the warden has ended the workers" in b.text, "what b says")
        again = nodes.round(workers=2)
        for worker in again:
            assert worker.restarts == 0, "standing still was charged as a failure"
            worker.signal(nodes.WELL)
        assert a.wait() == 0, a.text
        assert b.wait() == 0, b.text


def test_stopped(tmp):
    check(tmp, lambda pid: os.kill(pid, signal.SIGSTOP), lambda pid: os.kill(pid, signal.SIGCONT))


def test_stopped_host(tmp):
    """The stopped crun hosts the coordinator: the other nodes elect a successor."""
    with Nodes(tmp, "--nnodes=2:3", "--max-restarts=0", conf=LEASE) as nodes:
        a, others = nodes.start_host("a"), [nodes.start("b"), nodes.start("c")]
        of_a = next(worker for worker in nodes.round(workers=3) if worker.node == "a")
        a.signal(signal.SIGSTOP)
        nodes.round(workers=2)
        assert not of_a.alive, "the worker of the stopped host runs into the next round"
        a.signal(signal.SIGCONT)
        for worker in nodes.round(workers=3):
            assert worker.restarts == 0, "standing still was charged as a failure"
            worker.signal(nodes.WELL)
        for node in (a, *others):
            assert node.wait() == 0, node.text


def test_frozen(tmp):
    if not cgroup_delegated():
        skip("no cgroup v2 is delegated here")
    group = cgroup_root() / f"crun-test-frozen-{os.getpid()}"
    group.mkdir()

    def freeze(pid):
        (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text("1")

    def thaw(pid):
        (group / "cgroup.freeze").write_text("0")
        (cgroup_root() / "cgroup.procs").write_text(str(pid))

    try:
        check(tmp, freeze, thaw)
    finally:
        (group / "cgroup.freeze").write_text("0")
        for pid in (group / "cgroup.procs").read_text().split():
            (cgroup_root() / "cgroup.procs").write_text(pid)
        group.rmdir()


if __name__ == "__main__":
    run_tests(globals())
