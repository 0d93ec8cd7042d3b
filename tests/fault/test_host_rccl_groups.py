#!/usr/bin/env python3
# timeout: 300
"""Runs the tests of groups through the rccl backend: the files of the nccl backend, compiled with
the names of HIP and RCCL. The library below it is the host NCCL, which needs no GPU."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BUILD, Store, expect, host_nccl, run_workers, skip

if not os.path.exists(f"{BUILD}/lib/crunrt/rccl.so"):
    skip("the rccl backend was not built (no headers of HIP and RCCL; ROCM_HOME names their place)")
if not os.path.exists(f"{BUILD}/tests/host_nccl/libamdhip64.so"):
    skip("the host NCCL was not built (no CUDA or NCCL headers)")

if os.environ.get("CRUN_TEST_BACKEND") != "rccl":  # workers.py reads it when it is imported
    environment = dict(os.environ, CRUN_TEST_BACKEND="rccl")
    environment.setdefault("CRUN_TEST_DEADLINE", "60")
    for test in ("fault/test_crunrt_failures.py", "integration/test_crunrt_groups.py",
                 "fault/test_crunrt_mismatch.py", "fault/test_host_rccl_groups.py"):
        print(f"---- {test}", flush=True)
        if subprocess.run([f"tests/{test}"], env=environment).returncode != 0:
            sys.exit(f"FAIL: tests/{test} on the rccl backend")
    sys.exit(0)

for variables, code, text in (
    ({"HOST_CUDA_DEVICES": "0"}, -19, "find a GPU: none is usable here (HIP runtime version"),
    ({"HOST_CUDA_DEVICES": "1"}, -19, "check HIP_VISIBLE_DEVICES"),
    ({"CRUNRT_HIP_LIBRARY": "/nowhere/libamdhip64.so"}, -19, "there is no HIP runtime"),
    ({"CRUNRT_HIP_LIBRARY": "libm.so.6"}, -19, "the library has no 'hip"),
    ({"CRUNRT_RCCL_LIBRARY": "libm.so.6"}, -2, "load RCCL: the library has no 'nccl"),
    ({"CRUNRT_ALLOW_FAKE_NCCL": "0"}, -2, "this library is a fake"),
):
    with Store() as store:
        workers = run_workers(store, 2, ["crunrt_worker", "backend", "rccl"],
                              **{**host_nccl(), **variables})
        expect(workers, 1, 3, f"error {code}", text)
