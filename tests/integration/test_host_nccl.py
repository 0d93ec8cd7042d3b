#!/usr/bin/env python3
# timeout: 300
"""The host NCCL (tests/host_nccl), tested by itself: what it models of NCCL and CUDA, its races,
its faults. Nothing here is a run of NCCL."""

import os
import sys
import tempfile

os.environ.setdefault("CRUN_TEST_DEADLINE", "30")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BUILD, contract, expect, expect_all, fail, skip, wait_for, Worker

MODEL = os.path.abspath(f"{BUILD}/tests/host_nccl/model")
if not os.path.exists(MODEL):
    skip("the host NCCL was not built (no CUDA or NCCL headers)")


def model(size, *argv, among=None, **extra):
    with tempfile.TemporaryDirectory() as folder:
        return wait_for(
            [
                Worker([MODEL, *argv], contract(None, r, size, MODEL_ID=f"{folder}/id", **extra))
                for r in range(size)
            ],
            among,
        )


for size, *argv in (
    (1, "fp8"),
    (2, "fp8"),
    (1, "capture"),
    (2, "capture"),
    (2, "nonblocking"),
    (3, "blocking"),
    (2, "abort"),
    (4, "split"),
    (3, "messages"),
    (1, "illegal"),
    (2, "ops"),
):
    expect_all(model(size, *argv), 0, f"{argv[0]} right")
    print(f"{' '.join(argv)}: {size} ranks")
for how in ("revoke", "abort"):  # the last rank leaves
    workers = model(3, "shrink", how)
    for r in range(2):
        expect(workers, r, 0, "shrink right")
expect(model(2, "remote", HOST_NCCL_NET="socket"), 0, 0, "remote right",
       "the connection to rank 1 is lost")

# Races: two operations that nothing orders end the process, with one line that names both.
for how in ("event", "host", "same"):
    expect_all(model(1, "race", how), 0, "race right")
for how, first, second in (
    ("kernel", "the program's kernel (operation 1", "ncclAllReduce (operation 1"),
    ("copy", "cudaMemcpy (operation", "ncclAllReduce (operation 1"),
    ("after", "the program's kernel (operation 1", "ncclAllReduce (operation 1"),
):
    workers = model(1, "race", how)
    lines = [line for line in workers[0].text().splitlines() if "RACE" in line]
    expect(workers, 0, 97)
    if (
        len(lines) != 1
        or first not in lines[0]
        or second not in lines[0]
        or "nothing orders them" not in lines[0]
    ):
        fail(workers, f"{how}: {lines}")
if os.path.basename(BUILD) == "tsan":
    print("left out: a race that the program survives; ThreadSanitizer would report it, too")
else:
    expect_all(model(1, "race", "kernel", HOST_NCCL_RACE="report"), 1, "RACE: cudaMemcpy")

# Faults at the call that they are ordered for.
expect_all(model(2, "fault", HOST_NCCL_FAULT="ncclAllReduce:2:ncclSystemError"), 0, "fault right")
expect(model(2, "blocking", among=[0], HOST_NCCL_FAULT="kernel:2:cuda719@0"), 0, 1,
       "CUDA error 719 is sticky")

with tempfile.TemporaryDirectory() as folder:  # counters
    model(1, "blocking", HOST_NCCL_COUNTERS=f"{folder}/count")
    with open(f"{folder}/count.0", encoding="utf-8") as f:
        counters = dict(line.split() for line in f)
    if counters.get("ncclAllReduce") != "5" or counters.get("kernels") != "5":
        print(f"FAIL: counters {counters}")
        sys.exit(1)
print("PASS")
