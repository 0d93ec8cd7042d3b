#!/usr/bin/env python3
# timeout: 300
"""Several nodes as real crun processes on loopback: ranks, failures, losses, spares, late joiners,
who hosts, several jobs at one endpoint, a daemon that goes and comes back."""
import os
import pathlib
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import PACE, TIMEOUT_S, read_text, run_tests, script, wait_for
from free_port import free_port
from nodes import Daemon, Nodes
from rdzv_raw import Member


def end_well(workers):
    for w in workers:
        w.signal(signal.SIGUSR2)


def test_every_variable_on_every_node(tmp):
    with Nodes(tmp, "--nnodes=2") as nodes:
        a = nodes.start("a", "--nproc-per-node=2", "--role=alpha")
        b = nodes.start("b", "--nproc-per-node=3", "--role=beta")
        workers = nodes.round(5)
        first = {}
        for w in workers:
            first.setdefault(w.node, w.rank)
        for w in workers:
            e, alpha = w.env, w.node == "a"
            assert e["WORLD_SIZE"] == "5" and e["GROUP_WORLD_SIZE"] == "2"
            assert e["LOCAL_WORLD_SIZE"] == e["ROLE_WORLD_SIZE"] == ("2" if alpha else "3")
            assert int(e["LOCAL_RANK"]) == int(e["ROLE_RANK"]) == w.rank - first[w.node]
            assert e["GROUP_RANK"] == ("0" if first[w.node] == 0 else "1")
            assert e["ROLE_NAME"] == ("alpha" if alpha else "beta")
            assert e["TORCHELASTIC_RUN_ID"] == "job" and e["TORCHELASTIC_RESTART_COUNT"] == "0"
            assert w.address == workers[0].address and w.address[0] == "127.0.0.1"
        socket.create_connection(workers[0].address, TIMEOUT_S).close()
        end_well(workers)
        assert a.wait() == 0 and b.wait() == 0


def test_a_node_that_knows_a_later_coordinator_is_refused(tmp):
    """Without heirs, only one host serves a job. A node that names a larger epoch has been at a
    later coordinator, so this host is an old one, and does not serve it."""
    with Nodes(tmp, "--nnodes=2", conf="keep_coordinator=true,last_call_timeout=0.3") as nodes:
        a = nodes.start_host("a")
        late = Member(nodes.endpoint, epoch=7)
        answer = late.expect("REFUSED")
        assert answer["why"] == "this coordinator has epoch 0, the node has obeyed epoch 7"
        late.close()
        b = nodes.start("b")
        end_well(nodes.round(2))
        assert a.wait() == 0 and b.wait() == 0


def test_a_failure_restarts_all_nodes_once(tmp):
    with Nodes(tmp, "--nnodes=2", "--max-restarts=1", "--nproc-per-node=2") as nodes:
        a, b = nodes.start("a"), nodes.start("b")
        first = nodes.round(4)
        next(w for w in first if w.node == "b").signal(signal.SIGUSR1)
        second = nodes.round(4)
        assert not any(w.alive for w in first)
        assert {w.restarts for w in second} == {1}
        assert second[0].address != first[0].address
        try:
            socket.create_connection(first[0].address, TIMEOUT_S).close()
            raise AssertionError("the old round's store still listens")
        except ConnectionRefusedError:
            pass
        assert [w.node for w in second] == [w.node for w in first]  # ranks stay
        # The workers of node a are victims: the failure was on node b.
        assert "a worker failed on another node; restart 1 of 1" in a.text, a.text
        assert "; restart 1 of 1" in b.text and "another node; restart" not in b.text, b.text
        second[0].signal(signal.SIGUSR1)
        assert a.wait() == 1 and b.wait() == 1
        assert not any(w.alive for w in second)
        other = b if second[0].node == "a" else a
        assert "exit code 7" in other.text or "exitcode" in other.text, other.text


def test_a_node_that_is_told_to_end_costs_no_restart(tmp):
    """All processes of a node get SIGTERM, in any order. --max-restarts is 0. The launcher is
    stopped meanwhile, so that it meets both deaths at once, however late this test is: a launcher
    that is told to end long after its worker was killed does not excuse the worker."""
    for order in range(3):
        (tmp / str(order)).mkdir()
        with Nodes(tmp / str(order), "--nnodes=1:2") as nodes:
            a, b = nodes.start_host("a"), nodes.start("b")
            worker = next(w for w in nodes.round(2) if w.node == "b")
            b.signal(signal.SIGSTOP)
            if order == 0:
                b.signal(signal.SIGTERM)
            worker.signal(signal.SIGTERM)
            if order == 2:
                wait_for(lambda: not worker.alive, "the worker to end")
            if order > 0:
                b.signal(signal.SIGTERM)
            b.signal(signal.SIGCONT)
            second = nodes.round(1)
            assert second[0].node == "a" and second[0].restarts == 0
            if order == 2:
                assert "a failure costs no restart, because node " in a.text, a.text
            end_well(second)
            assert a.wait() == 0


