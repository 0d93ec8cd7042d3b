#!/usr/bin/env python3
# timeout: 600
"""Our store and real torch (Debian's 1.13, or whatever CRUN_TEST_TORCH_PYTHON imports), both ways:
our client and their server, their client and our server, process groups, one shared file."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import run_tests, skip, torch_python  # noqa: E402
from store_interop import (exercise_client, refused, replay, run_group, run_torch,  # noqa: E402
                           share_file)
from store_peer import Driver, Server, TorchServer  # noqa: E402

PYTHON = torch_python()
if PYTHON is None:
    skip("no Python here imports torch (Debian: apt install python3-torch)")
VERSION = os.popen(f"{PYTHON} -c 'import torch; print(torch.__version__)'").read().strip()
LEGACY = VERSION.startswith(("1.", "2.0."))


def test_our_client_their_server(tmp):
    exercise_client(lambda: TorchServer(PYTHON), "legacy" if LEGACY else "modern",
                     [] if LEGACY else ["queues", "list_keys"])


def test_their_client_our_server(tmp):
    with Server() as server:
        print(run_torch(PYTHON, "torch_store_client.py", "127.0.0.1", server.port).strip())


def test_both_generations_see_the_same(tmp):
    exercise_client(Server, "modern", ["queues", "list_keys"])
    with Server() as server, Driver("tcp", server.port, protocol="legacy") as old, \
            Driver("tcp", server.port, protocol="modern") as new:
        assert (old.protocol, new.protocol) == ("legacy", "modern")
        old.set("both", "1")
        assert new.get("both") == b"1"
        assert new.add("count", 1) + old.add("count", 1) == 3


# Captured from 1.13.1 (L24 to L27, its watch pushes, are the server's tests). Requests without a
# reply are proved by those that follow.
LEGACY_VECTORS = [
    ("L01 num_keys", "06", "00 00 00 00 00 00 00 00"),
    ("L02 set", "00 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 76 31", ""),
    ("L03 wait", "05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"),
    ("L04 get", "02 02 00 00 00 00 00 00 00 2f 6b", "02 00 00 00 00 00 00 00 76 31"),
    ("L05 set empty", "00 01 00 00 00 00 00 00 00 2f 00 00 00 00 00 00 00 00", ""),
    ("L06 get empty", "02 01 00 00 00 00 00 00 00 2f", "00 00 00 00 00 00 00 00"),
    ("L07 add", "03 04 00 00 00 00 00 00 00 2f 63 74 72 05 00 00 00 00 00 00 00",
     "05 00 00 00 00 00 00 00"),
    ("L08 add", "03 04 00 00 00 00 00 00 00 2f 63 74 72 f9 ff ff ff ff ff ff ff",
     "fe ff ff ff ff ff ff ff"),
    ("L09 add", "03 04 00 00 00 00 00 00 00 2f 63 74 72 00 00 00 00 00 00 00 00",
     "fe ff ff ff ff ff ff ff"),
    ("L10 get", "02 04 00 00 00 00 00 00 00 2f 63 74 72", "02 00 00 00 00 00 00 00 2d 32"),
    ("L11 compare_set",
     "01 03 00 00 00 00 00 00 00 2f 63 73 00 00 00 00 00 00 00 00 01 00 00 00 00 "
     "00 00 00 61", "01 00 00 00 00 00 00 00 61"),
    ("L12 compare_set",
     "01 03 00 00 00 00 00 00 00 2f 63 73 01 00 00 00 00 00 00 00 61 01 00 00 00 "
     "00 00 00 00 62", "01 00 00 00 00 00 00 00 62"),
    ("L13 compare_set",
     "01 03 00 00 00 00 00 00 00 2f 63 73 02 00 00 00 00 00 00 00 7a 7a 01 00 00 "
     "00 00 00 00 00 63", "01 00 00 00 00 00 00 00 62"),
    ("L14 compare_set",
     "01 06 00 00 00 00 00 00 00 2f 6e 6f 6b 65 79 03 00 00 00 00 00 00 00 65 78 "
     "70 03 00 00 00 00 00 00 00 64 65 73", "03 00 00 00 00 00 00 00 65 78 70"),
    ("L15 wait",
     "05 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b 04 00 00 00 00 00 00 00 2f "
     "63 74 72", "00"),
    ("L17 delete", "08 02 00 00 00 00 00 00 00 2f 6b", "01 00 00 00 00 00 00 00"),
    ("L18 delete", "08 02 00 00 00 00 00 00 00 2f 6b", "00 00 00 00 00 00 00 00"),
    ("set k1", "00 03 00 00 00 00 00 00 00 2f 6b 31 01 00 00 00 00 00 00 00 31", ""),
    ("set k2", "00 03 00 00 00 00 00 00 00 2f 6b 32 01 00 00 00 00 00 00 00 32", ""),
    ("L19 check",
     "04 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6b 31 03 00 00 00 00 00 00 "
     "00 2f 6b 32", "00"),
    ("L20 check",
     "04 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6b 31 05 00 00 00 00 00 00 "
     "00 2f 6e 6f 70 65", "01"),
    ("L21 check", "04 00 00 00 00 00 00 00 00", "00"),
    ("L22 wait", "05 00 00 00 00 00 00 00 00", "00"),
    ("L23 join", "03 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00",
     "01 00 00 00 00 00 00 00"),
    ("L28 pipelined",
     "00 02 00 00 00 00 00 00 00 2f 70 01 00 00 00 00 00 00 00 31 03 02 00 00 00 00 "
     "00 00 00 2f 70 29 00 00 00 00 00 00 00 02 02 00 00 00 00 00 00 00 2f 70 08 02 00 00 00 00 "
     "00 00 "
     "00 2f 70 04 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 70",
     "2a 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 34 32 01 00 00 00 00 00 00 00 01"),
]


def test_golden_bytes_of_1_13(tmp):
    with Server() as ours:
        assert replay(ours.port, LEGACY_VECTORS) == []
    if LEGACY:
        with TorchServer(PYTHON) as theirs:
            assert replay(theirs.port, LEGACY_VECTORS) == []


def test_probing_an_old_server_hurts_nobody(tmp):
    """While an old server misreads our VALIDATE it serves nobody; we let go within seconds."""
    with TorchServer(PYTHON) as server, Driver("tcp", server.port) as first:
        first.set("k", "v")
        with Driver("tcp", server.port) as second:
            assert second.get("k") == b"v"
        assert first.get("k") == b"v"


def test_dead_server_is_an_error(tmp):
    server = TorchServer(PYTHON)
    with Driver("tcp", server.port) as store:
        store.send("wait", "78")
        server.close()
        text = refused(store.answer, -104, -32)
        op = text.split(" 'x' at store 127.0.0.1:")[0]  # an old server may be asked first
        assert op in ("wait for", "check"), text
        text = refused(store.num_keys, -104, -32)
        assert f"the connection was lost before: {op} 'x'" in text, text


def test_gloo_groups(tmp):
    """Two attempts. Only old torch keeps the attempts' keys apart; for a current one each attempt
    needs a store of its own, which is what crun gives it."""
    for size in (2, 4):
        with Server() as server:
            run_group(PYTHON, "torch_gloo_worker.py", server.port, size, "ddp")
            if LEGACY:
                run_group(PYTHON, "torch_gloo_worker.py", server.port, size, "ddp", attempt=1)
        if not LEGACY:
            with Server() as server:
                run_group(PYTHON, "torch_gloo_worker.py", server.port, size, "ddp", attempt=1)


def test_one_file_for_torch_and_c(tmp):
    share_file(PYTHON, str(tmp / "store"), 2, 2)


if __name__ == "__main__":
    print("torch", VERSION, "of", PYTHON)
    run_tests(globals())
