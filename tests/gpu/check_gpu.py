#!/usr/bin/env python3
"""Tier E: tests the nccl backend on a real GPU. `make check-gpu` runs it and prints a table for
docs/gpu-evidence.md. Without a GPU every row is SKIP with the reason; if CRUN_GPU_REQUIRED=1 is
set and no row passes, the exit status is 1.

With --dry-run every row runs on the host NCCL (tests/host_nccl), a model in host memory. This tests
the kit itself, so that it works on the day of the first GPU. No row of a dry run is evidence."""

import ctypes
import datetime
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, CRUN, clean_env

DRY_RUN = "--dry-run" in sys.argv
HOST = str((BUILD / "tests" / "host_nccl").resolve())
WORKER = str(BUILD / "tests" / "gpu" / "gpu_worker")
STREAMS = str(BUILD / "tests" / "gpu" / "gpu_streams")
EXAMPLE = str(BUILD / "examples" / "all_reduce_gpu")
failures = []  # of each row that failed, all that it wrote


def ask(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""


def dry_environment():
    """The programs find libcudart of the host NCCL before that of CUDA."""
    if not DRY_RUN:
        return {}
    return {"LD_LIBRARY_PATH": HOST, "CRUNRT_CUDA_LIBRARY": f"{HOST}/libcuda.so.1",
            "CRUNRT_NCCL_LIBRARY": f"{HOST}/libnccl.so.2", "CRUNRT_ALLOW_FAKE_NCCL": "1",
            "HOST_CUDA_DEVICES": "2"}


def start(ranks, argv, restarts, **env):
    env = {**dry_environment(), **env}
    if DRY_RUN and env.get("CUDA_VISIBLE_DEVICES") == "":
        env["HOST_CUDA_DEVICES"] = "0"
    done = subprocess.run(
        [CRUN, "--standalone", f"--max-restarts={restarts}", f"--nproc-per-node={ranks}", *argv],
        capture_output=True, text=True, timeout=300, env=clean_env(**env))
    return done.returncode, done.stdout + done.stderr


def nccl_version():
    """The version of the NCCL that the backend loads, from its own function."""
    if DRY_RUN:
        return "none, this is the host NCCL"
    try:
        version = ctypes.c_int(0)
        name = os.environ.get("CRUNRT_NCCL_LIBRARY", "libnccl.so.2")
        ctypes.CDLL(name).ncclGetVersion(ctypes.byref(version))
        return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"
    except (OSError, AttributeError) as e:
        return f"unknown ({e})"


def gpus():
    if DRY_RUN:
        return ["no GPU, a model in host memory"] * 2
    return [
        line
        for line in ask(
            "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"
        ).splitlines()
        if line
    ]


def row(name, ranks, argv, wanted, code=0, restarts=0, **env):
    """Runs one row. A restart would hide the failure of a first attempt, so there is none, unless
    the row is a test of the next round."""
    found = gpus()
    need = 1 if code or name.startswith("two ranks") else ranks
    if not os.path.exists(argv[0]):
        return name, "SKIP", "not built: CUDA or NCCL was not found"
    if len(found) < need:
        return name, "SKIP", f"{len(found)} GPUs here, {need} needed"
    status, text = start(ranks, argv, restarts, **env)
    match = re.search(wanted, text)
    if (status == 0) == (code == 0) and match and "FAILED" not in match[0]:
        return name, "PASS", match[0].strip()
    failures.append(f"{name}: exit status {status}, and {wanted!r} "
                    f"{'is there' if match else 'is not in what it wrote'}:\n{text}")
    return name, "FAIL", " / ".join(text.strip().splitlines()[:3])


def main():
    found = gpus()
    print(
        f"date {datetime.date.today()}, GPU {found[0] if found else 'none'} x {len(found)}, "
        f"NCCL {nccl_version()}, machine {os.uname().release}"
    )
    if DRY_RUN:
        print("DRY RUN on the host NCCL: no row of this table is evidence of anything about a GPU")
    rows = [
        row("operations, one rank", 1, [WORKER, "operations"], r"ok operations"),
        row("20 groups in one process, leaks", 1, [WORKER, "rounds"], r"(ok|FAILED) rounds.*"),
        row("abort, then a new group in place", 1, [WORKER, "broken"], r"ok broken.*"),
        row("groups split from the world", 1, [WORKER, "split"], r"ok split.*"),
        row("crunrt_rejoin, then a world and a split", 1, [WORKER, "rejoin"], r"ok rejoin.*",
            restarts=1),
        row("every type and reduction", 1, [STREAMS, "types"], r"ok types.*"),
        row("order on every kind of stream", 1, [STREAMS, "order"], r"ok order.*"),
        row("a stream that is stuck, abort, a new group", 1, [STREAMS, "stuck"], r"ok stuck.*",
            CRUNRT_NCCL_ABORT_TIMEOUT_MS="2000"),
        row("CUDA graphs", 1, [STREAMS, "graph"], r"ok graph.*"),
        row("newer calls: factor, counts, registered memory, configuration", 1, [STREAMS, "newer"],
            r"ok newer.*"),
        row("200 groups made and destroyed", 1, [STREAMS, "cycles"], r"ok cycles.*"),
        row("cost of an operation", 1, [STREAMS, "cost"], r"ok cost.*"),
        row("example all_reduce_gpu", 1, [EXAMPLE], r"\d+ sums right on GPU 0"),
        row("hidden GPUs: CUDA error 100, no fall-back", 1, [EXAMPLE], r"CUDA error 100", code=1,
            CUDA_VISIBLE_DEVICES=""),
        row("more ranks than GPUs: told before anybody waits", len(found) + 1, [EXAMPLE],
            r"choose GPU \d+: only \d+ visible", code=1),
        row("operations, two ranks on two GPUs", 2, [WORKER, "operations"], r"ok operations"),
        row("two ranks: every type and reduction", 2, [STREAMS, "types"], r"ok types.*"),
        row("two ranks: order on every kind of stream", 2, [STREAMS, "order"], r"ok order.*"),
        row("two ranks: CUDA graphs", 2, [STREAMS, "graph"], r"ok graph.*"),
        row("two ranks: newer calls", 2, [STREAMS, "newer"], r"ok newer.*"),
        row("two ranks: cost of an operation", 2, [STREAMS, "cost"], r"ok cost.*"),
        row("groups split from the world, two ranks on two GPUs", 2, [WORKER, "split"],
            r"ok split.*"),
        row("crunrt_rejoin, two ranks on two GPUs", 2, [WORKER, "rejoin"], r"ok rejoin.*",
            restarts=1),
    ]
    print("\n| what | result | seen |\n| --- | --- | --- |")
    for name, result, seen in rows:
        print(f"| {name} | {result} | {seen} |")
    counts = {r: sum(result == r for _, result, _ in rows) for r in ("PASS", "FAIL", "SKIP")}
    print(f"\n{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    for failure in failures:
        print(f"\nFAILED {failure}")
    required = os.environ.get("CRUN_GPU_REQUIRED") == "1"
    sys.exit(1 if counts["FAIL"] or (required and counts["PASS"] == 0) else 0)


if __name__ == "__main__":
    main()
