#!/usr/bin/python3
"""Stops crun, kills its workers one after another, and continues crun. Its report must name the
worker that died first, not the one with the lowest rank."""
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from processes import Crun, is_alive, until  # noqa: E402

SCRIPT = "echo $$ >$PIDS/$LOCAL_RANK.pid; exec sleep 1000"
WORKERS = 4


def check(order):
    with Crun(f"--nproc-per-node={WORKERS}", "--no-python", "/bin/sh", "-c", SCRIPT) as crun:
        pids = [crun.pid_of(f"{rank}.pid") for rank in range(WORKERS)]
        os.kill(crun.pid, signal.SIGSTOP)
        for rank in order:
            os.kill(pids[rank], signal.SIGKILL)
            until(lambda: not is_alive(pids[rank]), f"the death of rank {rank}")
        os.kill(crun.pid, signal.SIGCONT)
        assert crun.wait() == 1
        root = crun.said().split("Root Cause")[-1]
        first = re.search(r"\brank\s*:\s*(\d+)", root)
        assert first is not None, "the report has no root cause"
        assert int(first[1]) == order[0], f"blames rank {first[1]}, rank {order[0]} died first"


check((2, 0, 3, 1))
check((3, 2, 1, 0))