def test_a_killed_worker_ends_an_elastic_job_without_restarts(tmp):
    with Nodes(tmp, "--nnodes=1:2") as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        next(w for w in nodes.round(2) if w.node == "b").signal(signal.SIGKILL)
        assert a.wait() == 1 and b.wait() == 1


def test_a_lost_node_shrinks_the_group(tmp):
    with Nodes(tmp, "--nnodes=1:2") as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        first = nodes.round(2)
        b.signal(signal.SIGKILL)
        second = nodes.round(1)
        assert second[0].node == "a" and second[0].restarts == 0
        nodes.gone(first)
        end_well(second)
        assert a.wait() == 0


def test_after_a_loss_the_others_wait_for_nobody(tmp):
    """By default only the first round has a last call, of 30 s: the time limit is below that."""
    with Nodes(tmp, "--nnodes=1:2", conf="") as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        nodes.round(2)
        b.signal(signal.SIGKILL)
        second = nodes.round(1, timeout=25)
        end_well(second)
        assert a.wait() == 0


def test_a_late_node_makes_a_new_round(tmp):
    with Nodes(tmp, "--nnodes=1:2") as nodes:
        a = nodes.start("a")
        nodes.round(1)
        b = nodes.start("b")
        both = nodes.round(2)
        assert {w.restarts for w in both} == {0} and {w.node for w in both} == {"a", "b"}
        assert both[0].node == "a"  # it had rank 0
        end_well(both)
        assert a.wait() == 0 and b.wait() == 0


def test_no_round_removes_the_logs_of_another(tmp):
    """Each start of a node's workers has a log folder of its own, also in a round that is no
    restart."""
    logs = {name: tmp / f"logs-{name}" for name in "ab"}
    speaker = script(tmp, "w", "#!/bin/sh\n"
                     f"echo $$ > {tmp}/pid.$TEST_NODE; echo $WORLD_SIZE $TORCHELASTIC_ERROR_FILE\n"
                     "exec sleep 1000\n")

    def start(nodes, name):
        return nodes.start(name, "-t", "1", "--max-restarts=1", f"--log-dir={logs[name]}",
                           "--duplicate-stdout-filters=error", program=speaker)

    def words(name, attempt):
        path = next(logs[name].glob("job_*"), tmp) / attempt
        text = read_text(path / "0" / "stdout.log")
        if text:
            assert text.split()[1] == f"{path}/0/error.json", text
        # crun writes the line to one file after the other
        return text[:1] if text in read_text(path / "filtered_stdout.log") else ""

    with Nodes(tmp, "--nnodes=1:2") as nodes:
        start(nodes, "a")
        wait_for(lambda: words("a", "attempt_0") == "1", "the first round")
        b = start(nodes, "b")
        wait_for(lambda: words("a", "attempt_0.1") == words("b", "attempt_0") == "2", "both")
        b.signal(signal.SIGTERM)
        wait_for(lambda: words("a", "attempt_0.2") == "1", "the round without b")
        os.kill(int(read_text(tmp / "pid.a")), signal.SIGKILL)
        wait_for(lambda: words("a", "attempt_1") == "1", "the restart")
        assert [words("a", f"attempt_0{again}") for again in ("", ".1", ".2")] == ["1", "2", "1"]


def test_a_spare_steps_in(tmp):
    with Nodes(tmp, "--nnodes=2") as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        first = nodes.round(2)
        spare = nodes.start("spare")
        wait_for(lambda: "1 waiting" in a.text, "the spare to be parked")
        b.signal(signal.SIGKILL)
        second = nodes.round(2)
        assert {w.node for w in second} == {"a", "spare"}
        kept = {w.node: w.rank for w in first}["a"]
        assert {w.node: w.rank for w in second}["a"] == kept
        end_well(second)
        assert a.wait() == 0 and spare.wait() == 0


def test_a_leaving_node_lets_the_others_go_on(tmp):
    with Nodes(tmp, "--nnodes=1:2") as nodes:
        a = nodes.start("a")
        nodes.round(1)
        b = nodes.start("b")
        nodes.round(2)
        b.signal(signal.SIGTERM)
        assert b.wait() == 1
        alone = nodes.round(1)
        assert alone[0].node == "a" and alone[0].restarts == 0
        end_well(alone)
        assert a.wait() == 0


