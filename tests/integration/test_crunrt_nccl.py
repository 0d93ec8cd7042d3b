#!/usr/bin/env python3
# timeout: 300
"""The nccl backend on a machine without a GPU.

Tier B: the real libraries, if they are installed. A program that asks for nccl gets an error
with the CUDA error code, and no other backend. Tier C: a fake NCCL, which tests only our own
code with non-blocking communicators: phases, timeouts, order of teardown, ids. It proves nothing
about NCCL itself."""

import contextlib
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from fake_agent import FakeAgent
from link_worker import REJOIN
from workers import (BUILD, Store, Worker, contract, expect, expect_all, fail, program, run_workers,
                     skip, wait_for)

if not os.path.exists(f"{BUILD}/lib/crunrt/nccl.so"):
    with Store() as store:
        expect(run_workers(store, 1, ["crunrt_worker", "backend", "nccl"]), 0, 3, "error -2",
               "module 'nccl'")
    skip("the nccl backend was not built (no CUDA or NCCL headers); its absence is told clearly")

# ---- tier B ----
with Store() as store:
    workers = run_workers(store, 1, ["crunrt_worker", "backend", "nccl"], CUDA_VISIBLE_DEVICES="")
    text = workers[0].text()
    if "error -2 " in text and "load '" in text:
        print("tier B: SKIP, the NCCL library is not installed:", text.strip())
    elif "there is no CUDA driver" in text:
        expect(workers, 0, 3, "error -19", "there is no CUDA driver: load 'libcuda.so.1'",
               "CRUNRT_CUDA_LIBRARY")
        print("tier B: no CUDA driver")
    else:
        expect(workers, 0, 3, "error -19", "find a GPU: none is usable here")
        code = re.search(r"CUDA error (\d+) \(cuda", text)
        if code is None or code[1] not in ("34", "35", "100"):
            fail(workers, "the text does not name CUDA error 34, 35 or 100")
        print(f"tier B: CUDA error {code[1]}")

# ---- tier C ----
FAKE = os.path.abspath(f"{BUILD}/tests/fake/fake_nccl.so")


def fake(words, size=2, allow="1", mode=("nccl",), library=FAKE, **extra):
    with Store() as store:
        return run_workers(store, size, ["crunrt_worker", *mode], CRUNRT_NCCL_LIBRARY=library,
                           FAKE_NCCL=words, CRUNRT_CUDA_LIBRARY=library,
                           CRUNRT_ALLOW_FAKE_NCCL=allow, CRUNRT_NCCL_BLOCKING="0", **extra)


def fake_rejoin(words, size=2, **extra):
    """Workers with an agent each. All ask for the next round: the same ranks, and a new store."""
    with Store() as first, Store() as second, contextlib.ExitStack() as agents:
        workers, channels = [], []
        for r in range(size):
            agent = agents.enter_context(FakeAgent())
            workers.append(
                Worker(
                    [program("crunrt_worker"), "nccl-rejoin"],
                    contract(first, r, size, CRUN_AGENT=agent.variable, CRUNRT_NCCL_LIBRARY=FAKE,
                             CRUNRT_CUDA_LIBRARY=FAKE, CRUNRT_ALLOW_FAKE_NCCL="1",
                             FAKE_NCCL=words, CRUNRT_NCCL_BLOCKING="0", **extra),
                )
            )
            channels.append(agent.accept())
        for channel in channels:
            packet = channel.receive()
            while packet is not None and packet["type"] != REJOIN:
                packet = channel.receive()
        for r, channel in enumerate(channels):
            # A worker that has ended is found by its exit status and text.
            with contextlib.suppress(BrokenPipeError):
                channel.round(r, size, 1, second.port, local_rank=r, local_world_size=size)
        return wait_for(workers)


def calls(worker):
    lines = re.findall(r"^fake: (.*)$", worker.text(), re.M)
    if any("BUG" in line for line in lines):
        fail([worker], "NCCL was called in a way that it forbids")
    return [line.split()[0] for line in lines]


