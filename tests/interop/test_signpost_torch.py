#!/usr/bin/env python3
# timeout: 240
"""The endpoint is a real TCPStore of torch that somebody else runs: crun's nodes elect the one that
hosts the coordinator with it. And the endpoint is that of a real torchrun: a crun that meets the
same job there says so, and ends."""
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN_STORE, SCALE, clean_env, read_text, run_tests  # noqa: E402
from crun_test import skip, torch_python, wait_for  # noqa: E402
from free_port import free_port
from nodes import Nodes

PYTHON = torch_python() or skip("no Python here has torch (Debian: python3-torch)")
TORCHRUN = pathlib.Path(__file__).resolve().parent.parent / "lib" / "torchrun.py"
# A TCPStore; a line on stdin makes it print the key as a client of torch reads it.
STORE = """
import datetime, sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False,
                 timeout=datetime.timedelta(seconds=60))
print("ready", flush=True)
for line in sys.stdin:
    print(store.get("crun/rendezvous/job").decode(), flush=True)
"""


def test_nodes_meet_by_a_store_of_torch(tmp):
    port = free_port()
    store = subprocess.Popen([PYTHON, "-c", STORE, str(port)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    try:
        assert store.stdout.readline() == "ready\n"
        with Nodes(tmp, "--nnodes=3", endpoint=f"127.0.0.1:{port}") as nodes:
            launchers = [nodes.start(name) for name in "abc"]
            workers = nodes.round(workers=3)
            store.stdin.write("\n")
            store.stdin.flush()
            value = store.stdout.readline()
            assert re.match(r"crun-rendezvous 1 1 0 \d+ 127\.0\.0\.1 [0-9a-f]+$", value), value
            for n in launchers:
                assert "is a TCPStore that is not crun's: it serves as a signpost" in n.text, n.text
            for w in workers:
                w.signal(Nodes.WELL)
            assert [n.wait() for n in launchers] == [0, 0, 0]
    finally:
        store.kill()
        store.communicate()


def test_a_crun_at_the_endpoint_of_a_torchrun(tmp):
    endpoint = f"127.0.0.1:{free_port()}"
    with open(tmp / "torchrun.out", "w", encoding="utf-8") as out:
        torchrun = subprocess.Popen(
            [PYTHON, TORCHRUN, "--nnodes=2", "--rdzv_backend=c10d", f"--rdzv_endpoint={endpoint}",
             "--rdzv_id=job", "--no_python", "/bin/true"], stdout=out, stderr=out, env=clean_env())
    try:
        def has_state():
            assert torchrun.poll() is None, read_text(tmp / "torchrun.out")
            done = subprocess.run([CRUN_STORE, "get", endpoint, "torch.rendezvous.job"],
                                  capture_output=True)
            return done.returncode == 0
        wait_for(has_state, "torchrun's state of the job")
        with Nodes(tmp, "--nnodes=2", endpoint=endpoint) as nodes:
            began = time.monotonic()
            a = nodes.start("a")
            assert a.wait() == 1
            assert time.monotonic() - began < 1 * SCALE, time.monotonic() - began
            assert "torchrun serves this job at 127.0.0.1; start all nodes with crun" in a.text, \
                a.text
    finally:
        torchrun.kill()
        torchrun.wait()


def test_a_torchrun_at_the_endpoint_of_a_crun(tmp):
    """Without a word from crun, both would wait for the other kind's nodes for ten minutes."""
    with Nodes(tmp, "--nnodes=2") as nodes, \
            open(tmp / "torchrun.out", "w", encoding="utf-8") as out:
        a = nodes.start("a")
        wait_for(lambda: "1 waiting, 2:2 wanted" in a.text, "the first node")
        torchrun = subprocess.Popen(
            [PYTHON, TORCHRUN, "--nnodes=2", "--rdzv_backend=c10d", "--rdzv_id=job", "--no_python",
             f"--rdzv_endpoint={nodes.endpoint}", "--rdzv_conf=is_host=0", "/bin/true"],
            stdout=out, stderr=out, env=clean_env())
        try:
            wait_for(lambda: "it is a torchrun that looks for job 'job', which crun serves here" in
                     a.text, "crun to name the torchrun")
            assert torchrun.wait() != 0
            text = read_text(tmp / "torchrun.out")
            assert "C10d store has failed" in text, text
        finally:
            torchrun.kill()
            torchrun.wait()


if __name__ == "__main__":
    run_tests(globals())
