#!/usr/bin/env python3
# timeout: 600
"""This build and kept builds of protocol versions 2 and 3 form rounds together, with a coordinator
of either build."""
import pathlib
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, TIMEOUT_S, clean_env, run_tests, wait_for
from free_port import free_port
from kept_build import kept_build
from nodes import Nodes

V2 = "66bf4a9"  # the last commit that speaks protocol version 2 only
V3 = "9268cd9"  # the last commit that speaks protocol versions 2 and 3 only


def end_well(nodes, workers):
    for w in workers:
        w.signal(signal.SIGUSR2)
    for n in nodes:
        assert n.wait() == 0, n.text


def run_a_failure(nodes, started, host):
    """Lets a worker of each node fail in turn, and checks what all workers were told."""
    first = nodes.round(len(started))
    for number, failing in enumerate(started, 1):
        next(w for w in first if w.node == failing.name).signal(signal.SIGUSR1)
        first = nodes.round(len(started))
        assert {w.restarts for w in first} == {number}
        assert [w.rank for w in first] == list(range(len(started)))
        assert {w.env["GROUP_WORLD_SIZE"] for w in first} == {str(len(started))}
    end_well(started, first)
    assert "cannot" not in host.text, host.text


def new_serves_old(tmp, old):
    with Nodes(tmp, "--nnodes=3", "--max-restarts=3") as nodes:
        host = nodes.start_host("new", crun=CRUN)
        others = [nodes.start(f"old{i}", crun=old / "crun") for i in range(2)]
        run_a_failure(nodes, [host, *others], host)


def old_serves_new(tmp, old):
    with Nodes(tmp, "--nnodes=3", "--max-restarts=3") as nodes:
        host = nodes.start_host("old", crun=old / "crun")
        others = [nodes.start(f"new{i}", crun=CRUN) for i in range(2)]
        run_a_failure(nodes, [host, *others], host)


def lose_and_regain_a_node(nodes, old):
    a = nodes.start("new", crun=CRUN)
    b = nodes.start("old", crun=old / "crun")
    nodes.round(2)
    b.signal(signal.SIGKILL)
    alone = nodes.round(1)
    assert alone[0].node == "new" and alone[0].restarts == 0
    c = nodes.start("old", crun=old / "crun")
    end_well([a, c], nodes.round(2))


def serve(program, port):
    agent = subprocess.Popen([program, "serve", f"--listen=127.0.0.1:{port}"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_env())

    def listens():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    wait_for(listens, "crun-agent to listen", TIMEOUT_S)
    return agent


def with_agent(tmp, program, old):
    port = free_port()
    agent = serve(program, port)
    try:
        conf = "last_call_timeout=0.3,is_host=0,change_notice=0"
        with Nodes(tmp, "--nnodes=1:2", endpoint=f"127.0.0.1:{port}", conf=conf) as nodes:
            lose_and_regain_a_node(nodes, old)
        status = subprocess.run([BUILD / "bin" / "crun-agent", "status", f"127.0.0.1:{port}"],
                                capture_output=True, text=True, env=clean_env())
        assert status.returncode == 0 and "job" in status.stdout, status
    finally:
        agent.kill()
        agent.wait()


def with_a_build_of(version, tmp):
    old = kept_build(version)
    for name, form in (("new", new_serves_old), ("old", old_serves_new)):
        (tmp / name).mkdir()
        form(tmp / name, old)
    for name, program in (("a", old / "crun-agent"), ("b", BUILD / "bin" / "crun-agent")):
        (tmp / name).mkdir()
        with_agent(tmp / name, program, old)


def test_with_protocol_2(tmp):
    with_a_build_of(V2, tmp)


def test_with_protocol_3(tmp):
    with_a_build_of(V3, tmp)


def test_all_nodes_are_told_one_budget(tmp):
    with Nodes(tmp, "--nnodes=2") as nodes:
        host = nodes.start_host("a", "--max-restarts=3")
        other = nodes.start("b", "--max-restarts=1")
        workers = nodes.round(2)
        assert {w.env["TORCHELASTIC_MAX_RESTARTS"] for w in workers} == {"3"}
        end_well([host, other], workers)


if __name__ == "__main__":
    run_tests(globals())
