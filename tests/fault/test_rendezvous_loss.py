#!/usr/bin/env python3
# timeout: 300
"""Nodes are lost: killed, stopped, cut off by a silent network, or disturbed by a network that
loses, delays, reorders and repeats packets. Other tests check which node hosts when every host has
an address of its own."""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import PACE, run_tests
from netns import Net
from nodes import Nodes
from rdzv_node import Cast, end_well, go_on
from shaky_net import ShakyNet

PORT = 29400
# A node that gets no processor for a lease is lost. A slow build gets longer leases for that.
BEAT_MS = round(500 * PACE)
ELASTIC = ["min_nodes=2", "max_nodes=3", f"keep_alive_interval_ms={BEAT_MS}",
           "keep_alive_max_attempt=4", "last_call_timeout_ms=500", "join_timeout_ms=60000"]


def three(cast, net, *more):
    """Starts one node per host, with the first host's address as endpoint. Returns the nodes and
    their events of the first round with three nodes."""
    nodes = [cast.node("c10d", f"{net.hosts[0].addr}:{PORT}", *ELASTIC, *more, prefix=h.run)
             for h in net.hosts]
    first = [n.until_round(lambda m: m["groups"] == 3) for n in nodes]
    return nodes, first


def test_the_endpoints_host_hosts(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, first = three(cast, net)
        assert {m["addr"] for m in first} == {net.hosts[0].addr}
        assert sorted(m["group"] for m in first) == [0, 1, 2]
        end_well(nodes)


def test_a_killed_node(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, first = three(cast, net)
        nodes[2].signal(signal.SIGKILL)
        found = go_on(nodes[:2], 0)
        for n in nodes[:2]:
            assert any("was lost: its connection was closed" in line for line in n.story), n.story
        lost = first[2]["group"]
        for before, after in zip(first, found):
            assert before["group"] == after["group"] or \
                before["group"] == 2 and after["group"] == lost
        end_well(nodes[:2])


def test_a_silent_network(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, _ = three(cast, net)
        net.hosts[2].cut()
        stop = nodes[2].expect("stop")  # the node fences its workers in a bounded time
        assert int(stop.split()[0]) >= 0 and "has not answered" in stop, stop
        found = go_on(nodes[:2], 0)
        assert any("nothing heard from it" in line for line in nodes[0].story), nodes[0].story
        end = nodes[2].expect("end")  # alone, it cannot take over
        assert end.startswith("2") and "more than half of the 3 nodes" in end, end
        end_well(nodes[:2])
        assert found[0]["groups"] == 2


def test_a_failure_before_a_silent_node_is_lost_costs_nothing(tmp):
    """A worker fails because a node is silent, and fails before the node's lease is over. No
    restart is allowed, so charging the failure would end the job."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = three(cast, net, "max_restarts=0")
        net.hosts[2].cut()
        nodes[1].tell("fail")
        go_on(nodes[:2], 0)
        end_well(nodes[:2])


def test_a_silent_node_that_waits_comes_back(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, _ = three(cast, net, "coordinator_wait_ms=60000")
        net.hosts[2].cut()
        after = go_on(nodes[:2], 0)[0]["round"]
        net.hosts[2].heal()
        go_on(nodes, after)
        end_well(nodes)


def test_the_hosts_network_goes_silent(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, _ = three(cast, net)
        net.hosts[0].cut()
        for n in nodes[1:]:
            stop = n.expect("stop")
            assert int(stop.split()[0]) >= 0 and "has not answered" in stop, stop
        go_on(nodes[1:], 0)
        stop = nodes[0].expect("stop")
        assert "no longer hears half" in stop, stop
        end_well(nodes[1:])


def test_a_stopped_node(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, _ = three(cast, net)
        nodes[2].signal(signal.SIGSTOP)
        after = go_on(nodes[:2], 0)[0]["round"]
        nodes[2].signal(signal.SIGCONT)
        go_on(nodes, after)
        end_well(nodes)


def test_a_stopped_coordinator_judges_nobody(tmp):
    with Net(3) as net, Cast() as cast:
        nodes, _ = three(cast, net, "coordinator_wait_ms=60000")
        nodes[0].signal(signal.SIGSTOP)
        for n in nodes[1:]:
            assert "has not answered" in n.expect("stop")
        nodes[0].signal(signal.SIGCONT)
        go_on(nodes, 0)
        assert not any("nothing heard" in line for line in nodes[0].story), nodes[0].story
        end_well(nodes)


def test_a_network_that_loses_every_tenth_packet(tmp):
    with Net(3) as net, Cast() as cast:
        if not all(h.lose(10) for h in net.hosts):
            print("left out: no nftables here")
            return
        nodes, _ = three(cast, net, "keep_alive_interval_ms=5000", "max_restarts=5")
        for after in range(5):
            nodes[after % 3].tell("fail")
            found = [n.until_round(lambda m: m["restart"] == after + 1) for n in nodes]
            assert {m["groups"] for m in found} == {3}
            assert len({m["port"] for m in found}) == 1
        nodes[0].tell("fail")
        for n in nodes[1:]:
            assert "exit code 7" in n.expect("stop")
        for n in nodes:
            # no restart is left; all nodes learn it, those that still ran after a stop
            line = n.next()
            while line.startswith("stop "):
                line = n.next()
            assert line.startswith("end 1"), line


def test_a_network_that_delays_reorders_repeats_and_loses(tmp):
    """Each frame takes 20 to 140 ms, so frames overtake each other; of a hundred, two are lost and
    two come twice."""
    with ShakyNet(3, delay_s=0.08, jitter_s=0.06, loss=0.02, repeat=0.02) as net, Cast() as cast:
        nodes, _ = three(cast, net, "keep_alive_interval_ms=5000", "max_restarts=3")
        for after in range(3):
            nodes[after % 3].tell("fail")
            found = [n.until_round(lambda m: m["restart"] == after + 1) for n in nodes]
            assert {m["groups"] for m in found} == {3}
            assert len({m["port"] for m in found}) == 1
        end_well(nodes)
        assert net.seen["overtaken"] > 0 and net.seen["frames"] > 50, net.seen


def test_another_host_than_the_first_by_address(tmp):
    with Net(3) as net, Cast() as cast:
        where = f"{net.hosts[1].addr}:{PORT}"
        nodes = [cast.node("c10d", where, *ELASTIC, prefix=h.run) for h in net.hosts]
        found = [n.until_round(lambda m: m["groups"] == 3) for n in nodes]
        # the store is on the host of rank 0, which comes first by its address
        assert {m["addr"] for m in found} == {net.hosts[0].addr}
        nodes[1].tell("leave")
        for n in (nodes[0], nodes[2]):
            assert "leaves" in n.expect("stop")
        nodes[1].tell("quit")
        go_on([nodes[0], nodes[2]], 0)
        end_well([nodes[0], nodes[2]])


def test_a_silent_host_ends_its_own_workers(tmp):
    conf = f"last_call_timeout=0.5,keep_alive_interval={BEAT_MS / 1000},keep_alive_max_attempt=4"
    with Net(3) as net, Nodes(tmp, "--nnodes=2:3", endpoint=f"{net.hosts[0].addr}:{PORT}",
                              conf=conf) as nodes:
        a, b, c = [nodes.start(name, prefix=h.run) for name, h in zip("abc", net.hosts)]
        first = nodes.round(3)
        net.hosts[2].cut()
        second = nodes.round(2)
        nodes.gone(first)  # also the silent host's workers, though no message could reach it
        assert c.wait() == 1 and "has not answered" in c.text, c.text
        for w in second:
            w.signal(signal.SIGUSR2)
        assert a.wait() == 0 and b.wait() == 0


def test_static_nodes_on_hosts(tmp):
    with Net(2) as net, Cast() as cast:
        where = f"{net.hosts[0].addr}:29500"
        nodes = [cast.node("static", where, "min_nodes=2", "max_nodes=2", f"node_rank={i}",
                           "max_restarts=1",
                           prefix=net.hosts[i].run) for i in (1, 0)]
        for n, rank in zip(nodes, (1, 0)):
            m = n.expect("round")
            assert (m["group"], m["addr"], m["port"]) == (rank, net.hosts[0].addr, 29500)
        nodes[0].tell("fail")
        for n in nodes:
            m = n.until_round(lambda m: m["round"] == 1)
            assert (m["restart"], m["port"]) == (1, 29500)
        end_well(nodes)


def test_a_static_node_is_back_before_its_lease_is_over(tmp):
    """The machine of node rank 1 loses power and is up again while its old lease still runs."""
    with Net(2) as net, Cast() as cast:
        common = ["min_nodes=2", "max_nodes=2", f"keep_alive_interval_ms={BEAT_MS}",
                  "keep_alive_max_attempt=6"]
        where = f"{net.hosts[0].addr}:29500"
        first = [cast.node("static", where, *common, f"node_rank={i}", prefix=net.hosts[i].run)
                 for i in (0, 1)]
        for n in first:
            n.expect("round")
        net.hosts[1].cut()
        first[1].signal(signal.SIGKILL)  # its FIN is lost
        first[1].wait()
        net.hosts[1].heal()
        again = cast.node("static", where, *common, "node_rank=1", prefix=net.hosts[1].run)
        found = [n.until_round(lambda m: m["round"] == 1) for n in (first[0], again)]
        assert [m["group"] for m in found] == [0, 1] and {m["restart"] for m in found} == {0}
        end_well([first[0], again])


if __name__ == "__main__":
    run_tests(globals())