expect(fake("", size=1, NCCL_COMM_ID="127.0.0.1:9999"), 0, 3, "error -22", "NCCL_COMM_ID")
expect(fake("", size=1, allow="0"), 0, 3, "error -2", "this library is a fake")

for words in ("", "init-slow"):
    workers = fake(words)
    expect_all(workers, 0, "group 0 done", "group 1 done")
    ids = [re.findall(r"init size 2 ids 1 first (\S+)", w.text()) for w in workers]
    if ids[0] != ids[1] or len(set(ids[0])) != 2:
        fail(workers, f"ids {ids}: both ranks must see the same, and each group its own")
    own = ["init", "ncclGroupEnd", "ncclCommFinalize", "ncclCommDestroy"]
    if calls(workers[0]) != ["ncclGetUniqueId", *own] * 2:
        fail(workers, "rank 0 called in another order")
    if calls(workers[1]) != own * 2:
        fail(workers, "rank 1 called in another order")

for words, error in (
    ("init-hang", "initialise the communicator timed out after 3000 ms"),
    ("init-error", "NCCL error 6 (remote error)"),
    ("op-hang", "all_reduce #0 in group 'world' (nccl"),
    ("op-error", "NCCL error 6 (remote error)"),
):
    workers = fake(words, TEST_TIMEOUT_MS="3000" if words.endswith("hang") else "60000")
    expect_all(workers, 3, error if words.startswith("op") else "error -")
    if not any(error in w.text() for w in workers):
        fail(workers, f"nobody said {error!r}")
    for w in workers:  # aborted once, never destroyed or finalized
        seen = calls(w)
        if (
            seen.count("ncclCommAbort") != 1
            or "ncclCommDestroy" in seen
            or "ncclCommFinalize" in seen
        ):
            fail(workers, "a failed communicator must be aborted, once, and not destroyed")

workers = fake("early-error")
for w in workers:
    if "init" in calls(w) and calls(w)[-2:] != ["ncclGroupEnd"] * 2:
        fail(workers, "the group of the init, or the one that NCCL left open, was not ended")
expect_all(workers, 3, "error -")

# A rank that cannot take part also ends the wait of the others, long before their timeout.
workers = fake("one-gpu")
expect(workers, 1, 3, "error -19", "choose GPU 1: only 1 visible")
expect(workers, 0, 3, "error -104", "another rank failed: rank 1", "only 1 visible")

# Several roots, chosen by NCCL's block rule: every rank passes all ids in the same order.
workers = fake("", size=5, CRUNRT_NCCL_RANKS_PER_ROOT="2")
expect_all(workers, 0, "init size 5 ids 3", "group 1 done")
roots = [r for r, w in enumerate(workers) if "ncclGetUniqueId" in calls(w)]
if roots != [0, 2, 4]:
    fail(workers, f"roots are {roots}, expected [0, 2, 4]")

# A communicator that does not finalize is aborted. No call fails.
workers = fake("finalize-error")
expect_all(workers, 0, "group 1 done")
for w in workers:
    if calls(w).count("ncclCommAbort") != 2 or "ncclCommDestroy" in calls(w):
        fail(workers, "a communicator that does not finalize must be aborted")

# An abort that hangs is left behind; CUDA is not called any more, and the error tells to end.
workers = fake_rejoin("op-hang abort-hang", CRUNRT_NCCL_ABORT_TIMEOUT_MS="300")
expect_all(
    workers, 4, "timed out after 1000 ms", "error -131", "could not be aborted", "end the process"
)
for w in workers:
    calls(w)

# ---- tier C: splits ----
SPLIT = ("nccl-split",)


def splits(worker):
    calls(worker)
    return re.findall(r"^fake: split color (-?\d+) key (\d+) blocking 0$", worker.text(), re.M)


