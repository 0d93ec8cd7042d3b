#!/usr/bin/env python3
# timeout: 300
"""A worker that uses libcrunrt either does its job or ends with a clear error when an allocation
fails."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from allocation_failures import FAILING, for_each_allocation  # noqa: E402
from crun_test import BUILD, run_tests, skip  # noqa: E402
from store_raw import Server  # noqa: E402

WORKER = FAILING / "worker"


def worker_pair(case, *words):
    """Runs two workers: rank 0's allocator fails, rank 1's does not. Each case has a store of its
    own, because keys of an earlier case would disturb it."""
    with Server() as server:
        def environment(make, rank):
            return make(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2,
                        MASTER_ADDR="127.0.0.1", MASTER_PORT=server.port,
                        TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT=0,
                        CRUNRT_BACKEND_DIR=BUILD / "lib" / "crunrt")
        other = case.start([WORKER, *words], environment(case.plain_environment, 1))
        try:
            status, err = case.run([WORKER, *words], environment(case.environment, 0))
            if status == 0:
                other_status, other_err = case.finish(other)
                assert other_status == 0, f"rank 1 ended with {other_status}: {other_err}"
        finally:
            other.kill()
            other.communicate()
    return status, err


def worker_store(case):
    return worker_pair(case)


def worker_group(case):
    return worker_pair(case, "group")


def test_worker_store(tmp):
    for_each_allocation(tmp, worker_store, WORKER)


def test_worker_group(tmp):
    if not (BUILD / "lib" / "crunrt" / "gloo.so").exists():
        skip("the gloo backend was not built (libgloo-dev), so only the store was tested")
    for_each_allocation(tmp, worker_group, WORKER)


if __name__ == "__main__":
    run_tests(globals())
