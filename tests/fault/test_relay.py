#!/usr/bin/env python3
# timeout: 300
"""Nodes behind a relay (crun-agent relay): the coordinator's host has one connection for all of
them, their leases are kept, and the death of the relay stops no worker."""
import os
import signal
import subprocess
import time

from crun_test import BUILD, TIMEOUT_S, clean_env, kill, run_tests, wait_for
from free_port import free_port
from nodes import Daemon, Nodes

CONF = "last_call_timeout=0.5,keep_alive_interval=1,keep_alive_max_attempt=8,is_host=0"
SECRET = "a secret of more than 32 characters: 0123456789\n"


class Relay:
    def __init__(self, upstream, *options):
        self.process = subprocess.Popen(
            [BUILD / "bin" / "crun-agent", "relay", upstream, "--listen=127.0.0.1:0", *options],
            stdout=subprocess.PIPE, text=True, env=clean_env())
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("127.0.0.1:"), self.address

    def __enter__(self):
        return self

    def __exit__(self, *_):
        kill(self.process)


class Job:
    """A crun-agent that serves, a relay before it, and a job whose nodes use the relay."""

    def __init__(self, tmp, *options, secret=None):
        more = [f"--rdzv-token-file={secret}"] if secret else []
        self.port = free_port()
        self.daemon = Daemon(self.port, *more)
        self.relay = Relay(self.daemon.address, *more)
        self.nodes = Nodes(tmp, *options, *more, endpoint=self.daemon.address,
                           conf=f"{CONF},relay={self.relay.address}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.nodes.__exit__(kind, *rest)
        kill(self.relay.process)
        kill(self.daemon.process)

    def peers(self):
        """The processes that are connected to the port of the coordinator, once per connection."""
        found = subprocess.run(["ss", "-H", "-t", "-n", "-p", "state", "established", "dport", "=",
                                f":{self.port}"], capture_output=True, text=True).stdout
        return [line for line in found.splitlines() if "users:" in line]

    def by_relay(self):
        peers = self.peers()
        return len(peers) == 1 and f"pid={self.relay.process.pid}," in peers[0]


def end_well(job, nodes):
    for w in job.nodes.workers():
        if w.alive:
            w.signal(Nodes.WELL)
    for n in nodes:
        assert n.wait() == 0, n.text


def test_many_nodes_have_one_connection(tmp):
    """The round outlives the leases, whose beats come by HOLD, and a failure is known to all."""
    with Job(tmp, "--nnodes=3", "--max-restarts=1") as job:
        nodes = [job.nodes.start(name) for name in "abc"]
        first = job.nodes.round(3)
        assert job.by_relay(), job.peers()
        time.sleep(10)  # longer than the lease of 8 s
        assert all(w.alive for w in first), "a lease was not kept"
        assert job.daemon.phase() == "RUNNING"
        first[1].signal(signal.SIGUSR1)
        second = job.nodes.round(3)
        assert {w.restarts for w in second} == {1}
        assert job.by_relay(), job.peers()
        end_well(job, nodes)


def test_a_dead_relay_stops_no_worker(tmp):
    with Job(tmp, "--nnodes=3") as job:
        nodes = [job.nodes.start(name) for name in "abc"]
        first = job.nodes.round(3)
        job.relay.process.kill()
        wait_for(lambda: len(job.peers()) == 3, "three connections of the nodes themselves")
        assert all(w.alive for w in first), "a worker was stopped"
        end_well(job, nodes)
        assert len(job.nodes.workers()) == 3, "there was a second round"


def test_a_relay_that_is_told_to_end_stops_no_worker(tmp):
    with Job(tmp, "--nnodes=2") as job:
        nodes = [job.nodes.start(name) for name in "ab"]
        first = job.nodes.round(2)
        job.relay.process.send_signal(signal.SIGTERM)
        assert job.relay.process.wait(TIMEOUT_S) == 0
        wait_for(lambda: len(job.peers()) == 2, "two connections of the nodes themselves")
        assert all(w.alive for w in first), "a worker was stopped"
        end_well(job, nodes)


def test_a_silent_node_behind_a_relay_is_lost(tmp):
    with Job(tmp, "--nnodes=1:2") as job:
        a, b = job.nodes.start("a"), job.nodes.start("b")
        first = job.nodes.round(2)
        b.signal(signal.SIGSTOP)
        second = job.nodes.round(1)
        assert second[0].node == "a"
        job.nodes.gone([w for w in first if w.node == "b"])  # its warden has ended it
        b.signal(signal.SIGCONT)
        job.nodes.round(2)
        end_well(job, [a, b])


def test_a_dead_node_behind_a_relay_is_lost_at_once(tmp):
    with Job(tmp, "--nnodes=1:2") as job:
        a, b = job.nodes.start("a"), job.nodes.start("b")
        job.nodes.round(2)
        b.process.kill()
        second = job.nodes.round(1)
        assert second[0].node == "a" and "nothing heard" not in a.text, a.text
        end_well(job, [a])


def test_no_relay_is_there(tmp):
    with Job(tmp, "--nnodes=2") as job:
        kill(job.relay.process)
        nodes = [job.nodes.start(name) for name in "ab"]
        job.nodes.round(2)
        assert len(job.peers()) == 2, job.peers()
        end_well(job, nodes)


def test_a_job_with_a_secret(tmp):
    secret = tmp / "token"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with Job(tmp, "--nnodes=2", secret=secret) as job:
        nodes = [job.nodes.start(name) for name in "ab"]
        job.nodes.round(2)
        assert job.by_relay(), job.peers()
        other = tmp / "other"
        other.write_text("another " + SECRET)
        other.chmod(0o600)
        stranger = job.nodes.start("c", f"--rdzv-token-file={other}")
        wait_for(lambda: "cannot authenticate" in stranger.text, "the stranger to be refused")
        assert job.by_relay(), job.peers()
        stranger.signal(signal.SIGKILL)
        end_well(job, nodes)


def test_operators_are_not_served(tmp):
    with Job(tmp, "--nnodes=1") as job:
        done = subprocess.run([BUILD / "bin" / "crun-agent", "status", job.relay.address],
                              capture_output=True, text=True, env=clean_env())
        assert done.returncode == 1 and "a relay carries nodes only" in done.stderr, done.stderr


if __name__ == "__main__":
    os.environ.setdefault("LOGLEVEL", "info")
    run_tests(globals())
