#!/usr/bin/env python3
# timeout: 7200
"""The node that hosts the coordinator is killed, or vanishes from the network, at a random moment
of its round (backend c10d, no etcd), and the other two nodes go on without it: each of the two
fifty times. And a job outlives its lease and a minute. The nodes are real launchers with real
workers, in network namespaces. This takes more than ten minutes, so it is not a part of `make
check`.

    make check-kills                                    # KILLS=50 SEED=… for other numbers
    KILLS=3 SEED=7 PYTHONPATH=tests/lib tests/kills/test_kills.py black"""
import os
import random
import signal
import time

from crun_test import run_tests
from netns import Net
from nodes import Nodes

KILLS = int(os.environ.get("KILLS", "50"))
SEED = int(os.environ.get("SEED", random.randrange(2**32)))
PORT = 29400
LEASE_S = 4
CONF = "keep_alive_interval=1,keep_alive_max_attempt=4,last_call_timeout=0.5"


def run_job(net, tmp, host, lose):
    """Runs a job of three nodes, of which net.hosts[host] hosts. After the first round `lose` makes
    the hosting node vanish. Two nodes have to form the next round, and to end the job well."""
    tmp.mkdir()
    at = net.hosts[host]
    others = [h for h in net.hosts if h is not at]
    with Nodes(tmp, "--nnodes=2:3", endpoint=f"{at.addr}:{PORT}", conf=CONF) as nodes:
        first = nodes.start_host_in(at, "hosting")
        rest = [nodes.start(f"other{i}", prefix=h.run) for i, h in enumerate(others)]
        before = nodes.round(3)
        time.sleep(random.uniform(0, LEASE_S / 2))  # the moment is what is varied
        lose(at, first)
        after = nodes.round(2)
        nodes.gone(before)  # also those of the hosting node: no rank runs twice
        assert {w.node for w in after} == {"other0", "other1"}
        assert {w.restarts for w in after} == {0}, "the loss of a node is no restart"
        for w in after:
            w.signal(Nodes.WELL)
        for n in rest:
            assert n.wait() == 0, n.text
        assert "Traceback" not in first.text, first.text


def repeat(tmp, what, lose):
    random.seed(SEED)
    began = time.monotonic()
    with Net(3) as net:
        for i in range(KILLS):
            try:
                run_job(net, tmp / f"{what}{i}", i % 3, lose)
            except Exception:
                print(f"{what}: number {i + 1} of {KILLS}, SEED={SEED}")
                raise
            finally:
                for h in net.hosts:
                    h.heal()
    print(f"{what}: {KILLS} of {KILLS} hosting nodes replaced, {time.monotonic() - began:.0f} s, "
          f"SEED={SEED}", flush=True)


def test_hosting_nodes_are_killed(tmp):
    repeat(tmp, "killed", lambda host, node: node.signal(signal.SIGKILL))


def test_hosting_nodes_vanish_into_a_black_hole(tmp):
    repeat(tmp, "black hole", lambda host, node: host.cut())


def test_a_job_outlives_its_lease_and_a_minute(tmp):
    """Nothing happens but time: no limit of a connection, a greeting or a lease ends the round."""
    seconds = 75  # more than a minute and the default lease of 15 s
    with Net(3) as net, Nodes(tmp, "--nnodes=3", endpoint=f"{net.hosts[0].addr}:{PORT}") as nodes:
        all_nodes = [nodes.start(name, prefix=h.run) for name, h in zip("abc", net.hosts)]
        workers = nodes.round(3)
        time.sleep(seconds)
        assert all(w.alive for w in workers), "a worker was stopped"
        assert len(nodes.workers()) == 3, "a second round was formed"
        for w in workers:
            w.signal(Nodes.WELL)
        for n in all_nodes:
            assert n.wait() == 0, n.text


if __name__ == "__main__":
    run_tests(globals())
