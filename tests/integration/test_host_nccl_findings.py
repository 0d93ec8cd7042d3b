#!/usr/bin/env python3
# timeout: 300
"""Runs one program on the host NCCL for each finding of the review of the nccl backend. A program
that tests/host_nccl/findings/findings.txt marks "known" is expected to fail, and the test prints a
line about it; all others must pass. A program that does not end is a failure in either case,
because it does not show which promise is broken.
"""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BUILD, Store, Worker, contract, host_nccl, skip

FOLDER = os.path.abspath(f"{BUILD}/tests/host_nccl/findings")
LIMIT_S = 12 * float(os.environ.get("CK_TIMEOUT_MULTIPLIER", "1"))
HANGS = "it hangs"
TABLE = "tests/host_nccl/findings/findings.txt"
if not os.path.exists(FOLDER):
    skip("the host NCCL was not built (no CUDA or NCCL headers)")


def end(workers):
    """Waits at most LIMIT_S for all workers to end, then kills those that still run."""
    deadline = time.monotonic() + LIMIT_S
    for w in workers:
        try:
            w.process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            w.process.kill()
            w.process.wait()
    return workers


def run(ranks, program, environment):
    """Runs the program. Returns None if every rank reports "kept" and ends with 0, otherwise a text
    about the first rank that does not. The text begins with HANGS if that rank had to be killed: a
    program must report a broken promise, also one that makes it wait."""
    extra = dict(word.split("=", 1) for word in environment)
    argv = [f"{FOLDER}/{program}"]
    if extra.pop("LAUNCHER", None) == "crun":
        crun = [f"{BUILD}/bin/crun", "--nproc-per-node", str(ranks), "--max-restarts", "3"]
        workers = end([Worker(crun + argv, dict(os.environ, **host_nccl(), **extra))])
    else:
        with Store() as store:
            workers = end([Worker(argv, contract(store, r, ranks, **host_nccl(), **extra))
                           for r in range(ranks)])
    for r, w in enumerate(workers):
        lines = w.text().splitlines()
        broken = [line for line in lines if "BROKEN" in line or "host nccl: RACE" in line]
        if w.code != 0 or broken or not any("kept" in line for line in lines):
            if w.code == -signal.SIGKILL and not broken:
                return f"{HANGS} after {LIMIT_S:g} s, rank {r}: {(lines or ['no output'])[-1]}"
            return f"rank {r}, exit {w.code}: {(broken or lines or ['no output'])[0]}"
    return None


with open(TABLE, encoding="utf-8") as f:
    rows = [line.split() for line in f if line.strip() and not line.startswith("#")]
failed = False
with concurrent.futures.ThreadPoolExecutor(4) as pool:  # the programs mostly wait
    results = list(pool.map(lambda row: run(int(row[2]), row[3], row[4:]), rows))
for (state, finding, _, program, *_), broken in zip(rows, results):
    if broken is not None and broken.startswith(HANGS):
        print(f"FAIL: {finding} ({program}): {broken}")
        failed = True
    elif state == "known" and broken is not None:
        print(f"known: {finding} ({program}) fails today: {broken[:180]}")
    elif state == "known":
        print(f"FAIL: {finding} ({program}) passes now: write 'kept' instead of 'known' in {TABLE}")
        failed = True
    elif broken is not None:
        print(f"FAIL: {finding} ({program}): {broken}")
        failed = True
    else:
        print(f"kept: {finding} ({program})")
sys.exit(1 if failed else 0)