for words in ("", "child-late"):
    workers = fake(words, size=4, mode=SPLIT)
    expect_all(workers, 0, "split done")
    for r, w in enumerate(workers):
        mine, place = r % 2, r // 2
        expect(workers, r, 0, f"group {mine}: rank {place} of 2", f"group 2: rank {3 - r} of 4")
        want = [("-1", "0"), ("-1", "0"), ("0", str(3 - r))]
        want[mine] = ("0", str(place))
        if splits(w) != want:
            fail(workers, f"rank {r} split with (color, key) {splits(w)}, expected {want}")
        if calls(w).count("init") != 1 or calls(w).count("ncclGetUniqueId") > 1:
            fail(workers, "a split needs no id and no init of its own")

# If one rank cannot or must not split, all make the groups without a split.
OLD = FAKE.replace("fake_nccl.so", "fake_nccl_old.so")
for what in ({"library": OLD}, {"CRUNRT_NCCL_SPLIT": "0"}, {"TEST_DESTROYED": "1"}):
    workers = fake("", size=4, mode=SPLIT, **what)
    expect_all(workers, 0, "split done")
    for r, w in enumerate(workers):
        expect(workers, r, 0, f"group {r % 2}: rank {r // 2} of 2", f"group 2: rank {3 - r} of 4")
        if splits(w) or calls(w).count("init") != 3:
            fail(workers, f"{what}: rank {r} must make its groups afresh")

# The ranks outside the group do not come: the others wait a while, then go on without a split.
workers = fake("", size=4, mode=("nccl-split", "absent"), TEST_TIMEOUT_MS="10000")
expect_all(workers, 0, "split done")
for r in (0, 2):
    expect(workers, r, 0, f"group 0: rank {r // 2} of 2")
    if splits(workers[r]) or calls(workers[r]).count("init") != 2:
        fail(workers, "a split was begun without all ranks of the parent")

# A split that fails on one rank fails on all, in time; parent and child are aborted.
for words, error in (
    ("split-refused", "NCCL error 5"),
    ("split-error", "NCCL error 6 (remote error)"),
    ("split-hang", "split the communicator timed out after 5000 ms"),
    ("child-none", "wait for the new communicator timed out after 5000 ms"),
    ("child-hang", "initialise the communicator timed out after 5000 ms"),
):
    workers = fake(words, size=4, mode=SPLIT, FAKE_NCCL_RANK="2", TEST_TIMEOUT_MS="5000")
    expect(workers, 2, 3, error, "world -32")
    seen = calls(workers[2])
    aborts = workers[2].text().count("ncclCommAbort of a child"), seen.count("ncclCommAbort")
    if aborts != ((1, 2) if words == "child-hang" else (0, 1)) or "ncclCommDestroy" in seen:
        fail(workers, f"{words}: (aborts of the child, of all) {aborts}, then {seen}")

# ---- tier C: crunrt_rejoin: a new communicator and a new split in the next round ----
for words in ("op-hang", "op-error"):
    workers = fake_rejoin(words, size=3)
    expect_all(workers, 0, "error -", "went on as")
    ids = {tuple(re.findall(r"init size 3 ids 1 first (\S+)", w.text())) for w in workers}
    if len(ids) != 1 or len(set(*ids)) != 2:
        fail(workers, f"ids {ids}: the next round needs an id of its own, the same on all ranks")
    for r, w in enumerate(workers):
        if splits(w) != [("0", str(r)), ("0", "0") if r == 0 else ("-1", "0")]:
            fail(workers, "the part in the next round must be split from the new world")
        ends = [
            call for call in re.findall(r"^fake: (ncclComm(?:Abort|Finalize).*)$", w.text(), re.M)
        ]
        done = ["ncclCommFinalize"] * (2 if r == 0 else 1)
        if ends != ["ncclCommAbort", "ncclCommAbort of a child", *done]:
            fail(workers,
                 f"{ends}: with one communicator broken, the others of that time are aborted, too")
print("tier C (fake): PASS")
