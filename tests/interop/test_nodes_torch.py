#!/usr/bin/env python3
# timeout: 400
"""Real torch DDP on gloo, three hosts in network namespaces: one is lost and comes back, the job
goes on from its checkpoint each time and ends well, with no restart charged."""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import ROOT, SCALE, read_text, run_tests, skip, torch_python, wait_for
from netns import Net
from nodes import Nodes

PROGRAM = ROOT / "tests" / "interop" / "ddp_until_told.py"
PYTHON = torch_python()
if PYTHON is None:
    skip("no Python with torch (Debian: python3-torch)")


class Job:
    def __init__(self, tmp):
        self.checkpoint, self.told = tmp / "checkpoint", tmp / "told"

    def steps(self):
        """(step, ranks) of every step so far."""
        text = read_text(f"{self.checkpoint}.log")
        return [tuple(map(int, line.split())) for line in text[:text.rfind("\n") + 1].splitlines()]

    def trains_with(self, ranks):
        """Waits for twenty more steps by so many ranks."""
        before = len(self.steps())
        wait_for(lambda: sum(r == ranks for _, r in self.steps()[before:]) >= 20,
                 f"{ranks} ranks to train: {self.steps()[-3:]}", 120 * SCALE)


def test_a_host_is_lost_and_comes_back(tmp):
    job = Job(tmp)
    with Net(3) as net, Nodes(tmp, "--nnodes=2:3", endpoint=f"{net.hosts[0].addr}:29400",
                              conf="last_call_timeout=3") as nodes:
        def start(i):
            return nodes.start(f"host{i + 1}", f"--nproc-per-node={1 + (i == 0)}", program=PROGRAM,
                               args=[job.checkpoint, job.told], prefix=net.hosts[i].run,
                               GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", PYTHON_EXEC=PYTHON)
        first, second, third = start(0), start(1), start(2)
        job.trains_with(4)
        third.signal(signal.SIGKILL)
        job.trains_with(3)
        third = start(2)
        job.trains_with(4)
        job.told.touch()
        assert [n.wait(120 * SCALE) for n in (first, second, third)] == [0, 0, 0]
        steps = job.steps()
        groups = [steps[0][1]] + [b for (_, a), (_, b) in zip(steps, steps[1:]) if a != b]
        assert groups == [4, 3, 4], groups
        for (a, _), (b, _) in zip(steps, steps[1:]):
            assert b <= a + 1, (a, b)  # resumed from the checkpoint: nothing left out
        assert steps[-1][0] >= 60 and "restart 0" in first.text and "restart 1" not in first.text


if __name__ == "__main__":
    run_tests(globals())
