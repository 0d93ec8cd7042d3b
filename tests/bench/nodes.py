#!/usr/bin/env python3
"""Several launchers on this machine as the nodes of one job: crun, and torchrun beside it in the
same run.

    tests/bench/nodes.py [K…]       default 2 8 32

For each K: from starting K launchers (one worker each) until the last worker runs; a worker of the
last node is killed: until the workers of all other nodes are gone, and until all run again; a
launcher is killed (elastic job, last call 0.1 s): until the others' workers are gone, and until the
smaller group runs. Milliseconds, median of three. torchrun is measured for the start only, once,
and only if K torchruns fit into memory; its other times depend mostly on its polling.
"""
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))
from crun_test import CRUN, clean_env, torch_python
from free_port import free_port
from nodes import PYTHON

RUNS = 3
WORKER = r"""#!/bin/sh
# One line when it runs: pid, rank, world size, store port, time.
echo "$$ $RANK $WORLD_SIZE $MASTER_PORT $(date +%s.%N)" >> "$BENCH_LOG"
exec sleep 600
"""


class Group:
    def __init__(self, tmp, command, nodes, env=None):
        self.log, self.worker = tmp / "log", tmp / "worker"
        self.log.write_text("")
        self.worker.write_text(WORKER)
        self.worker.chmod(0o755)
        environment = clean_env(BENCH_LOG=self.log, **(env or {}))
        out = open(tmp / "out", "w")
        self.began = time.time()
        self.launchers = [subprocess.Popen([*command(i), self.worker], env=environment,
                                           stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=out, start_new_session=True)
                                           for i in range(nodes)]
        out.close()

    def running(self, world, before=()):
        """Waits for a round of `world` workers with none of the pids in `before`. Returns
        its workers, sorted by rank, as (rank, pid, start time)."""
        while True:
            groups = {}
            for line in self.log.read_text().splitlines():
                pid, rank, size, port, at = line.split()
                if int(pid) not in before and int(size) == world:
                    groups.setdefault(port, []).append((int(rank), int(pid), float(at)))
            for group in groups.values():
                if len(group) == world:
                    return sorted(group)
            time.sleep(0.002)

    def stop(self):
        """Kills the launchers, and the workers that a killed torchrun leaves behind."""
        for p in self.launchers:
            if p.poll() is None:
                p.kill()
            p.wait()
        for line in self.log.read_text().splitlines():
            pid = line.split()[0]
            if self.is_worker(pid):
                os.kill(int(pid), signal.SIGKILL)

    def is_worker(self, pid):
        """Returns whether the process still is a worker of this group, and not another process
        that has got its pid: the environment of a worker names the group's log."""
        try:
            return f"BENCH_LOG={self.log}".encode() in \
                pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def gone_ms(pids, do):
    """Calls do(), then waits until all processes in `pids` have ended. Returns the milliseconds."""
    fds = [os.pidfd_open(p) for p in pids]
    began = time.monotonic()
    do()
    for fd in fds:
        select.select([fd], [], [])
        os.close(fd)
    return 1000 * (time.monotonic() - began)


def crun(endpoint, nnodes, *more):
    # is_host makes node 0 the hosting node, even if another node starts earlier.
    return lambda i: [CRUN, f"--nnodes={nnodes}", "--rdzv-backend=c10d",
                      f"--rdzv-endpoint={endpoint}",
                      "--rdzv-id=bench", "--max-restarts=1", *more,
                      f"--rdzv-conf=last_call_timeout=0.1,is_host={int(i == 0)}"]


def in_folder(measure):
    with tempfile.TemporaryDirectory() as tmp:
        return measure(pathlib.Path(tmp))


def start_and_fail(tmp, k):
    g = Group(tmp, crun(f"127.0.0.1:{free_port()}", k), k)
    try:
        first = g.running(k)
        start = 1000 * (max(at for _, _, at in first) - g.began)
        victim, others = first[-1][1], [pid for _, pid, _ in first[:-1]]
        killed = time.time()
        stop = gone_ms(others, lambda: os.kill(victim, signal.SIGKILL))
        second = g.running(k, {pid for _, pid, _ in first})
        return start, stop, 1000 * (max(at for _, _, at in second) - killed)
    finally:
        g.stop()


def lose(tmp, k):
    g = Group(tmp, crun(f"127.0.0.1:{free_port()}", f"{k - 1}:{k}"), k)
    try:
        before = set()
        first = g.running(k)
        before = {pid for _, pid, _ in first}
        mine = {pid: int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
                for pid in before}
        lost = g.launchers[-1]
        others = [pid for pid in before if mine[pid] != lost.pid]
        killed = time.time()
        stop = gone_ms(others, lost.kill)
        second = g.running(k - 1, before)
        return stop, 1000 * (max(at for _, _, at in second) - killed)
    finally:
        g.stop()


def torchrun(tmp, k, python):
    endpoint = f"127.0.0.1:{free_port()}"
    runner = ROOT / "tests" / "lib" / "torchrun.py"
    command = [python, runner] if runner.exists() else [python, "-m", "torch.distributed.run"]
    g = Group(tmp, lambda i: [*command, f"--nnodes={k}", "--rdzv_backend=c10d",
                              f"--rdzv_endpoint={endpoint}",
                              "--rdzv_id=bench", "--monitor_interval=0.1", "--no_python"], k)
    try:
        return 1000 * (max(at for _, _, at in g.running(k)) - g.began)
    finally:
        g.stop()


def fits(k):
    """Returns whether k torchruns fit into the free memory. One needs about 240 MiB; this
    function assumes 300 MiB."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return k * 300 * 1024 < kib


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def main():
    python = torch_python()
    print(f"{'K':>4} {'start':>8} {'torchrun':>9} {'worker dies: stopped':>21} {'again':>7} "
          f"{'launcher dies: stopped':>23} {'again':>7}   ms, median of {RUNS}")
    for k in [int(a) for a in sys.argv[1:]] or [2, 8, 32]:
        start, stop, again = medians([in_folder(lambda t: start_and_fail(t, k))
                                      for _ in range(RUNS)])
        lost, shrunk = medians([in_folder(lambda t: lose(t, k)) for _ in range(RUNS)])
        peer = "-"
        if python is not None and fits(k):
            peer = f"{in_folder(lambda t: torchrun(t, k, python)):.0f}"
        print(f"{k:>4} {start:>8.0f} {peer:>9} {stop:>21.1f} {again:>7.0f} "
              f"{lost:>23.1f} {shrunk:>7.0f}", flush=True)


main()
