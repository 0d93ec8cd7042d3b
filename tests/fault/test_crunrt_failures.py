#!/usr/bin/env python3
# timeout: 300
"""Peers that die, hang, come late or never: the calls of the other ranks fail in time, and the
error names the operation, the group and the ranks that gave no sign of life."""

import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import (BACKEND, BUILD, Store, Worker, contract, expect, fail, need_backend,
                     program, run_workers, start_workers, wait_for)

need_backend()


def expect_silent(workers, rank, victim):
    """The error names the victim; it may also name a survivor that is slow."""
    named = re.search(r"no sign of rank ([\d, ]+)", workers[rank].text())
    if named is None or str(victim) not in named[1].split(", "):
        fail(workers, f"rank {rank} did not say 'no sign of rank {victim}'")
    return named[1] == str(victim)


def milliseconds(workers, rank):
    return int(re.search(r"error -\d+ after (\d+) ms", workers[rank].text())[1])


def lose(how, size, victim, victim_code, code, limit_ms):
    with Store() as store:
        workers = start_workers(store, size, ["crunrt_worker", "lose", how, str(victim)])
        survivors = [r for r in range(size) if r != victim]
        wait_for(workers, survivors)
        for r in survivors:
            # a rank may hear of another rank's timeout before its own timeout is over
            is_told = code == -110 and "another rank failed: rank" in workers[r].text()
            expect(workers, r, 3, f"error {-104 if is_told else code}",
                   "all_reduce #10 in group 'world'", f"rank {r} of {size}")
            if milliseconds(workers, r) > limit_ms:
                fail(workers, f"rank {r} needed more than {limit_ms} ms")
        if not any([expect_silent(workers, r, victim) for r in survivors]):
            fail(workers, f"nobody names rank {victim} alone, not even the last survivor to ask")
        expect(workers, victim, victim_code)
        # A survivor is told of the first one when it asks, or already by the first one's report.
        told = ("first seen by rank", "another rank failed: rank")
        if sum(any(t in workers[r].text() for t in told) for r in survivors) != len(survivors) - 1:
            fail(workers, "the survivors do not agree on who noticed first")
    print(f"{how}: {size} ranks")


# A broken connection is noticed at once: far below the group's timeout of 60,000 ms.
lose("kill", 4, 1, -signal.SIGKILL, -104, 30000)
lose("exit", 3, 2, 0, -104, 30000)
# A hung peer is noticed by the operation's timeout (2,000 ms and a grace of 1,000 ms); the limit
# leaves room for a slow machine.
lose("stop", 3, 1, -signal.SIGKILL, -110, 30000)

# A rank that ends with status 0 and destroys nothing is known at once to those who wait for it.
for when, text in (("group", "rank 2 of the job has ended"),
                   ("monitored", "rank 2 of the job has ended"),
                   ("collective", "no sign of rank 2")):
    with Store() as store:
        workers = run_workers(store, 3, ["crunrt_worker", "gone", when])
    expect(workers, 2, 0)
    for r in range(2):
        expect(workers, r, 3, "error -104")
        if milliseconds(workers, r) > 30000:  # the group's timeout is 60,000 ms
            fail(workers, f"rank {r} did not know for {milliseconds(workers, r)} ms")
    if not any(text in workers[r].text() for r in range(2)):
        fail(workers, f"nobody said {text!r}")

with Store() as store:
    workers = run_workers(store, 4, ["crunrt_worker", "late"])
    for r in range(3):
        expect(workers, r, 3, "error -", "barrier #0 in group 'world'")
        expect_silent(workers, r, 3)

with Store() as store:  # a monitored barrier names the absent rank, and no rank passes
    workers = run_workers(store, 4, ["crunrt_worker", "monitored"])
    for r in range(4):
        expect(workers, r, 3, "error -1", "monitored barrier #6", "no sign of rank 3 of 4")

with Store() as store:  # a peer hangs, and the store does too
    workers = start_workers(store, 2, ["crunrt_worker", "lose-store", str(store.process.pid)])
    wait_for(workers, [0])
    expect(workers, 0, 3, "error -110", "barrier #1 in group 'world'")

with Store() as store:
    workers = run_workers(store, 1, ["crunrt_worker", "dead-store", str(store.process.pid)])
    expect(workers, 0, 3)


def lose_works():  # while works are under way
    with Store() as store:
        workers = run_workers(store, 3, ["crunrt_worker", "lose-works"])
        for r in range(2):
            expect(workers, r, 3, "error -", "recv #0 in group 'world'", "no sign of rank 2")


def lose_message(how, operation):  # in the middle of a message
    with Store() as store:
        workers = run_workers(store, 2, ["crunrt_worker", "lose-message", how])
        expect(workers, 0, 3, "error -104", f"{operation} #{int(how == 'send')} in group 'world'",
               "rank 0 of 2", "no sign of rank 1")
        if milliseconds(workers, 0) > 30000:
            fail(workers,
                 "the broken connection went unnoticed until the group's timeout of 60,000 ms")


lose_works()
if BACKEND in ("nccl", "rccl"):
    print("lose_message: not on nccl, which ignores the tags that this test needs")
else:
    lose_message("send", "send")
    lose_message("receive", "recv")

with tempfile.TemporaryDirectory() as tmp:  # while they connect; either may be the one that accepts
    library = f"{tmp}/stop_in_gloo.so"
    subprocess.run(
        [
            *os.environ.get("CC", "cc").split(),
            "-shared",
            "-fPIC",
            "-o",
            library,
            "tests/fake/stop_in_gloo.c",
        ],
        check=True,
    )
    for _ in range(
        0 if os.path.basename(BUILD) in ("asan", "tsan") or BACKEND != "gloo" else 4
    ):  # which want to be loaded first
        with Store() as store:
            argv = [program("crunrt_worker"), "lose-connecting"]
            workers = [
                Worker(argv, contract(store, r, 2, **({"LD_PRELOAD": library} if r else {})))
                for r in range(2)
            ]
            wait_for(workers, [0])
            expect(workers, 0, 3, "error -110")
            if milliseconds(workers, 0) > 20000:
                fail(workers, "it took longer than the group's timeout of 2,000 ms and a grace")

with Store() as store:  # rank 2 of 3 is never started
    workers = run_workers(store, 2, ["crunrt_worker", "absent"], world=3)
    for r in range(2):
        # A rank that is a moment late may learn of the timeout from the other one.
        expect(workers, r, 3, "error -1", "arrival timed out", "no sign of rank 2 of 3")

with Store() as store:  # of 40 ranks only two are started: the first 16 that are missing are named
    workers = run_workers(store, 2, ["crunrt_worker", "absent", "2"], world=40)
    named = ", ".join(str(r) for r in range(2, 18))
    for r in range(2):
        expect(workers, r, 3, "error -1", f"no sign of rank {named} and 22 more of 40")
print("PASS")
