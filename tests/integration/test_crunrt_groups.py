#!/usr/bin/env python3
# timeout: 300
"""Process groups of real processes: every collective against numbers that the worker computes,
wrong arguments, groups of some ranks, several runtimes in one process."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BACKEND, Store, expect_all, need_backend, run_workers

need_backend()

for size in (1, 2, 3, 4):
    with Store() as store:
        expect_all(
            run_workers(store, size, ["crunrt_worker", "collectives"]), 0, "collectives right"
        )
        print(f"collectives: {size} ranks")
for size in (1, 2, 4):
    with Store() as store:
        expect_all(run_workers(store, size, ["crunrt_worker", "works"]), 0, "works right")
    if BACKEND not in ("nccl", "rccl"):  # it has no tags
        with Store() as store:
            workers = run_workers(store, size, ["crunrt_worker", "messages"])
            expect_all(workers, 0, "messages right")
with Store() as store:
    expect_all(run_workers(store, 3, ["crunrt_worker", "arguments"]), 0, "arguments checked")
    expect_all(run_workers(store, 3, ["crunrt_worker", "again"], CRUN_AGENT=None), 0, "again right")
with Store() as store:
    expect_all(run_workers(store, 5, ["crunrt_worker", "subgroups"]), 0, "sub-groups right")
expect_all(
    run_workers(None, 1, ["crunrt_worker", "spawn"], RANK=None, WORLD_SIZE=None, MASTER_ADDR=None),
    0, "spawned rank 3 of 4: 406", "spawned rank 0 of 1: 100", "spawn right")
with Store() as store:
    if BACKEND == "gloo":
        expect_all(
            run_workers(store, 1, ["crunrt_worker", "collectives"], GLOO_SOCKET_IFNAME="none0"), 1,
            "GLOO_SOCKET_IFNAME='none0': ", "'ip address' lists what there is")
print("PASS")
