#!/usr/bin/env python3
# timeout: 300
"""Ranks that make different calls. With CRUNRT_DEBUG=1 all ranks fail with one sentence that
names both calls. Without it they time out, and the error names the calls; they never get a wrong
result, and no process is ended. The flight record shows the operations."""

import json
import os
import re
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import (Store, expect, expect_all, fail, need_backend, run_workers, start_workers,
                     wait_for)

need_backend()

for how, other in (
    ("kind", "broadcast(float32 x 64, root 0)"),
    ("count", "all_reduce(float32 x 32, sum)"),
):
    with Store() as store:
        workers = run_workers(store, 3, ["crunrt_worker", "mismatch", how], CRUNRT_DEBUG="1")
    expect_all(workers, 3, "error -71", "mismatched collectives at #10",
               "all_reduce(float32 x 64, sum)", other, "rank 1")
    sentences = {
        re.search(r"mismatched collectives.*? called .*? called [^)]*\)", w.text())[0]
        for w in workers
    }
    if len(sentences) != 1:
        fail(workers, f"the ranks say different things: {sentences}")
    if any(int(re.search(r"keys (\d+)", w.text())[1]) > 30 for w in workers):
        fail(workers, "the checks' keys pile up in the store")

with Store() as store:
    workers = run_workers(store, 3, ["crunrt_worker", "mismatch", "counts"], CRUNRT_DEBUG="1")
expect_all(
    workers,
    3,
    "error -71",
    "mismatched collectives at #11: in all_to_all_counts(float32) rank 2 sends 2 "
    "elements to rank 1, which expects 3",
)

with Store() as store:  # a rank that waits for the other calls learns that one rank gave up
    workers = run_workers(store, 3, ["crunrt_worker", "mismatch", "alone"], CRUNRT_DEBUG="1")
expect(workers, 1, 3, "error -110")
expect(workers, 0, 3, "error -104", "another rank failed: rank 1: ")

for how, calls in (
    ("reduce", "all_reduce(float32 x "),
    ("short", "broadcast(float32 x "),
    ("message", ""),
    ("counts", "all_to_all_counts(float32"),
):
    with Store() as store:
        workers = run_workers(store, 3, ["crunrt_worker", "differ", how])
    expect_all(workers, 3, "error -1")
    if how != "counts" and not any(f"was in {calls}" in w.text() for w in workers):
        fail(workers, f"nobody says who was in another call ({how})")

with tempfile.TemporaryDirectory() as folder, Store() as store:
    workers = start_workers(
        store, 3, ["crunrt_worker", "lose", "kill", "2"], CRUNRT_FLIGHT_FILE=f"{folder}/rank"
    )
    wait_for(workers)
    expect(workers, 2, -signal.SIGKILL)
    for rank in (0, 1):
        with open(f"{folder}/rank{rank}.json", encoding="utf-8") as f:
            record = json.load(f)
        entries = record["entries"]
        if (record["rank"], record["world_size"], len(entries)) != (rank, 3, 11):
            fail(workers, f"flight record {record}")
        last = entries[-1]
        if [e["state"] for e in entries] != ["completed"] * 10 + ["failed"]:
            fail(workers, f"states {[e['state'] for e in entries]}")
        if (last["op"], last["seq"], last["group"], last["count"]) != (
            "all_reduce",
            10,
            "world",
            256,
        ):
            fail(workers, f"last entry {last}")
        if not all(e["started_ns"] <= e["ended_ns"] for e in entries) or not re.search(
            r"no sign of rank [01, ]*2", record["reason"]
        ):
            fail(workers, f"flight record {record}")
with tempfile.TemporaryDirectory() as folder, Store() as store:  # dumps and reads at the same time
    workers = run_workers(store, 1, ["crunrt_worker", "flight", f"{folder}/rank0.json"],
                          CRUNRT_FLIGHT_FILE=f"{folder}/rank")
    expect(workers, 0, 0)
    with open(f"{folder}/rank0.json", encoding="utf-8") as f:
        entries = json.load(f)["entries"]
    if len(entries) != 2000 or {(e["op"], e["state"]) for e in entries} != {
        ("barrier", "completed")
    }:
        fail(workers, f"flight record: {len(entries)} entries, the last {entries[-1]}")
    if os.listdir(folder) != ["rank0.json"]:
        fail(workers, f"left behind: {os.listdir(folder)}")
print("PASS")
