#!/usr/bin/env python3
"""Tier E: tests the nccl backend on a real GPU. `make check-gpu` runs it and prints a table for
docs/gpu-evidence.md. Without a GPU every row is SKIP with the reason; if CRUN_GPU_REQUIRED=1 is
set and no row passes, the exit status is 1."""

import datetime
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, CRUN, clean_env

WORKER = str(BUILD / "tests" / "gpu" / "gpu_worker")
EXAMPLE = str(BUILD / "examples" / "all_reduce_gpu")


def ask(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""


def start(ranks, argv, **env):
    done = subprocess.run(
        [CRUN, "--standalone", "--max-restarts=1", f"--nproc-per-node={ranks}", *argv],
        capture_output=True, text=True, timeout=300, env=clean_env(**env))
    return done.returncode, done.stdout + done.stderr


def gpus():
    return [
        line
        for line in ask(
            "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"
        ).splitlines()
        if line
    ]


def row(name, ranks, argv, wanted, code=0, **env):
    found = gpus()
    need = 1 if code or name.startswith("two ranks") else ranks
    if not os.path.exists(argv[0]):
        return name, "SKIP", "not built: CUDA or NCCL was not found"
    if len(found) < need:
        return name, "SKIP", f"{len(found)} GPUs here, {need} needed"
    status, text = start(ranks, argv, **env)
    match = re.search(wanted, text)
    if (status == 0) == (code == 0) and match and "FAILED" not in match[0]:
        return name, "PASS", match[0].strip()
    return name, "FAIL", " / ".join(text.strip().splitlines()[:3])


def main():
    found = gpus()
    print(
        f"date {datetime.date.today()}, GPU {found[0] if found else 'none'} x {len(found)}, "
        f"machine {os.uname().release}"
    )
    rows = [
        row("operations, one rank", 1, [WORKER, "operations"], r"ok operations"),
        row("20 groups in one process, leaks", 1, [WORKER, "rounds"], r"(ok|FAILED) rounds.*"),
        row("abort, then a new group in place", 1, [WORKER, "broken"], r"ok broken.*"),
        row("groups split from the world", 1, [WORKER, "split"], r"ok split.*"),
        row("crunrt_rejoin, then a world and a split", 1, [WORKER, "rejoin"], r"ok rejoin.*"),
        row("example all_reduce_gpu", 1, [EXAMPLE], r"\d+ sums right on GPU 0"),
        row("hidden GPUs: CUDA error 100, no fall-back", 1, [EXAMPLE], r"CUDA error 100", code=1,
            CUDA_VISIBLE_DEVICES=""),
        row("more ranks than GPUs: told before anybody waits", len(found) + 1, [EXAMPLE],
            r"choose GPU \d+: only \d+ visible", code=1),
        row("operations, two ranks on two GPUs", 2, [WORKER, "operations"], r"ok operations"),
        row("groups split from the world, two ranks on two GPUs", 2, [WORKER, "split"],
            r"ok split.*"),
        row("crunrt_rejoin, two ranks on two GPUs", 2, [WORKER, "rejoin"], r"ok rejoin.*"),
    ]
    print("\n| what | result | seen |\n| --- | --- | --- |")
    for name, result, seen in rows:
        print(f"| {name} | {result} | {seen} |")
    counts = {r: sum(result == r for _, result, _ in rows) for r in ("PASS", "FAIL", "SKIP")}
    print(f"\n{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    required = os.environ.get("CRUN_GPU_REQUIRED") == "1"
    sys.exit(1 if counts["FAIL"] or (required and counts["PASS"] == 0) else 0)


if __name__ == "__main__":
    main()
