#!/usr/bin/env python3
"""Going on in place: after a rank was killed the others form a new world without being restarted, alone or
with the process that takes its place."""
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import Store, Worker, contract, expect, fail, program, need_backend, start_workers, wait_for

need_backend()

with Store() as store:  # three of four go on, in the order of their first ranks
    workers = wait_for(start_workers(store, 4, ["crunrt_worker", "rejoin", "3", "1"]))
    expect(workers, 1, -signal.SIGKILL)
    for rank, new in ((0, 0), (2, 1), (3, 2)):
        expect(workers, rank, 0, f"rank {rank} goes on as {new} of 3")
    times = [int(re.search(r"after (\d+) ms", workers[r].text())[1]) for r in (0, 2, 3)]
    print(f"killed peer to next result: {max(times)} ms")

with Store() as store:  # a process in the place of the dead one: four again, with the old numbers
    argv = ["crunrt_worker", "rejoin", "4", "2"]
    workers = start_workers(store, 4, argv)
    workers[2].process.wait(60)
    expect(workers, 2, -signal.SIGKILL)
    workers.append(Worker([program(argv[0])] + argv[1:], contract(store, 2, 4, TEST_ANEW="1")))
    wait_for(workers)
    for rank in (0, 1, 3):
        expect(workers, rank, 0, f"rank {rank} goes on as {rank} of 4")
    expect(workers, 4, 0, "rank 2 goes on as 2 of 4")
print("PASS")
