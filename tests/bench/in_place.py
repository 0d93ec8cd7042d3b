#!/usr/bin/env python3
"""Measures the time from the kill -9 of a worker until every rank has made its first step of the
next round: once with workers that go on in their processes (crunrt_can_rejoin), once with all
workers started again.

    tests/bench/in_place.py [RANKS [ROUNDS]]
"""
import os
import re
import signal
import statistics
import subprocess
import sys
import time

BUILD = os.environ.get("BUILD", "build")
RANKS = int(sys.argv[1]) if len(sys.argv) > 1 else 4
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 15
BEGINS = re.compile(r"rank (\d+) of \d+: round \d+ of process (\d+) begins")


class Job:
    def __init__(self, *args):
        self.process = subprocess.Popen(
            [f"{BUILD}/bin/crun", f"--nproc-per-node={RANKS}", f"--max-restarts={ROUNDS}",
             f"{BUILD}/examples/elastic", "1000000000", "--pace-ms", "1", *args],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1"))

    def all_begun(self):
        """Waits until all ranks have made the first step of a round. Returns {rank: pid}. If
        the job ends earlier, the benchmark ends with an error."""
        pids = {}
        while len(pids) < RANKS:
            line = self.process.stdout.readline()
            if line == "":
                sys.exit("the job has ended")
            m = BEGINS.match(line)
            if m:
                pids[int(m[1])] = int(m[2])
        return pids


def measure(*args):
    job, times, kept = Job(*args), [], []
    pids = job.all_begun()
    for n in range(ROUNDS):
        begin = time.monotonic()
        os.kill(pids[1 + n % (RANKS - 1)], signal.SIGKILL)
        now = job.all_begun()
        times.append((time.monotonic() - begin) * 1000)
        kept.append(len(set(pids.values()) & set(now.values())))
        pids = now
    job.process.terminate()
    job.process.wait()
    return times, statistics.median(kept)


in_place, kept = measure()
anew, none = measure("--start-anew")
for name, times, n in (("in place", in_place, kept), ("all anew", anew, none)):
    print(f"{RANKS} ranks, {name}: median {statistics.median(times):6.1f} ms, "
          f"fastest {min(times):6.1f}, slowest {max(times):7.1f}, processes kept {n:g}")
print(f"anew / in place: {statistics.median(anew) / statistics.median(in_place):.2f}")