def test_without_its_host_a_node_stops_and_says_why(tmp):
    for how, text in ((signal.SIGKILL, "lost the coordinator at"), (signal.SIGTERM, "leaves")):
        folder = tmp / how.name
        folder.mkdir()
        with Nodes(folder, "--nnodes=1:2") as nodes:
            a = nodes.start("a")
            nodes.round(1)
            b = nodes.start("b")
            both = nodes.round(2)
            a.signal(how)
            assert b.wait() == 1
            assert text in b.text, b.text
            nodes.gone(both)


def test_a_node_that_never_comes(tmp):
    with Nodes(tmp, "--nnodes=2", conf="join_timeout=0.5") as nodes:
        a = nodes.start("a")
        assert a.wait() == 1
        assert "1 of at least 2 nodes came" in a.text, a.text


def test_static_nodes(tmp):
    with Nodes(tmp, "--nnodes=2", "--max-restarts=1", backend="static", conf=None) as nodes:
        b = nodes.start("b", "--node-rank=1")
        a = nodes.start("a", "--node-rank=0")
        first = nodes.round(2)
        assert [w.node for w in first] == ["a", "b"]
        assert first[0].address[1] == int(nodes.endpoint.rsplit(":", 1)[1])
        old = socket.create_connection(first[0].address, TIMEOUT_S)
        first[1].signal(signal.SIGUSR1)
        second = nodes.round(2)
        assert [w.node for w in second] == ["a", "b"] and second[0].address == first[0].address
        assert old.recv(1) == b""  # the port stays, the old round's connections do not
        old.close()
        end_well(second)
        assert a.wait() == 0 and b.wait() == 0


def test_a_stopped_agent_is_given_up_and_comes_back(tmp):
    conf = f"last_call_timeout=0.3,keep_alive_interval={0.5 * PACE:g},keep_alive_max_attempt=5"
    with Nodes(tmp, "--nnodes=1:2", conf=conf) as nodes:
        a = nodes.start("a")
        nodes.round(1)
        b = nodes.start("b")
        both = nodes.round(2)
        b.signal(signal.SIGSTOP)
        alone = nodes.round(1)
        assert alone[0].node == "a" and alone[0].restarts == 0
        b.signal(signal.SIGCONT)
        nodes.gone(both)  # it stops what runs in a round that is over
        again = nodes.round(2)
        end_well(again)
        assert a.wait() == 0 and b.wait() == 0


def test_the_coordinator_goes_and_comes_back(tmp):
    port = free_port()
    conf = "is_host=0,last_call_timeout=0.3"
    daemon = Daemon(port)
    try:
        with Nodes(tmp, "--nnodes=2", "--max-restarts=2", endpoint=f"127.0.0.1:{port}",
                   conf=conf) as nodes:
            a, b = nodes.start("a"), nodes.start("b")
            first = nodes.round(2)
            first[0].signal(signal.SIGUSR1)
            second = nodes.round(2)
            daemon.kill()
            daemon = Daemon(port)
            wait_for(lambda: daemon.phase() == "RUNNING", "the round to be rebuilt")
            assert all(w.alive for w in second)
            second[0].signal(signal.SIGUSR1)
            third = nodes.round(2)
            # The store of the rebuilt round went with the daemon, so its failure costs nothing; the
            # count of restarts is what the nodes remember.
            assert {w.restarts for w in third} == {1}
            assert [w.node for w in third] == [w.node for w in second]
            third[0].signal(signal.SIGUSR1)
            fourth = nodes.round(2)
            assert {w.restarts for w in fourth} == {2}
            end_well(fourth)
            assert a.wait() == 0 and b.wait() == 0
    finally:
        daemon.kill()


def test_a_node_of_an_earlier_run_is_refused(tmp):
    """A node that was stopped while its job died meets a new run of the same id. It must neither
    get in nor pass on its restarts."""
    port = free_port()
    where = dict(endpoint=f"127.0.0.1:{port}",
                 conf="is_host=0,last_call_timeout=0.3,coordinator_wait=60")
    (tmp / "old").mkdir(), (tmp / "new").mkdir()
    daemon = Daemon(port)
    try:
        with Nodes(tmp / "old", "--nnodes=2", "--max-restarts=2", **where) as old, \
                Nodes(tmp / "new", "--nnodes=1:2", "--max-restarts=2", **where) as new:
            a, b = old.start("a"), old.start("b")
            old.round(2)[0].signal(signal.SIGUSR1)
            assert old.round(2)[0].restarts == 1
            b.signal(signal.SIGSTOP)
            a.signal(signal.SIGKILL)
            daemon.kill()
            daemon = Daemon(port)
            c = new.start("c")
            workers = new.round(1)
            b.signal(signal.SIGCONT)
            assert b.wait() == 1
            assert "was started for an earlier run of job 'job'" in b.text, b.text
            assert workers[0].alive and workers[0].restarts == 0
            end_well(workers)
            assert c.wait() == 0
    finally:
        daemon.kill()


