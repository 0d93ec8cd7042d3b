#!/usr/bin/python3
"""After kill -9 of the warden the workers run on, and crun starts another warden, which ends them
when crun is killed later. If crun and the warden are killed together, the parent-death signal ends
the workers, and the next crun removes the empty cgroup."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from processes import Crun, assert_gone, cgroups_of, is_alive, start_hostile, until  # noqa: E402


def another_takes_its_place():
    crun, pids = start_hostile(env={"CRUN_CGROUP": "0"})
    with crun:
        for _ in range(3):
            first = crun.warden()
            os.kill(first, signal.SIGKILL)
            until(lambda: not is_alive(first) and crun.warden() != first, "another warden")
            assert all(is_alive(pid) for pid in pids)
            assert crun.process.poll() is None
        last = crun.warden()
        os.kill(crun.pid, signal.SIGKILL)
        assert_gone(pids, "worker or descendant")
        assert_gone([last], "the last warden")


def both_at_once():
    script = "echo $$ >$PIDS/$LOCAL_RANK.pid; exec sleep 1000"
    with Crun("--nproc-per-node=2", "--no-python", "/bin/sh", "-c", script) as crun:
        pids = [crun.pid_of(f"{rank}.pid") for rank in range(2)]
        warden = crun.warden()
        os.kill(crun.pid, signal.SIGSTOP)  # a stopped crun cannot start another warden
        os.kill(warden, signal.SIGKILL)
        os.kill(crun.pid, signal.SIGKILL)
        assert_gone(pids, "worker")
        assert crun.wait() == -signal.SIGKILL


    def another_tidies():
        with Crun("--no-python", "/bin/true") as another:
            assert another.wait() == 0
        return not cgroups_of(crun.pid)

    until(another_tidies, "the removal of the cgroup by another crun")


another_takes_its_place()
both_at_once()
