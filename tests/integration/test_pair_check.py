#!/usr/bin/env python3
# timeout: 240
"""--pair-check: before a round, nodes test the network with each other; a node that is at fault
gets no place in a round and is named, and a spare comes in its place."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_job import DUMP, Job
from crun_test import PACE, ROOT, read_text, run_tests, wait_for
from nodes import Nodes, end_well

# All nodes of these tests have one host name, so this check meets its partner at the port, and the
# two exchange their names: a node's name is TEST_NODE. It fails if one of the two is "bad".
CHECK = f"/usr/bin/python3 {ROOT}/tests/programs/pair_check.py"


def both_unfit(nodes):
    def look():
        unfit = nodes.unfit()
        return unfit if len(unfit) == 2 else None
    return wait_for(look, "both nodes in crun-agent status")


def tests_of(tmp):
    """The tests that were made, as (name, partner's name)."""
    return [tuple(line.split()) for p in tmp.glob("tests.*") for line in read_text(p).splitlines()]


def test_one_bad_node_of_four_is_named_and_replaced(tmp):
    with Nodes(tmp, "--nnodes=4", f"--pair-check={CHECK}") as nodes:
        host = nodes.start_host("n0")
        bad = nodes.start("bad")
        rest = [nodes.start(f"n{i}") for i in (1, 2)]
        unfit = wait_for(nodes.unfit, "the bad node in crun-agent status")
        assert not nodes.workers(), "a worker has started before the bad node was found"
        assert [m["pid"] for m in unfit] == [bad.process.pid], (unfit, bad.process.pid)
        assert "its paired tests have failed" in unfit[0]["unfit"], unfit
        assert "the cable is broken" in unfit[0]["unfit"], unfit
        spare = nodes.start("spare")
        workers = nodes.round(4)
        assert {w.node for w in workers} == {"n0", "n1", "n2", "spare"}
        assert {w.restarts for w in workers} == {0}
        assert "the paired test of" in host.text, host.text
        wait_for(lambda: "the paired test of host" in bad.text, "the bad node's own line")
        end_well(workers)
        assert {n.wait() for n in (host, spare, bad, *rest)} == {0}


def test_healthy_nodes_are_tested_once(tmp):
    """Three nodes: the odd one is tested after the others. A restart tests only the node on which
    a worker has failed."""
    with Nodes(tmp, "--nnodes=3", "--max-restarts=1", f"--pair-check={CHECK}",
               "--port-range=14300-14339") as nodes:
        started = [nodes.start(f"n{i}") for i in range(3)]
        first = nodes.round(3)
        tests = tests_of(tmp)
        assert {name for name, _ in tests} == {"n0", "n1", "n2"}, tests
        assert len(tests) == 4, tests
        ports = [int(read_text(p)) for p in tmp.glob("port.*")]
        assert ports and all(14300 <= port <= 14339 for port in ports), ports
        first[0].signal(10)  # SIGUSR1: the worker fails
        second = nodes.round(3)
        more = tests_of(tmp)
        assert len(more) == 6, more
        assert sum(first[0].node in pair for pair in more) >= \
            sum(first[0].node in pair for pair in tests) + 2, (tests, more)
        end_well(second)
        assert {n.wait() for n in started} == {0}
        assert "not fit" not in "".join(n.text for n in started)


def test_two_nodes_that_fail_are_both_named(tmp):
    with Nodes(tmp, "--nnodes=2", f"--pair-check={CHECK}") as nodes:
        host, bad = nodes.start_host("n0"), nodes.start("bad")
        for m in both_unfit(nodes):
            assert "no third node is there" in m["unfit"], m
            assert "the cable is broken" in m["unfit"], m
        assert not nodes.workers()
        for n in (host, bad):
            wait_for(lambda n=n: "without a place, because this node is not fit" in n.text, n.name)
        third = nodes.start("n1")
        workers = nodes.round(2)
        assert {w.node for w in workers} == {"n0", "n1"}
        end_well(workers)
        assert {n.wait() for n in (host, third, bad)} == {0}


def test_a_test_that_hangs_has_failed(tmp):
    check = "if test $TEST_NODE = bad; then sleep 600; fi"
    limit = f"{3 * PACE:g}"  # the tests of the other nodes must not take so long
    with Nodes(tmp, "--nnodes=3", f"--pair-check={check}", f"--pair-timeout={limit}") as nodes:
        started = [nodes.start_host("n0"), nodes.start("n1"), nodes.start("bad")]
        unfit = wait_for(nodes.unfit, "the bad node in crun-agent status")
        assert [m["pid"] for m in unfit] == [started[2].process.pid], unfit
        assert f"has not ended within {limit} s" in unfit[0]["unfit"], unfit
        spare = nodes.start("n2")
        workers = nodes.round(3)
        assert {w.node for w in workers} == {"n0", "n1", "n2"}
        end_well(workers)
        assert {n.wait() for n in (*started, spare)} == {0}


def test_the_example_passes_between_two_nodes(tmp):
    check = f"/usr/bin/python3 {ROOT}/examples/pair_check.py --megabytes=4 --least-mbps=0.001"
    with Nodes(tmp, "--nnodes=2", f"--pair-check={check}") as nodes:
        started = [nodes.start("a"), nodes.start("b")]
        end_well(nodes.round(2))
        assert {n.wait() for n in started} == {0}


def test_the_example_names_a_slow_network(tmp):
    check = f"/usr/bin/python3 {ROOT}/examples/pair_check.py --megabytes=1 --least-mbps=1e9"
    with Nodes(tmp, "--nnodes=2", f"--pair-check={check}") as nodes:
        nodes.start_host("a")
        nodes.start("b")
        both = both_unfit(nodes)
        assert all("MB/s" in m["unfit"] for m in both), both


def test_a_single_node_has_no_partner(_):
    job = Job("--pair-check=exit 1", DUMP)
    assert job.status == 0 and len(job.workers) == 1, job.err


if __name__ == "__main__":
    run_tests(globals())