def test_other_settings_are_named_on_both_sides(tmp):
    with Nodes(tmp) as nodes:
        a = nodes.start_host("a", "--nnodes=2")
        b = nodes.start("b", "--nnodes=2", "--max-restarts=3", args=["--lr=2"])
        end_well(nodes.round(2))
        assert a.wait() == 0 and b.wait() == 0
        names = "--max-restarts=3 (the job: 0), another program, or other arguments"
        assert "differs from the job's first node, whose settings count: " + names in a.text, a.text
        assert "this node differs from the job's first node" in b.text and names in b.text, b.text


def test_a_new_run_has_its_own_settings_and_budget(tmp):
    port = free_port()
    where = dict(endpoint=f"127.0.0.1:{port}", conf="is_host=0,last_call_timeout=0.3")
    daemon = Daemon(port)
    try:
        with Nodes(tmp, "--max-restarts=1", **where) as nodes:
            a = nodes.start("a", "--nnodes=1")
            nodes.round(1)[0].signal(signal.SIGUSR1)
            assert nodes.round(1)[0].restarts == 1
            a.signal(signal.SIGKILL)
            a.wait()
            b, c = nodes.start("b", "--nnodes=2"), nodes.start("c", "--nnodes=2")
            workers = nodes.round(2)
            assert {w.restarts for w in workers} == {0}
            end_well(workers)
            assert b.wait() == 0 and c.wait() == 0
    finally:
        daemon.kill()


def test_a_launcher_does_not_end_the_other_jobs_that_it_hosts(tmp):
    for name in "x", "y", "z":
        (tmp / name).mkdir()
    with Nodes(tmp / "x", "--nnodes=2", "--rdzv-id=x") as x, \
            Nodes(tmp / "y", "--nnodes=2", "--rdzv-id=y", endpoint=x.endpoint) as y:
        host = x.start_host("a")
        b, c, d = x.start("b"), y.start("c"), y.start("d")
        rx, ry = x.round(2), y.round(2)
        end_well(rx)
        assert b.wait() == 0
        wait_for(lambda: "stays until these are over" in host.text, "the host to stay")
        ry[0].signal(signal.SIGUSR1)  # the other job can still restart; it has no restart left
        assert c.wait() == 1 and d.wait() == 1
        assert "exit code 7" in c.text + d.text, c.text
        assert host.wait() == 0


def test_a_signal_ends_a_launcher_that_hosts_other_jobs(tmp):
    for name in "x", "y":
        (tmp / name).mkdir()
    with Nodes(tmp / "x", "--nnodes=1:2", "--rdzv-id=x") as x, \
            Nodes(tmp / "y", "--nnodes=1:2", "--rdzv-id=y", endpoint=x.endpoint) as y:
        host, c = x.start_host("a"), y.start("c")
        rx = x.round(1)
        y.round(1)
        end_well(rx)
        wait_for(lambda: "stays until these are over" in host.text, "the host to stay")
        host.signal(signal.SIGTERM)
        assert host.wait() == 0 and c.wait() == 1
        assert "its launcher was told to end" in c.text, c.text


def test_jobs_share_a_daemon(tmp):
    port = free_port()
    daemon = Daemon(port)
    try:
        (tmp / "x").mkdir(), (tmp / "y").mkdir()
        where = dict(endpoint=f"127.0.0.1:{port}", conf="is_host=0")
        with Nodes(tmp / "x", "--nnodes=2", "--rdzv-id=x", **where) as x, \
                Nodes(tmp / "y", "--nnodes=1", "--rdzv-id=y", **where) as y:
            all_nodes = [x.start("a"), y.start("c"), x.start("b")]
            rx, ry = x.round(2), y.round(1)
            assert rx[0].address != ry[0].address
            end_well(rx + ry)
            assert [n.wait() for n in all_nodes] == [0, 0, 0]
    finally:
        daemon.kill()


if __name__ == "__main__":
    run_tests(globals())
