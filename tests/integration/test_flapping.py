#!/usr/bin/env python3
# timeout: 180
"""Hosts on which something goes wrong again and again: crun-agent status shows what the
coordinator holds against them, and crun-agent admit ends it. Real launchers, each under a host name
of its own."""
import json
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, PACE, TIMEOUT_S, run, run_tests, skip, wait_for
from nodes import Nodes

AGENT = BUILD / "bin" / "crun-agent"
CONF = "last_call_timeout=0.3,change_notice=0,"


def named(host):
    """The prefix of a command that runs under this host name."""
    if os.geteuid() != 0:
        skip("a host name of its own needs root")
    return ("unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh")


def status(nodes):
    done = run([AGENT, "status", "--json", nodes.endpoint])
    assert done.returncode == 0, done
    return json.loads(done.stdout)["jobs"][0]


def host_of(nodes, name):
    found = [h for h in status(nodes)["hosts"] if h["host"] == name]
    return found[0] if found else {}


def members_of(nodes, name):
    return [m["state"] for m in status(nodes)["members"] if m["host"] == name]


def flap(nodes):
    """A node of the host `flap` joins the round and is killed."""
    node = nodes.start("flap", prefix=named("flap"))
    nodes.round(workers=2)
    node.signal(signal.SIGKILL)
    assert node.wait() == -signal.SIGKILL
    nodes.round(workers=1)


def test_a_host_that_flaps_is_slowed_refused_and_admitted(tmp):
    with Nodes(tmp, "--nnodes=1:2", conf=CONF + "flap_limit=2") as nodes:
        nodes.start("a", prefix=named("first"))
        nodes.round(workers=1)
        flap(nodes)
        flap(nodes)
        assert host_of(nodes, "flap")["short_lives"] == 2, status(nodes)
        slowed = nodes.start("flap", prefix=named("flap"))
        wait_for(lambda: "waiting because nodes of this host were lost 2 times" in slowed.text,
                 "the node is told why it waits")
        done = run([AGENT, "status", nodes.endpoint])
        assert "host flap: 2 short lives" in done.stdout, done
        nodes.round(workers=2)  # when its time is over, it is let in
        slowed.signal(signal.SIGKILL)
        assert slowed.wait() == -signal.SIGKILL
        nodes.round(workers=1)
        flap(nodes)
        refused = nodes.start("flap", prefix=named("flap"))
        assert refused.wait() == 1, refused.text
        assert "lost 4 times in a row within 60 s of joining" in refused.text, refused.text
        done = run([AGENT, "admit", nodes.endpoint, "--job=job", "--node=flap"])
        assert (done.returncode, done.stdout) == (0, "admitted: flap\n"), done
        nodes.start("flap", prefix=named("flap"))
        nodes.round(workers=2)
        done = run([AGENT, "admit", nodes.endpoint, "--job=job", "--node=flap"])
        assert done.returncode == 1 and "nothing is held against host 'flap'" in done.stderr, done


def test_a_spare_takes_the_place_of_a_host_where_failures_begin(tmp):
    with Nodes(tmp, "--nnodes=2", "--max-restarts=5", conf=CONF + "aside_after=2") as nodes:
        nodes.start("a", prefix=named("first"))
        nodes.start("b", prefix=named("bad"))
        first = nodes.round(workers=2)
        nodes.start("c", prefix=named("spare"))
        wait_for(lambda: members_of(nodes, "spare") == ["JOINED"], "the spare is there")
        for _ in range(2):
            assert {w.node for w in first} == {"a", "b"}, first
            next(w for w in first if w.node == "b").signal(signal.SIGUSR1)
            first = nodes.round(workers=2)
        assert {w.node for w in first} == {"a", "c"}, [w.node for w in first]
        wait_for(lambda: members_of(nodes, "bad") == ["ASIDE"], "the bad host to be aside")
        assert host_of(nodes, "bad")["aside_s"] > 0, status(nodes)


def test_a_job_that_loses_too_many_nodes_ends(tmp):
    with Nodes(tmp, "--nnodes=1:2", conf=CONF + "max_losses=1,flap_limit=0") as nodes:
        a = nodes.start("a")
        nodes.round(workers=1)
        flap(nodes)
        assert status(nodes)["losses"] == 1, status(nodes)
        assert status(nodes)["max_losses"] == 1, status(nodes)
        node = nodes.start("flap", prefix=named("flap"))
        nodes.round(workers=2)
        node.signal(signal.SIGKILL)
        assert a.wait() == 1
        assert "nodes were lost in 2 rounds, and --rdzv-conf=max_losses allows 1" in a.text, a.text


def test_the_next_round_backs_off(tmp):
    with Nodes(tmp, "--nnodes=2", "--max-restarts=5",
               conf=CONF + f"restart_backoff={round(5 * PACE)}") as nodes:
        nodes.start("a")
        nodes.start("b")
        nodes.round(workers=2)[0].signal(signal.SIGUSR1)
        wait_for(lambda: status(nodes)["backoff_s"] > 0, "the job backs off", TIMEOUT_S)
        assert {w.restarts for w in nodes.round(workers=2)} == {1}


if __name__ == "__main__":
    run_tests(globals())
