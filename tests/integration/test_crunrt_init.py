#!/usr/bin/env python3
# timeout: 300
"""What libcrunrt reports when it cannot initialise (environment, store, backend), the store's
calls, and the error file."""

import json
import os
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from free_port import free_port
from workers import BUILD, Store, expect, expect_all, fail, run_workers

INIT = ["crunrt_worker", "init"]

with Store() as store:
    expect(run_workers(store, 1, INIT), 0, 0, "rank 0 of 1")
    expect(
        run_workers(store, 1, INIT, RANK=None, WORLD_SIZE=None, SLURM_PROCID="3", SLURM_NTASKS="9"),
        0, 0, "rank 3 of 9")
    expect(run_workers(store, 1, INIT, RANK=None, WORLD_SIZE=None), 0, 3, "error -22",
           "RANK unset, WORLD_SIZE unset", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
           "crun")
    expect(
        run_workers(store, 1, INIT, MASTER_ADDR=None), 0, 3, "error -22", "MASTER_ADDR is not set"
    )
    expect(run_workers(store, 1, INIT, MASTER_PORT=""), 0, 3, "error -22", "MASTER_PORT is not set")
    expect(
        run_workers(store, 1, INIT, MASTER_PORT="70000"), 0, 3, "error -22", "MASTER_PORT='70000'"
    )
    expect(run_workers(store, 1, INIT, RANK="1", WORLD_SIZE="1"), 0, 3, "error -22", "rank 1")
    expect(run_workers(store, 1, INIT, MASTER_ADDR="no-such-host.invalid", TEST_TIMEOUT_MS="1000"),
           0, 3, "no-such-host.invalid")

with socket.socket() as taken:  # bound but not listening: connections are refused
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    workers = run_workers(None, 1, INIT, MASTER_PORT=str(port), TEST_TIMEOUT_MS="1000")
    expect(workers, 0, 3, "error -110", str(port), "rank 0 of 1")

with Store() as store:
    workers = run_workers(store, 3, ["crunrt_worker", "store"])
    expect_all(workers, 0, "store right")
    winners = sum("mine" in w.text() for w in workers)
    if winners != 1:
        fail(workers, f"{winners} ranks won one compare-and-set")


class FreePort:
    def __init__(self):
        self.port = free_port()


# Without an agent rank 0 hosts the store; a port that is in use is an error.
workers = run_workers(
    FreePort(), 3, ["crunrt_worker", "store"], TORCHELASTIC_USE_AGENT_STORE="False"
)
expect_all(workers, 0, "store right")
with socket.socket() as taken:
    taken.bind(("", 0))
    taken.listen()
    port = str(taken.getsockname()[1])
    expect(run_workers(None, 1, INIT, MASTER_PORT=port, TORCHELASTIC_USE_AGENT_STORE=None), 0, 3,
           "error -98", port, "as rank 0")

# Other methods: the program's own store by tcp://, also under an agent; and a file.
GROUPS = os.path.exists(f"{BUILD}/lib/crunrt/gloo.so")
mode, said = ("works", "works right") if GROUPS else ("init", "of 3")
with Store() as store:
    port = FreePort().port
    expect_all(
        run_workers(store, 3, ["crunrt_worker", mode], TEST_INIT_METHOD=f"tcp://127.0.0.1:{port}"),
        0, said)
with tempfile.TemporaryDirectory() as folder:
    method = f"file://{folder}/store"
    expect_all(
        run_workers(None, 3, ["crunrt_worker", mode], TEST_INIT_METHOD=method, MASTER_ADDR=None), 0,
        said)
    if os.listdir(folder):
        raise SystemExit("FAIL: the last rank did not remove the file")

with Store() as store:
    for name in ("nonesuch", "../gloo"):
        expect(run_workers(store, 1, ["crunrt_worker", "backend", name]), 0, 3, f"'{name}'")
    expect(
        run_workers(
            store, 1, ["crunrt_worker", "backend", "gloo"], CRUNRT_BACKEND_DIR="/nonexistent"
        ),
        0,
        3,
        "error -2",
        "'/nonexistent'",
    )
    if GROUPS:
        expect(
            run_workers(store, 1, ["crunrt_worker", "backend", "gloo"],
                        CRUNRT_BACKEND_DIR=f"{BUILD}/lib/crunrt"),
            0,
            0,
            "backend gloo",
        )


def reported(what, code, **extra):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "error.json")
        workers = run_workers(
            None, 1, ["crunrt_worker", "report", what], **{"TORCHELASTIC_ERROR_FILE": path, **extra}
        )
        expect(workers, 0, code)
        if os.listdir(folder) != ["error.json"]:
            fail(workers, f"left {os.listdir(folder)}")
        with open(path, encoding="utf-8") as f:
            content = json.load(f)
    info = content["message"]["extraInfo"]
    if not isinstance(info["timestamp"], str) or abs(int(info["timestamp"]) - time.time()) > 300:
        fail(workers, f"timestamp {info['timestamp']!r}")
    return content["message"]["message"], info["py_callstack"]


assert reported("text", 1) == ('ValueError: "bad" \\ \x01 \ufffd \xe9', "line 1\nline 2")
assert "not an address" in reported("last", 1)[0]
segv = reported("segv", -11, ASAN_OPTIONS="handle_segv=0")[0]
assert "Signal 11 (SIGSEGV)" in segv and "0x10" in segv, segv
assert "Signal 6 (SIGABRT)" in reported("abort", -6, ASAN_OPTIONS="handle_abort=0")[0]
expect(run_workers(None, 1, ["crunrt_worker", "report", "text"], TORCHELASTIC_ERROR_FILE=None), 0,
       3, "error -2", "TORCHELASTIC_ERROR_FILE is not set")
expect(
    run_workers(
        None, 1, ["crunrt_worker", "report", "text"], TORCHELASTIC_ERROR_FILE="/nonexistent/e.json"
    ),
    0,
    3,
    "error -2",
    "/nonexistent/e.json",
)
print("PASS")
