#!/usr/bin/env python3
# timeout: 900
"""Our store and a current torch, both of whose server backends are peers of our client.

`make interop-modern` makes that torch and runs this; CRUN_TEST_MODERN_PYTHON names another one.
What the backends do in the corners is written down here as seen, backend by backend and ours beside
them; docs/protocols/store.md says why ours is as it is."""
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import CRUN, TIMEOUT_S, clean_env, run_tests, skip  # noqa: E402
from store_interop import (exercise_client, replay, run_group, run_torch, share_file,  # noqa: E402
                           torch_script, u64, unhex)
from store_peer import Driver, Raw, Server, TorchServer, to_hex  # noqa: E402

PYTHON = os.environ.get("CRUN_TEST_MODERN_PYTHON")
if not PYTHON:
    skip("run `make interop-modern`: it fetches a current torch first")
VERSION = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"],
                         capture_output=True, text=True).stdout.strip()
RELEASE = tuple(int(n) for n in VERSION.split("+")[0].split(".")[:2])
BARRIER = RELEASE >= (2, 11)
LIST_KEYS = RELEASE >= (2, 10)
QUEUES = RELEASE >= (2, 8)
# Debian builds torch without its libuv backend.
LIBUV = subprocess.run([PYTHON, "-c",
                        "import torch.distributed as d; d.TCPStore('127.0.0.1', 0, None, "
                        "True, use_libuv=True)"], capture_output=True).returncode == 0
if not LIBUV:
    os.environ["USE_LIBUV"] = "0"


def libuv():
    return TorchServer(PYTHON, use_libuv=True)


def classic():
    return TorchServer(PYTHON, use_libuv=False)


SERVERS = {"ours": Server, "classic": classic, **({"libuv": libuv} if LIBUV else {})}


# ---- the API, each way ----

def features(queues):
    return (["queues"] if queues and QUEUES else []) + (["list_keys"] if LIST_KEYS else [])


def test_our_clients_libuv_server(tmp):
    if LIBUV:
        exercise_client(libuv, "modern", features(queues=True))


def test_our_clients_classic_server(tmp):
    exercise_client(classic, "modern", features(queues=False))


def test_their_client_our_server(tmp):
    with Server() as server:
        print(run_torch(PYTHON, "torch_store_client.py", "127.0.0.1", server.port).strip())


def test_barrier_meets_torchs(tmp):
    """One barrier of torch's and ours, at our server and at both of theirs."""
    code = ("import sys, datetime, torch.distributed as d\n"
            "minute = datetime.timedelta(seconds=60)\n"
            "s = d.TCPStore('127.0.0.1', int(sys.argv[1]), None, False, minute)\n"
            "s.barrier('meet', 2)\n")
    for make in SERVERS.values() if BARRIER else ():
        with make() as server, Driver("tcp", server.port) as store:
            store.send("barrier", 2, to_hex("meet"))
            subprocess.run([PYTHON, "-c", code, str(server.port)], check=True,
                           timeout=TIMEOUT_S * 3)
            store.answer()


def test_one_file_for_torch_and_c(tmp):
    share_file(PYTHON, str(tmp / "store"), 2, 2)


# ---- process groups ----

def cannot_use_agent_store():
    """A torch built without libuv asks for it all the same where the agent owns the store."""
    if not LIBUV:
        print("left out: this torch is built without libuv and cannot use an agent's store")
    return not LIBUV


def test_gloo_groups(tmp):
    """Current torch does not prefix its keys by attempt: each attempt gets a fresh store."""
    if cannot_use_agent_store():
        return
    with Server() as server:
        run_group(PYTHON, "torch_gloo_worker.py", server.port, 3, "ddp")
    with Server() as server:
        run_group(PYTHON, "torch_gloo_worker.py", server.port, 3, "ddp", attempt=1)


