#!/usr/bin/python3
# timeout: 300
"""SIGTERM to crun: after --shutdown-timeout crun kills workers that ignore SIGTERM and all their
descendants. Further signals hasten the end. crun sends SIGCONT to a stopped worker, so
that the worker can handle SIGTERM. crun's exit status is 1."""
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from processes import Crun, assert_gone, cgroups_of, start_hostile, until  # noqa: E402


def once():
    for cgroup in ("0", "1"):
        crun, pids = start_hostile("--shutdown-timeout=1", env={"CRUN_CGROUP": cgroup})
        with crun:
            warden = crun.warden()
            os.kill(crun.pid, signal.SIGTERM)
            assert crun.wait() == 1, crun.process.returncode
            left = [pid for pid in pids + [warden] if is_there(pid)]
            assert not left, f"{left} are there after crun has ended"
            assert not cgroups_of(crun.pid)


def is_there(pid):
    return os.path.exists(f"/proc/{pid}")


def twice():
    script = ("trap 'echo x >>$PIDS/heard' TERM; echo $$ >$PIDS/worker.pid; "
              "while :; do sleep 0.05; done")
    with Crun("--shutdown-timeout=10", "--no-python", "/bin/sh", "-c", script) as crun:
        worker = crun.pid_of("worker.pid")
        heard = crun.path / "heard"
        for count in (1, 2):
            os.kill(crun.pid, signal.SIGTERM)
            until(lambda: heard.exists() and heard.read_text().count("x") >= count,
                  f"SIGTERM {count}")
        assert crun.wait() == 1
        assert_gone([worker], "the worker")


def hastened():
    """Whoever presses ^C again does not want to wait: one more after a second or later leaves 5 s,
    and the next one none. Two within a second may be one that was delivered twice."""
    script = ("trap 'echo x >>$PIDS/heard' TERM; echo $$ >$PIDS/worker.pid; "
              "while :; do sleep 0.05; done")
    with Crun("--shutdown-timeout=1000", "--no-python", "/bin/sh", "-c", script) as crun:
        worker = crun.pid_of("worker.pid")
        heard = crun.path / "heard"
        os.kill(crun.pid, signal.SIGTERM)
        until(lambda: heard.exists(), "SIGTERM")
        begin = time.monotonic()  # crun has heard it before
        os.kill(crun.pid, signal.SIGTERM)
        until(lambda: time.monotonic() > begin + 1.2, "a second")
        assert is_there(worker)
        os.kill(crun.pid, signal.SIGTERM)
        until(lambda: "x" in heard.read_text(), "SIGTERM")
        os.kill(crun.pid, signal.SIGTERM)
        assert crun.wait() == 1 and time.monotonic() < begin + 100
        assert_gone([worker], "the worker")


def a_stopped_worker():
    script = ("trap 'echo 1 >$PIDS/obeyed; exit 0' TERM; echo $$ >$PIDS/$LOCAL_RANK.pid; "
              "while [ ! -e $PIDS/fail.$LOCAL_RANK ]; do sleep 0.05; done; exit 3")
    with Crun("--nproc-per-node=2", "--no-python", "/bin/sh", "-c", script) as crun:
        pids = [crun.pid_of(f"{rank}.pid") for rank in range(2)]
        os.kill(pids[0], signal.SIGSTOP)
        (crun.path / "fail.1").touch()
        assert crun.wait() == 1
        assert (crun.path / "obeyed").exists()
        assert_gone(pids, "worker")


once()
twice()
hastened()
a_stopped_worker()
