#!/usr/bin/env python3
# timeout: 300
"""Tests the backend etcd with a real etcd cluster of three members. The nodes elect a leader; if it
dies, another one leads under a higher epoch. The job must go on if the leader, an etcd member, or
both are lost."""
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, read_text, run_tests, skip, wait_for
from nodes import Nodes
from free_port import free_port
from rdzv_node import Cast

ETCD = shutil.which("etcd")
# Leases short enough for a test, long enough for a busy machine.
SETTINGS = ["min_nodes=2", "max_nodes=3", "keep_alive_interval_ms=1000", "keep_alive_max_attempt=3",
            "join_timeout_ms=60000", "last_call_timeout_ms=1000"]


def is_up(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as s:
            s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b'"true"' in s.recv(4096) + s.recv(4096)
    except OSError:
        return False


class Cluster:
    def __init__(self, tmp, size=3):
        ports = [free_port() for _ in range(2 * size)]
        self.ports, peers = ports[:size], ports[size:]
        cluster = ",".join(f"m{i}=http://127.0.0.1:{p}" for i, p in enumerate(peers))
        self.members = []
        for i in range(size):
            client, peer = f"http://127.0.0.1:{self.ports[i]}", f"http://127.0.0.1:{peers[i]}"
            log = open(tmp / f"etcd{i}.log", "w")
            self.members.append(subprocess.Popen(
                [ETCD, "--name", f"m{i}", "--data-dir", tmp / f"etcd{i}", "--listen-client-urls",
                 client,
                 "--advertise-client-urls", client, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster],
                stdout=log, stderr=log, env=clean_env(ETCD_UNSUPPORTED_ARCH="arm64")))
            log.close()
        wait_for(lambda: all(map(is_up, self.ports)),
                 f"etcd: {read_text(tmp / 'etcd0.log')[-2000:]}")

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.ports[0]}"

    def kill(self, i):
        self.members[i].kill()
        self.members[i].wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for i in range(len(self.members)):
            self.kill(i)


def led(node):
    return any("(this node)" in line for line in node.story)


def three(cast, cluster):
    nodes = [cast.node("etcd", cluster.endpoint, *SETTINGS, f"local_world_size={i + 1}")
             for i in range(3)]
    for n in nodes:
        n.until_round(lambda m: m["groups"] == 3)
    leader = next(n for n in nodes if led(n))
    return leader, [n for n in nodes if n is not leader]


def go_on(nodes, after):
    """Waits until all nodes are in the same round after round `after`. Returns its number."""
    found = [n.until_round(lambda m: m["round"] > after and m["groups"] == len(nodes))
             for n in nodes]
    assert len({(m["round"], m["port"]) for m in found}) == 1, found
    assert {m["restart"] for m in found} == {0}
    return found[0]["round"]


def end_well(nodes):
    for n in nodes:
        n.tell("succeed")
    for n in nodes:
        assert n.expect("end").startswith("0"), n.story
        assert n.wait() == 0


def test_a_round_and_a_good_end(tmp):
    with Cluster(tmp, 1) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        others[0].tell("fail")  # no restart is left: all nodes end
        for n in [leader, *others]:
            assert "exit code 7" in n.expect("end")


def test_the_leader_dies_and_another_takes_over(tmp):
    with Cluster(tmp) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        leader.signal(signal.SIGKILL)
        go_on(others, 0)
        assert any(led(n) for n in others)
        epochs = [int(line.rsplit("epoch ", 1)[1]) for line in others[0].story if "epoch" in line]
        assert epochs == sorted(set(epochs)) and len(epochs) == 2, epochs
        end_well(others)


def test_the_leader_leaves_and_another_takes_over(tmp):
    with Cluster(tmp, 1) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        leader.tell("leave")
        leader.tell("quit")
        go_on(others, 0)
        end_well(others)


def test_a_member_of_etcd_dies(tmp):
    with Cluster(tmp) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        cluster.kill(0)  # the etcd member that is every node's endpoint
        others[0].signal(signal.SIGKILL)
        after = go_on([leader, others[1]], 0)
        late = cast.node("etcd", f"127.0.0.1:{cluster.ports[1]}", *SETTINGS)
        go_on([leader, others[1], late], after)
        end_well([leader, others[1], late])


def test_a_member_and_the_leader_die_together(tmp):
    with Cluster(tmp) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        cluster.kill(0)
        leader.signal(signal.SIGKILL)
        go_on(others, 0)
        end_well(others)


def test_a_leader_that_sleeps_is_replaced_and_obeys_when_it_wakes(tmp):
    with Cluster(tmp, 1) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        leader.signal(signal.SIGSTOP)
        after = go_on(others, 0)
        leader.signal(signal.SIGCONT)
        go_on([leader, *others], after)
        end_well([leader, *others])


def test_no_etcd_is_said(tmp):
    with Cast() as cast:
        node = cast.node("etcd", f"127.0.0.1:{free_port()}", *SETTINGS, "read_timeout_ms=1000")
        end = node.expect("end")
        assert end.startswith("2 cannot reach the rendezvous") and "connection refused" in end, end
        assert node.wait() == 0


def test_real_launchers_survive_their_leader(tmp):
    with Cluster(tmp) as cluster, Nodes(tmp, "--nnodes=2:3", backend="etcd",
                                        endpoint=cluster.endpoint,
                                        conf="last_call_timeout=1,keep_alive_interval=1") as nodes:
        launchers = {name: nodes.start(name) for name in "abc"}
        first = nodes.round(3)
        leader = next(n for n in launchers.values() if "(this node)" in n.text)
        cluster.kill(0)
        leader.signal(signal.SIGKILL)
        second = nodes.round(2)
        nodes.gone(first)
        assert {w.restarts for w in second} == {0}
        assert leader.name not in {w.node for w in second}
        for w in second:
            w.signal(signal.SIGUSR2)
        assert all(n.wait() == 0 for n in launchers.values() if n is not leader)


if ETCD is None:
    skip("etcd is not installed")
if __name__ == "__main__":
    run_tests(globals())
