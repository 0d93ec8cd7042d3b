#!/usr/bin/env python3
# timeout: 300
"""Real torch through --store-gateway: its client does all operations through a gateway, and a
process group forms over two nodes whose workers know only their own node's address."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
sys.path.insert(0, str(HERE))
from crun_test import run_tests, skip, torch_python
from netns import Net
from nodes import Nodes
from test_store_torch_clients import CLIENT, GROUP

PYTHON = torch_python()
CONF = "last_call_timeout=0.3,join_timeout=60"

# Rank 1 is on the node without the store; rank 0 waits until it is done.
OPERATIONS = f"""
import os, runpy, sys, datetime, torch.distributed as dist
host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
minutes = datetime.timedelta(seconds=200)
own = dist.TCPStore(host, int(port), None, False, timeout=minutes)
if os.environ["RANK"] == "1":
    assert host == "127.0.0.1", host
    sys.argv = ["client", host, port]
    exec({CLIENT!r})
    own.set("client is done", "1")
own.get("client is done")
"""


def on_two_nodes(tmp, program, nproc, said):
    path = tmp / "program.py"
    path.write_text(program)
    with Net(2) as net, Nodes(tmp, "--nnodes=2", f"--nproc-per-node={nproc}", "--store-gateway",
                              endpoint="10.77.0.1:29400", conf=CONF) as nodes:
        started = [nodes.start(f"n{i}", program=PYTHON, args=[path], prefix=h.run,
                               GLOO_SOCKET_IFNAME="eth0") for i, h in enumerate(net.hosts)]
        ends = [n.wait(240) for n in started]
        text = "".join(n.text for n in started)
        assert ends == [0, 0], text
        assert all(line in text for line in said), text


def test_all_operations_of_torch(tmp):
    on_two_nodes(tmp, OPERATIONS, 1, ["torch.distributed"])


def test_a_process_group(tmp):
    on_two_nodes(tmp, GROUP, 2, [f"rank {i} done" for i in range(4)])


if __name__ == "__main__":
    if PYTHON is None:
        skip("no Python here has torch")
    run_tests(globals())
