#!/usr/bin/env python3
# timeout: 300
"""The tests of groups (every operation, type, reduction, batch, work, sub-group, failure, mismatch)
through the nccl backend on the host NCCL, which is no NCCL."""

import concurrent.futures
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BUILD, Store, expect, expect_all, fail, host_nccl, run_workers, skip

if not os.path.exists(f"{BUILD}/tests/host_nccl/libnccl.so.2"):
    skip("the host NCCL was not built (no CUDA or NCCL headers)")

environment = dict(os.environ, CRUN_TEST_BACKEND="nccl")
environment.setdefault("CRUN_TEST_DEADLINE", "60")


def run_test(test):
    return subprocess.run([f"tests/{test}"], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


TESTS = (
    "fault/test_crunrt_failures.py",
    "integration/test_crunrt_groups.py",
    "fault/test_crunrt_mismatch.py",
)
with concurrent.futures.ThreadPoolExecutor(2) as pool:  # they wait more than they work
    for test, done in zip(TESTS, pool.map(run_test, TESTS)):
        print(f"---- {test}\n{done.stdout}", end="")
        if done.returncode != 0:
            sys.exit(f"FAIL: tests/{test} on the nccl backend")

# Non-blocking communicators, several roots, and splits with real communicators.
host = host_nccl(HOST_CUDA_PAGEABLE="1")
for mode, size, extra in (
    ("collectives", 3, {"CRUNRT_NCCL_BLOCKING": "0"}),
    ("works", 2, {"CRUNRT_NCCL_BLOCKING": "0"}),
    ("works", 2, {"NCCL_COMM_BLOCKING": "0"}),
    ("subgroups", 4, {"CRUNRT_NCCL_SPLIT": "0"}),
    ("subgroups", 5, {"CRUNRT_NCCL_RANKS_PER_ROOT": "2"}),
):
    with Store() as store:
        expect_all(
            run_workers(store, size, ["crunrt_worker", mode], **host, **extra), 0, "right on rank"
        )
with Store() as store:
    workers = run_workers(store, 4, ["crunrt_worker", "nccl-split"], **host)
expect_all(workers, 0, "split done")
for r in range(4):
    expect(workers, r, 0, f"group {r % 2}: rank {r // 2} of 2", f"group 2: rank {3 - r} of 4")

# A rank that ends well without destroying its group, where NCCL itself would not notice it.
with Store() as store:
    workers = run_workers(store, 3, ["crunrt_worker", "gone", "collective"], **host)
for r in range(2):
    expect(workers, r, 3, "error -104", "rank 2 has left the group after 1 collectives")

# Libraries and devices that cannot be used are refused before any rank waits.
for variables, code, text in (
    ({"HOST_CUDA_DEVICES": "0"}, -19, "find a GPU: none is usable here"),
    ({"HOST_CUDA_DEVICES": "1"}, -19, "choose GPU 1: only 1 visible"),
    ({"HOST_NCCL_FAULT": "cudaGetDeviceCount:1:cuda3"}, -19, "the driver or device is at fault"),
    ({"LOCAL_RANK": None}, -19, "no device was given and LOCAL_RANK is not known"),
    ({"NCCL_COMM_ID": "127.0.0.1:9999"}, -22, "NCCL_COMM_ID='127.0.0.1:9999' fixes one address"),
    ({"NCCL_COMM_SPLIT_SHARE_RESOURCES": "1"}, -22, "one abort flag"),
    ({"CRUNRT_ALLOW_FAKE_NCCL": "0"}, -2, "this library is a fake"),
    ({"CRUNRT_CUDA_LIBRARY": "/nowhere/libcuda.so"}, -19, "CRUNRT_CUDA_LIBRARY='/nowhere"),
    ({"CRUNRT_CUDA_LIBRARY": "libm.so.6"}, -19, "the library has no 'cu"),
    ({"CRUNRT_NCCL_LIBRARY": "/nowhere/libnccl.so"}, -2, "CRUNRT_NCCL_LIBRARY='/nowhere"),
    ({"CRUNRT_NCCL_LIBRARY": "libm.so.6"}, -2, "the library has no 'nccl"),
    ({"HOST_NCCL_FAULT": "ncclGetVersion:1:ncclSystemError"}, -2, "does not report its version"),
):
    with Store() as store:
        workers = run_workers(store, 2, ["crunrt_worker", "backend", "nccl"],
                              **{**host, **variables})
        expect(workers, 1, 3, f"error {code}", text)

# A split that fails on one rank fails on all, and breaks the parent; in both modes of NCCL.
for blocking in ("0", "1"):
    for what in ("ncclCommSplit:1:ncclSystemError@2", "ncclCommSplit:1:late9000@2",
                 "init:2:ncclSystemError@2"):
        with Store() as store:
            workers = run_workers(store, 4, ["crunrt_worker", "nccl-split"], HOST_NCCL_FAULT=what,
                                  TEST_TIMEOUT_MS="3000", CRUNRT_NCCL_BLOCKING=blocking, **host)
        if not what.startswith("init"):
            expect(workers, 0, 3, "error -")
            expect(workers, 2, 3, "error -", "world -32")

# Failures of single calls of NCCL and CUDA: an error on the rank, in time, and a group that is
# broken for all.
for what in (
    "ncclAllReduce:2:ncclSystemError@0",
    "ncclAllReduce:2:ncclRemoteError@0",
    "ncclAllReduce:2:async-ncclRemoteError@0",
    "cudaEventRecord:2:cuda400@0",
    "kernel:2:cuda719@0",
    "cudaEventQuery:3:cuda700@0",
    "connect:1:ncclSystemError@0",
    "cudaEventCreateWithFlags:2:cuda2@0",
    "cudaStreamWaitEvent:2:cuda700@0",
):
    with Store() as store:
        workers = run_workers(store, 2, ["crunrt_worker", "broken"], HOST_NCCL_FAULT=what,
                              TEST_TIMEOUT_MS="3000", **host)
        expect_all(workers, 3, "error -", "the group is already broken")
for what in (
    "ncclCommInitRankConfig:1:ncclSystemError@0",
    "ncclCommInitRankConfig:1:cuda35@0",
    "init:1:ncclRemoteError@0",
    "ncclGetUniqueId:1:ncclSystemError@0",
    "cudaMalloc:1:cuda2@0",
    "cudaSetDevice:1:cuda101@0",
    "cudaStreamCreateWithFlags:1:cuda2@0",
    "cudaEventCreateWithFlags:1:cuda2@0",
):
    with Store() as store:
        workers = run_workers(
            store, 2, ["crunrt_worker", "backend", "nccl"], HOST_NCCL_FAULT=what, **host
        )
        expect_all(workers, 3, "error -")
        told = "another rank failed" in workers[1].text() or "root is gone" in workers[1].text()
        if "as ordered" in workers[0].text() and not told:
            fail(workers, f"{what}: rank 1 does not have rank 0's words")
for what in (
    "ncclCommFinalize:1:ncclSystemError",
    "ncclCommDestroy:1:ncclSystemError",
    "ncclCommAbort:*:ncclSystemError",
):
    with Store() as store:
        expect_all(run_workers(store, 2, ["crunrt_worker", "nccl"], HOST_NCCL_FAULT=what, **host),
                   0, "group 1 done")
print("PASS")
