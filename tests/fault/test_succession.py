#!/usr/bin/env python3
# timeout: 400
"""The node that hosts the coordinator is lost (backend c10d, no etcd). Another node of the round
takes over while more than half of the round's nodes are left; otherwise the job ends and says
why."""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import PACE, run_tests, wait_for
from netns import Net
from nodes import Nodes
from rdzv_node import Cast, end_well, go_on

PORT = 29400
# A node that gets no processor for a lease is lost. A slow build gets longer leases for that.
BEAT_MS = round(500 * PACE)
FAST = [f"keep_alive_interval_ms={BEAT_MS}", "keep_alive_max_attempt=4", "join_timeout_ms=60000"]
CONF = f"keep_alive_interval={BEAT_MS / 1000},keep_alive_max_attempt=4,last_call_timeout=0.5"


def start(cast, net, *more, count=None):
    nodes = [cast.node("c10d", f"{net.hosts[0].addr}:{PORT}", *FAST, *more, prefix=h.run)
             for h in net.hosts]
    first = [n.until_round(lambda m: m["groups"] == (count or len(nodes))) for n in nodes]
    return nodes, first


def leaders(nodes):
    return [n for n in nodes if any("(this node), epoch" in line for line in n.story)]


def test_a_killed_host(tmp):
    """Its machine is up, so the others see end-of-file and take over at once."""
    with Net(3) as net, Cast() as cast:
        nodes, first = start(cast, net, "min_nodes=2", "max_nodes=3",
                             "keep_alive_interval_ms=100000")
        assert {m["addr"] for m in first} == {net.hosts[0].addr}  # the store is lost with the host
        nodes[0].signal(signal.SIGKILL)
        go_on(nodes[1:], 0)  # gives up long before a lease of 400 s is over
        assert leaders(nodes[1:]) == [nodes[1]]
        end_well(nodes[1:])


def test_a_black_holed_host(tmp):
    """The host and the others are cut off from each other. The host stops its round, and forms
    none. When the network is back, the host joins the others as any other node."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=1", "max_nodes=3")
        net.hosts[0].cut()
        found = go_on(nodes[1:], 0)
        assert "no longer hears half" in nodes[0].expect("stop")
        net.hosts[0].heal()
        after = go_on(nodes, found[0]["round"])  # no round of the old host alone
        assert {m["round"] for m in after} == {found[0]["round"] + 1}
        end_well(nodes)


def test_a_black_holed_host_of_five_with_one_other(tmp):
    """The host and one node are on one side, three nodes on the other."""
    with Net(5) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=2", "max_nodes=5")
        for h in net.hosts[2:]:
            for other in net.hosts[:2]:
                h.black_hole(other.addr)
        go_on(nodes[2:], 0)
        for n in nodes[:2]:
            assert "no longer hears half" in n.expect("stop")
        for n in nodes[2:]:
            n.tell("succeed")
        for n in nodes[2:]:
            assert n.expect("end").startswith("0")
        for n in nodes[:2]:  # they never run without the others
            end = n.next()
            assert end.startswith("end 2"), end


def test_two_hosts_die_one_after_the_other(tmp):
    with Net(4) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=2", "max_nodes=4")
        nodes[0].signal(signal.SIGKILL)
        found = go_on(nodes[1:], 0)
        heir = leaders(nodes[1:])[0]
        heir.signal(signal.SIGKILL)
        rest = [n for n in nodes[1:] if n is not heir]
        # two of the three nodes are left
        go_on(rest, found[0]["round"])
        end_well(rest)


def test_a_host_that_leaves(tmp):
    """Its launcher is told to end, by a batch system for example."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=2", "max_nodes=3")
        nodes[0].tell("leave")
        for n in nodes[1:]:
            assert "leaves" in n.expect("stop")
        nodes[0].tell("quit")  # its workers are gone
        go_on(nodes[1:], 0)
        end_well(nodes[1:])


def test_two_nodes_end_and_say_why(tmp):
    with Net(2) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=1", "max_nodes=3", "last_call_timeout_ms=500")
        nodes[0].signal(signal.SIGKILL)
        assert "lost the coordinator" in nodes[1].expect("stop")
        end = nodes[1].expect("end")
        assert end.startswith("2") and "lost the coordinator" in end, end
        assert "coordinator_wait" in end, end