def test_ddp_restarts_under_crun(tmp):
    if cannot_use_agent_store():
        return
    worker = tmp / "worker.py"
    worker.write_text(
        "import os, runpy, sys\n"
        "import torch.distributed as dist\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    dist.init_process_group('gloo')\n"
        "    dist.barrier()\n"
        "    os._exit(3 if dist.get_rank() == 1 else (os.read(0, 1) and 0))\n"
        f"sys.argv = ['torch_gloo_worker.py', 'ddp']\n"
        f"runpy.run_path({torch_script('torch_gloo_worker.py')!r}, run_name='__main__')\n")
    done = subprocess.run([CRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                           "--no-python", PYTHON, str(worker)], capture_output=True, text=True,
                          timeout=TIMEOUT_S * 4, env=clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.count("of 2 attempt 1 done") == 2, done.stdout


# ---- golden bytes: derived from source for the reference, replayed here ----

def key(text):
    data = text.encode()
    return u64(len(data)) + data.hex()


HELLO = "00 ce f7 85 3c"
VECTORS = [
    ("M01 validate, M02 ping", HELLO + "0d 39 30 00 00", "39 30 00 00"),
    ("M03 set", "01 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 76 31", ""),
    ("M05 wait", "06 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"),
    ("M06 get", "03 02 00 00 00 00 00 00 00 2f 6b", "02 00 00 00 00 00 00 00 76 31"),
    ("M04 set empty", "01 01 00 00 00 00 00 00 00 2f 00 00 00 00 00 00 00 00", ""),
    ("get empty", "03 01 00 00 00 00 00 00 00 2f", "00 00 00 00 00 00 00 00"),
    ("M07 join", "04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00",
     "01 00 00 00 00 00 00 00"),
    ("M08 add", "04 04 00 00 00 00 00 00 00 2f 63 74 72 05 00 00 00 00 00 00 00",
     "05 00 00 00 00 00 00 00"),
    ("M15 num_keys", "07", "04 00 00 00 00 00 00 00"),
    ("M09 add", "04 04 00 00 00 00 00 00 00 2f 63 74 72 f9 ff ff ff ff ff ff ff",
     "fe ff ff ff ff ff ff ff"),
    ("stored text", "03 04 00 00 00 00 00 00 00 2f 63 74 72", "02 00 00 00 00 00 00 00 2d 32"),
    ("M10 compare_set",
     "02 03 00 00 00 00 00 00 00 2f 63 73 00 00 00 00 00 00 00 00 01 00 00 00 00 "
     "00 00 00 61", "01 00 00 00 00 00 00 00 61"),
    ("M11 compare_set",
     "02 06 00 00 00 00 00 00 00 2f 6e 6f 6b 65 79 03 00 00 00 00 00 00 00 65 78 "
     "70 03 00 00 00 00 00 00 00 64 65 73", "03 00 00 00 00 00 00 00 65 78 70"),
    ("M12 check", "05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"),
    ("M13 check",
     "05 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b 05 00 00 00 00 00 00 00 "
     "2f 6e 6f 70 65", "01"),
    ("M14 wait, cancel", "06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 2f 67 6f 6e 65 0c",
     "01"),
    ("M16 delete", "08 02 00 00 00 00 00 00 00 2f 6b", "01 00 00 00 00 00 00 00"),
    ("M16 delete absent", "08 02 00 00 00 00 00 00 00 2f 6b", "00 00 00 00 00 00 00 00"),
    ("M17 append", "09 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 78 79", ""),
    ("appended", "03 02 00 00 00 00 00 00 00 2f 6b", "02 00 00 00 00 00 00 00 78 79"),
    ("M19 multi_set",
     "0b 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 "
     "00 31 02 00 00 00 00 00 00 00 2f 62 02 00 00 00 00 00 00 00 32 32", ""),
    ("M18 multi_get",
     "0a 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 02 00 00 00 00 00 00 "
     "00 2f 62", "01 00 00 00 00 00 00 00 31 02 00 00 00 00 00 00 00 32 32"),
]
QUEUE_VECTORS = [
    ("hello", HELLO + "0d 39 30 00 00", "39 30 00 00"),
    ("M23 pop empty", "0f 02 00 00 00 00 00 00 00 2f 71", "00 00 00 00 00 00 00 00"),
    ("M20 push", "0e 02 00 00 00 00 00 00 00 2f 71 03 00 00 00 00 00 00 00 6a 6f 62", ""),
    ("M21 len", "10 02 00 00 00 00 00 00 00 2f 71", "01 00 00 00 00 00 00 00"),
    ("M22 pop", "0f 02 00 00 00 00 00 00 00 2f 71",
     "01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 6a 6f 62"),
]
BARRIER_VECTORS = [
    ("hello", HELLO + "0d 39 30 00 00", "39 30 00 00"),
    ("first arrival, given up", "12 03 00 00 00 00 00 00 00 2f 62 31 02 00 00 00 00 00 00 00 0c",
     "01"),
    ("M25 last arrival", "12 03 00 00 00 00 00 00 00 2f 62 31 02 00 00 00 00 00 00 00", "00"),
]
LIST_ONE = ("M24 list_keys of one", "11", "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b")


def test_golden_bytes(tmp):
    for name, make in SERVERS.items():
        with make() as server:
            if LIST_KEYS or name == "ours":
                assert replay(server.port, [VECTORS[0], VECTORS[1], LIST_ONE]) == [], name
        with make() as server:
            assert replay(server.port, VECTORS) == [], name
            if (QUEUES and name == "libuv") or name == "ours":
                assert replay(server.port, QUEUE_VECTORS) == [], name
            if BARRIER or name == "ours":
                assert replay(server.port, BARRIER_VECTORS) == [], name


# ---- corners: what each server does, as seen ----

def answer(raw, count=64):
    """What comes within a moment: hex, then "end" if the server hung up."""
    raw.socket.settimeout(0.4)
    got, end = b"", ""
    try:
        while len(got) < count:
            piece = raw.socket.recv(count - len(got))
            if not piece:
                end = "end"
                break
            got += piece
    except socket.timeout:
        pass
    except OSError:
        end = "end"
    return (got.hex() + " " + end).strip()


def ask(port, *requests):
    """The answers to requests on one connection, each sent when the last was answered."""
    with Raw(port) as raw:
        answers = []
        for request in requests:
            try:
                raw.send(unhex(request))
            except OSError:
                pass
            answers.append(answer(raw))
        return answers


def woken_by(port, name, request):
    with Raw(port) as raw:
        raw.send(unhex(HELLO + "07"))
        raw.read(8)
        raw.send(unhex("06" + u64(1) + key(name)))
        ask(port, HELLO + request + "07")
        return answer(raw)


def stale_queue_waiter(port):
    """Pops after a wake, waits for another queue; then the first one is pushed to again."""
    with Raw(port) as raw:
        raw.send(unhex(HELLO + "06" + u64(1) + key("/q1")))
        ask(port, HELLO + "0e" + key("/q1") + key("a") + "07")
        first = answer(raw, 1)
        raw.send(unhex("0f" + key("/q1")))
        raw.read(17)
        raw.send(unhex("06" + u64(1) + key("/q2")))
        ask(port, HELLO + "0e" + key("/q1") + key("b") + "07")
        return [first, answer(raw)]


def queue_and_missing_key(port):
    with Raw(port) as raw:
        ask(port, HELLO + "0e" + key("/q3") + key("a") + "07")
        raw.send(unhex(HELLO + "06" + u64(2) + key("/q3") + key("/later")))
        ask(port, HELLO + "01" + key("/later") + key("x") + "07")
        return answer(raw)


ZERO = "00" * 8
CORNERS = {  # libuv, classic, ours
    "VALIDATE in two pieces": (lambda p: ask(p, HELLO[:5], HELLO[5:] + "0d39300000")[1],
                               "end", "39300000", "39300000"),
    "wrong magic, then a request": (lambda p: ask(p, "00cef7853d04" + key("/m") + u64(1), "07")[1],
                                    "end", "end", "end"),
    "PING first": (lambda p: ask(p, "0d39300000")[0], "", "end", "end"),
    "unknown operation": (lambda p: ask(p, HELLO + "63")[0], "end", "end", "end"),
    "VALIDATE again": (lambda p: ask(p, HELLO + "0d39300000", HELLO)[1], "end", "end", "end"),
    "GET of an absent key": (lambda p: ask(p, HELLO + "03" + key("/absent"))[0], ZERO, "end", ZERO),
    "MULTI_GET of an absent key": (lambda p: ask(p, HELLO + "0a" + u64(1) + key("/absent"))[0],
                                   ZERO, "end", ZERO),
    "woken by SET": (lambda p: woken_by(p, "/w1", "01" + key("/w1") + key("x")), "00", "00", "00"),
    "woken by ADD": (lambda p: woken_by(p, "/w2", "04" + key("/w2") + u64(1)), "00", "00", "00"),
    "woken by APPEND": (lambda p: woken_by(p, "/w3", "09" + key("/w3") + key("x")), "00", "00",
                        "00"),
    "woken by MULTI_SET": (lambda p: woken_by(p, "/w4", "0b" + u64(1) + key("/w4") + key("x")),
                           "00", "00", "00"),
    "woken by COMPARE_SET that creates": (
        lambda p: woken_by(p, "/w5", "02" + key("/w5") + key("") + key("x")), "00", "", "00"),
    "woken by COMPARE_SET that does not": (
        lambda p: woken_by(p, "/w6", "02" + key("/w6") + key("e") + key("x")), "00", "", ""),
    "CANCEL_WAIT of nothing": (lambda p: ask(p, HELLO + "0c")[0], "01", "01", "01"),
    "ADD to text": (lambda p: ask(p, HELLO + "01" + key("/t") + key("abc") + "04" + key("/t")
                                  + u64(1))[0],
                    "end", "end", "end"),
    "key of 8193 bytes": (lambda p: ask(p, HELLO + "01" + key("x" * 8193) + key("")
                                        + "0d39300000")[0],
                          "end", "39300000", "39300000"),
    "key of 64 KiB": (lambda p: ask(p, HELLO + "01" + key("/" + "x" * 65536) + key("")
                                    + "0d39300000")[0],
                      "end", "39300000", "39300000"),
    "key over 64 KiB": (lambda p: ask(p, HELLO + "01" + key("/" + "x" * 65537) + key("")
                                      + "0d39300000")[0],
                        "end", "39300000", "end"),
    "length 2^63": (lambda p: ask(p, HELLO + "01" + u64(2 ** 63))[0], "end", "end", "end"),
}
QUEUE_CORNERS = {
    "stale queue waiter": (stale_queue_waiter, ["00", "00"], None, ["00", ""]),
    "WAIT for a full queue and a key": (queue_and_missing_key, "", None, "00"),
}


def test_corners(tmp):
    seen = []
    for name, make in SERVERS.items():
        column = ("libuv", "classic", "ours").index(name) + 1
        with make() as server:
            corners = dict(CORNERS, **(QUEUE_CORNERS if QUEUES else {}))
            for corner, row in corners.items():
                if row[column] is None:
                    continue
                got = row[0](server.port)
                if got != row[column]:
                    seen.append((corner, name, got, row[column]))
            with Raw(server.port) as raw:  # whatever was done to it, it serves
                raw.send(unhex(HELLO + "0d39300000"))
                assert raw.read(4) == unhex("39300000"), name
    assert not seen, "\n".join(map(str, seen))


if __name__ == "__main__":
    print("torch", VERSION, "of", PYTHON)
    run_tests(globals())
