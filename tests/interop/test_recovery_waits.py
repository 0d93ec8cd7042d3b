#!/usr/bin/env python3
# timeout: 600
"""Recovery in place of stock PyTorch when a rank dies at a moment at which Gloo would not notice:
in the middle of a large message, or while the ranks regroup. The survivors must go on in their
processes; without the help of crunrt/_gloo.py they wait for the group's timeout of 30 minutes.
`make interop-recovery` runs it."""
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, ROOT, SCALE, alive, clean_env, read_text  # noqa: E402
from crun_test import python_that_reconfigures, run_tests, signal, wait_for  # noqa: E402

PYTHON = python_that_reconfigures("interop-recovery")
PATIENCE = 120 * SCALE
DEATHS = 4
QUIET_S = 0.5

WORKER = """
import os, pathlib, signal, sys, time
import torch, torch.distributed as dist
import crunrt.recovery

how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
torch.set_num_threads(1)

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

if how == "regroup" and os.environ["RANK"] == "2":
    number = len(list(folder.glob("died*")))
    if number < int(sys.argv[3]):
        set_key = crunrt.recovery._RoundStore.set
        def set_and_die(store, key, value):
            set_key(store, key, value)
            if "/reconfigure/" in key:
                (folder / f"died{number}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        crunrt.recovery._RoundStore.set = set_and_die

recovery = crunrt.recovery.Recovery(torch.nn.Linear(4, 4), wrap=lambda module: module)
data = torch.ones((128 << 20 if how == "message" else 4) // 4)
say("pid", os.getpid(), "rank", dist.get_rank(), "begins")


for step in recovery.steps(10 if how == "regroup" else 1 << 40):
    with recovery:
        say("pid", os.getpid(), "step", step, "recoveries", recovery.recoveries)
        dist.broadcast(data, 0)
say("pid", os.getpid(), "ends")
"""


class Job:
    """Three ranks on one node that run WORKER."""

    def __init__(self, tmp, how):
        self.path = tmp / "out"
        path = tmp / "worker.py"
        path.write_text(WORKER)
        env = clean_env(PYTHONPATH=ROOT / "python", PYTHON_EXEC=PYTHON, OMP_NUM_THREADS=1,
                        CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0", CUDA_VISIBLE_DEVICES="",
                        GLOO_SOCKET_IFNAME="lo")
        with open(self.path, "w") as out:
            self.crun = subprocess.Popen([CRUN, "--nproc-per-node=3", "--max-restarts=100",
                                          "--preload=torch._dynamo,crunrt.recovery",
                                          path, how, tmp, str(DEATHS)], stdout=out, stderr=out,
                                         env=env)

    def text(self):
        return read_text(self.path)

    def pid_of(self, rank):
        """The process that was the last to begin as this rank, or None."""
        found = re.findall(rf"pid (\d+) rank {rank} begins", self.text())
        return int(found[-1]) if found else None

    def recoveries(self, pid):
        """How often this process had recovered when it began its last step; -1: no step yet."""
        found = re.findall(rf"pid {pid} step \d+ recoveries (\d+)", self.text())
        return int(found[-1]) if found else -1

    def wait_for(self, condition, what):
        def check():
            assert self.crun.poll() is None, self.text()
            return condition()
        try:
            return wait_for(check, what, PATIENCE)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.text()[-4000:]}") from None

    def wait_until_quiet(self):
        """Waits until no rank has made a step for QUIET_S."""
        seen = [None, 0]

        def is_quiet():
            size = self.path.stat().st_size
            if size != seen[0]:
                seen[:] = size, time.monotonic()
            return time.monotonic() - seen[1] > QUIET_S
        self.wait_for(is_quiet, "the survivors to wait")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.crun.kill()
        self.crun.wait()


def test_a_rank_dies_within_a_message(tmp):
    with Job(tmp, "message") as job:
        for number in range(DEATHS):
            # Lines of different ranks may come in any order, so wait for those of each rank.
            job.wait_for(lambda: all(job.pid_of(r) and job.recoveries(job.pid_of(r)) >= 0
                                     for r in range(3)), "the steps of all ranks")
            survivors, victim = [job.pid_of(0), job.pid_of(1)], job.pid_of(2)
            # While the victim is stopped, the other ranks fill its socket, so their message is half
            # sent.
            os.kill(victim, signal.SIGSTOP)
            job.wait_until_quiet()
            os.kill(victim, signal.SIGKILL)
            job.wait_for(lambda: all(job.recoveries(p) == number + 1 for p in survivors),
                         f"the survivors' next step after death {number + 1}")
            assert all(alive(p) for p in survivors), job.text()
            job.wait_for(lambda: job.pid_of(2) != victim, "the replacement")
        assert "is killed" not in job.text(), job.text()


def test_a_rank_dies_while_all_regroup(tmp):
    with Job(tmp, "regroup") as job:
        assert job.crun.wait(PATIENCE) == 0, job.text()
        text = job.text()
        assert len(list(tmp.glob("died*"))) == DEATHS, text
        for rank in range(2):
            assert len(re.findall(rf"rank {rank} begins", text)) == 1, text
        assert len(re.findall(r"pid \d+ ends", text)) == 3, text
        assert "is killed" not in text, text


def test_gloo_writes_addresses_as_expected(tmp):
    (tmp / "parse.py").write_text(
        "import socket, struct\n"
        "from crunrt._gloo import parse_address\n"
        "storage = struct.pack('=H', socket.AF_INET) + struct.pack('!H', 80)\n"
        "storage += bytes([10, 0, 0, 1])\n"
        "storage += bytes(128 - len(storage)) + struct.pack('=q', -1)\n"
        "value = struct.pack('=q', 4) + b'host' + struct.pack('=q', len(storage)) + storage\n"
        "assert parse_address(value, 2) == ('10.0.0.1', 80, [0, 1])\n"
        "value += struct.pack('=3q', 7, 8, 9)\n"
        "assert parse_address(value, 3) == ('10.0.0.1', 80, [7, 8, 9])\n"
        "for bad in (b'', value[:9], value[:-1], value + b'x'):\n"
        "    try: parse_address(bad, 3)\n"
        "    except (ValueError, struct.error): continue\n"
        "    raise SystemExit(bad)\n")
    done = subprocess.run([PYTHON, tmp / "parse.py"], capture_output=True, text=True,
                          env=clean_env(PYTHONPATH=ROOT / "python"))
    assert done.returncode == 0, done


if __name__ == "__main__":
    run_tests(globals())