def test_a_minority_ends_and_says_why(tmp):
    """The host and one of two other nodes are lost at once."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=1", "max_nodes=3")
        for n in nodes[:2]:
            n.signal(signal.SIGKILL)
        assert "lost the coordinator" in nodes[2].expect("stop")
        end = nodes[2].expect("end")
        assert end.startswith("2") and "more than half of the 3 nodes" in end, end


def test_a_host_whose_other_nodes_were_killed_goes_on_alone(tmp):
    """Processes that have ended cannot elect another coordinator."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=1", "max_nodes=3")
        for n in nodes[1:]:
            n.signal(signal.SIGKILL)
        go_on(nodes[:1], 0)
        end_well(nodes[:1])


def test_a_stopped_host_is_deposed(tmp):
    """Its process is stopped for longer than the others wait; then it goes on."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=1", "max_nodes=3")
        nodes[0].signal(signal.SIGSTOP)
        found = go_on(nodes[1:], 0)
        nodes[0].signal(signal.SIGCONT)
        after = go_on(nodes, found[0]["round"])
        assert {m["round"] for m in after} == {found[0]["round"] + 1}
        end_well(nodes)


def test_the_launcher_is_started_again_at_the_endpoint(tmp):
    """A job of a fixed number of nodes waits for a node in place of the lost one. The launcher that
    is started again on the endpoint's machine hosts there, and hears of the job that goes on
    elsewhere."""
    with Net(3) as net, Cast() as cast:
        nodes, _ = start(cast, net, "min_nodes=3", "max_nodes=3")
        nodes[0].signal(signal.SIGKILL)
        for n in nodes[1:]:
            n.expect("stop")
        wait_for(lambda: any("2 waiting" in line for n in nodes[1:] for line in n.story),
                 "a node to take over")
        again = cast.node("c10d", f"{net.hosts[0].addr}:{PORT}", *FAST, "min_nodes=3",
                          "max_nodes=3", prefix=net.hosts[0].run)
        go_on([again, *nodes[1:]], 0)
        end_well([again, *nodes[1:]])


def test_a_new_node_comes_to_the_endpoint_of_an_old_host(tmp):
    """The old host is a node of the job again, and sends new nodes to the coordinator."""
    with Net(4) as net, Cast() as cast:
        where = f"{net.hosts[0].addr}:{PORT}"
        elastic = ["min_nodes=2", "max_nodes=4", "last_call_timeout_ms=500"]
        nodes = [cast.node("c10d", where, *FAST, *elastic, prefix=h.run) for h in net.hosts[:3]]
        first = [n.until_round(lambda m: m["groups"] == 3) for n in nodes]
        net.hosts[0].cut()
        found = go_on(nodes[1:], first[0]["round"])
        net.hosts[0].heal()
        found = go_on(nodes, found[0]["round"])
        fresh = cast.node("c10d", where, *FAST, *elastic, prefix=net.hosts[3].run)
        go_on([*nodes, fresh], found[0]["round"])
        end_well([*nodes, fresh])


def test_a_spare_steps_in_for_the_killed_host(tmp):
    """The spare was in no round; SPARE has told it where the heirs are."""
    with Net(4) as net, Cast() as cast:
        where = f"{net.hosts[0].addr}:{PORT}"
        three = ["min_nodes=3", "max_nodes=3"]
        nodes = [cast.node("c10d", where, *FAST, *three, prefix=h.run) for h in net.hosts[:3]]
        first = [n.until_round(lambda m: m["groups"] == 3) for n in nodes]
        spare = cast.node("c10d", where, *FAST, *three, prefix=net.hosts[3].run)
        wait_for(lambda: any("as a spare" in s for s in spare.story), "a spare that says so")
        nodes[0].signal(signal.SIGKILL)
        go_on([*nodes[1:], spare], first[0]["round"])
        end_well([*nodes[1:], spare])


def test_workers_of_a_killed_launcher(tmp):
    """With real launchers and workers: no worker of the old round is left when the next begins."""
    with Net(3) as net, Nodes(tmp, "--nnodes=2:3", "--max-restarts=0", conf=CONF,
                              endpoint=f"{net.hosts[0].addr}:{PORT}") as nodes:
        a = nodes.start_host_in(net.hosts[0], "a")
        b, c = (nodes.start(name, prefix=h.run) for name, h in zip("bc", net.hosts[1:]))
        first = nodes.round(3)
        a.signal(signal.SIGKILL)
        second = nodes.round(2)
        nodes.gone(first)
        assert {w.restarts for w in second} == {0}
        for w in second:
            nodes.connects(w)
            w.signal(nodes.WELL)
        assert b.wait() == 0 and c.wait() == 0, b.text + c.text


if __name__ == "__main__":
    run_tests(globals())
