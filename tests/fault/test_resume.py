#!/usr/bin/env python3
# timeout: 300
"""A lost connection is not a lost node: connections are reset, and coordinators are restarted,
while a round runs. No worker may be stopped for it."""
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import TIMEOUT_S, run_tests, skip, wait_for
from free_port import free_port
from netns import Net
from nodes import Daemon, Nodes

PORT = 29400


def reset(host, coordinator):
    """Resets the connections of this host to the coordinator. Returns how many there were."""
    done = subprocess.run([*host.run, "ss", "-H", "-t", "-K", "dst", coordinator, "dport", "=",
                           str(PORT)], capture_output=True, text=True)
    if done.returncode != 0:
        skip(f"'ss -K' cannot reset connections here: {done.stderr}")
    return len(done.stdout.splitlines())


def end_well(nodes, workers):
    for w in workers:
        w.signal(signal.SIGUSR2)
    for n in nodes:
        assert n.wait() == 0, n.text


def test_resets_stop_no_worker(tmp):
    with Net(3) as net, Nodes(tmp, "--nnodes=3", endpoint=f"{net.hosts[0].addr}:{PORT}") as nodes:
        a = nodes.start_host_in(net.hosts[0], "a")
        others = [nodes.start(name, prefix=h.run) for name, h in zip("bc", net.hosts[1:])]
        workers = nodes.round(3)
        resumed = 0
        for count in range(1, 4):
            for n, h in zip(others, net.hosts[1:]):
                wait_for(lambda: a.text.count("has resumed on a new connection") == resumed,
                         f"{resumed} RESUMEs")
                assert reset(h, net.hosts[0].addr) == 1
                resumed += 1
                wait_for(lambda: n.text.count("the workers go on") == count,
                         f"{n.name} to lose its connection")
        wait_for(lambda: a.text.count("has resumed on a new connection") == 6, "six RESUMEs")
        assert all(w.alive for w in workers)
        end_well([a, *others], workers)
        assert "is over" not in a.text + others[0].text + others[1].text


def test_a_success_that_is_lost_with_its_connection_counts(tmp):
    with Net(2) as net, Nodes(tmp, "--nnodes=2", endpoint=f"{net.hosts[0].addr}:{PORT}") as nodes:
        a = nodes.start_host_in(net.hosts[0], "a")
        b = nodes.start("b", prefix=net.hosts[1].run)
        workers = nodes.round(2)
        net.hosts[1].cut()  # what b sends from now on is lost with its connection
        next(w for w in workers if w.node == "b").signal(signal.SIGUSR2)
        wait_for(lambda: "all workers" in b.text or not workers[1].alive, "b's worker to end")
        assert reset(net.hosts[1], net.hosts[0].addr) == 1
        net.hosts[1].heal()
        next(w for w in workers if w.node == "a").signal(signal.SIGUSR2)
        assert a.wait() == 0 and b.wait() == 0


def restart_while_running(tmp, number):
    port = free_port()
    daemon = Daemon(port)
    try:
        with Nodes(tmp, "--nnodes=3", endpoint=f"127.0.0.1:{port}", conf="is_host=0") as nodes:
            started = [nodes.start(name) for name in "abc"]
            workers = nodes.round(3)
            for _ in range(2):
                daemon.kill(number)
                daemon = Daemon(port)
                wait_for(lambda: daemon.phase() == "RUNNING", "the round to be rebuilt")
                assert all(w.alive for w in workers)
            end_well(started, workers)
            assert not any("is over" in n.text for n in started)
    finally:
        daemon.kill()


def test_a_killed_daemon_is_waited_for(tmp):
    restart_while_running(tmp, signal.SIGKILL)


def test_an_upgraded_daemon_is_waited_for(tmp):
    restart_while_running(tmp, signal.SIGTERM)


def test_a_daemon_that_stays_away_is_given_up(tmp):
    port = free_port()
    daemon = Daemon(port)
    conf = "is_host=0,keep_alive_interval=4,coordinator_wait=1"  # the fence is at 10 s
    with Nodes(tmp, "--nnodes=2", endpoint=f"127.0.0.1:{port}", conf=conf) as nodes:
        a, b = nodes.start("a"), nodes.start("b")
        workers = nodes.round(2)
        daemon.kill()
        for n in a, b:
            wait_for(lambda: "the workers go on" in n.text, f"{n.name} to lose its connection")
        assert all(w.alive for w in workers)
        nodes.gone(workers)
        for n in a, b:
            assert n.wait() == 1
            assert "coordinator_wait=SECONDS" in n.text, n.text


def test_a_node_that_is_lost_during_the_restart(tmp):
    port = free_port()
    daemon = Daemon(port)
    conf = "is_host=0,keep_alive_interval=0.5,last_call_timeout=0.3"
    try:
        with Nodes(tmp, "--nnodes=2:3", endpoint=f"127.0.0.1:{port}", conf=conf) as nodes:
            a, b, c = [nodes.start(name) for name in "abc"]
            workers = nodes.round(3)
            daemon.kill(signal.SIGTERM)
            c.signal(signal.SIGKILL)
            daemon = Daemon(port)
            again = nodes.round(2, TIMEOUT_S)
            assert {w.restarts for w in again} == {0}
            nodes.gone(workers)
            end_well([a, b], again)
    finally:
        daemon.kill()


if __name__ == "__main__":
    run_tests(globals())
