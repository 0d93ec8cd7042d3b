#!/usr/bin/env python3
# timeout: 300
"""A node that waits says why: which nodes are here, which addresses it tries with what result, and
how long it will still wait. A program at the endpoint that is not a crun is named."""
import pathlib
import re
import socket
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN_STORE, SCALE, run_tests, start, wait_for
from free_port import free_port
from netns import Net
from nodes import Nodes

# A node writes its first line after 5 s; a slow build has time for a second one.
WAITS_S = 7 if SCALE <= 1 else 10
TIMES = f"last_call_timeout=0.3,join_timeout={WAITS_S},read_timeout={WAITS_S}"


def warning(node, *parts):
    """Waits until the node has written one warning with all parts. Returns it."""
    def look():
        return [line for line in node.text.splitlines() if all(p in line for p in parts)]
    return wait_for(look, f"{node.name} to say {parts}")[0]


def tells_the_time(line):
    """Checks the times of a line: it comes after 5 s or later, if the machine is busy, and the two
    times together are how long the node waits. Each of the two is rounded."""
    past, left = map(int, re.search(r"\((\d+) s so far, (\d+) s left\)", line).groups())
    assert 5 <= past and WAITS_S - 1 <= past + left <= WAITS_S + 1, line


def test_who_is_here_and_who_is_missing(tmp):
    with Nodes(tmp, "--nnodes=3", conf=TIMES) as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        for n in (a, b):
            line = warning(n, "waiting for more nodes: 2 of 3 are here: ", "s left)")
            tells_the_time(line)
            assert "; start the others with the same endpoint and --rdzv-id (" in line, line
            assert n.wait() == 1
            assert "2 of at least 3 nodes came" in n.text, n.text
            assert "start the missing ones with the same endpoint and --rdzv-id" in n.text, n.text


def test_missing_node_ranks(tmp):
    with Nodes(tmp, "--nnodes=4", backend="static", conf=f"timeout={WAITS_S}") as nodes:
        a, b = nodes.start("a", "--node-rank=0"), nodes.start("b", "--node-rank=2")
        for n in (a, b):
            warning(n, "waiting for more nodes: 2 of 4 are here", "missing: node rank 1, 3")
            assert n.wait() == 1
        # the first node whose time is up counts among the missing for the second one
        assert any("missing: node rank 1, 3; start the missing ones" in n.text for n in (a, b))


def test_two_nodes_with_one_rank(tmp):
    """Two nodes have one node rank. The second node waits while the first one keeps its seat, and
    the line about waiting does not list the second node."""
    with Nodes(tmp, "--nnodes=3", backend="static", conf=f"timeout={WAITS_S + 2}") as nodes:
        a, b = nodes.start("a", "--node-rank=0"), nodes.start("b", "--node-rank=1")
        c = nodes.start("c", "--node-rank=1")
        warning(a, "waiting for more nodes: 2 of 3 are here", "missing: node rank 2")
        assert not any(line.count("(node rank 1)") > 1 for line in a.text.splitlines()), a.text
        assert {b.wait(), c.wait()} == {1}
        late = [n for n in (b, c) if "cannot join as node rank 1" in n.text]
        assert len(late) == 1 and "give every node a --node-rank of its own" in late[0].text


def test_a_spare_says_so_once(tmp):
    with Nodes(tmp, "--nnodes=1", given=["--rdzv-backend=c10d", "--rdzv-id=job", "--nnodes=1:1",
                                         f"--rdzv-endpoint=127.0.0.1:{free_port()}"]) as nodes:
        a = nodes.start("a", "--rdzv-conf=is_host=1")
        worker = nodes.round(1)[0]
        b = nodes.start("b", "--rdzv-conf=is_host=0")
        warning(b, "waiting as a spare: the round has all of its 1 nodes")
        worker.signal(nodes.WELL)
        assert a.wait() == 0 and b.wait() == 0
        assert b.text.count("spare") == 1, b.text


def test_another_id_at_the_same_endpoint(tmp):
    with Nodes(tmp, "--nnodes=2", conf=TIMES) as nodes:
        a = nodes.start_host("a")
        b = nodes.start("b", "--rdzv-id=jop")
        warning(a, "1 of 2 are here", "nodes of job 'jop' wait at the same endpoint")
        warning(b, "1 of 2 are here", "nodes of job 'job' wait at the same endpoint")
        assert a.wait() == 1 and b.wait() == 1


def test_nobody_listens(tmp):
    with Nodes(tmp, "--nnodes=2", conf=f"{TIMES},is_host=0") as nodes:
        a = nodes.start("a")
        line = warning(a, f"waiting for the coordinator at '{nodes.endpoint}': 127.0.0.1: "
                       "connection refused; is the node that hosts it up, the address right, and "
                       "no firewall between? (")
        tells_the_time(line)
        assert a.wait() == 1
        assert "127.0.0.1: connection refused; is the node that hosts it up" in a.text, a.text


def test_an_address_that_does_not_answer(tmp):
    with Net(1) as net, Nodes(tmp, "--nnodes=2", endpoint="10.77.0.9:1234", conf=TIMES) as nodes:
        net.hosts[0].black_hole("10.77.0.9")
        a = nodes.start("a", prefix=net.hosts[0].run)
        warning(a, "waiting for the coordinator at '10.77.0.9:1234': 10.77.0.9: no answer; is the "
                   "node that hosts it up, the address right, and no firewall between?")
        assert a.wait() == 1
        assert a.text.splitlines()[-1].count("no answer") == 1, a.text


class Program:
    """Listens at a port of its own, and does `speak` with each connection."""
    def __init__(self, speak):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.speak, self.open = speak, []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.open.append(connection)
            self.speak(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()
        for c in self.open:
            c.close()


def http(connection):
    text = b""
    while b"\r\n\r\n" not in text:  # an HTTP server reads a whole request before it complains
        got = connection.recv(1000)
        if not got:
            return
        text += got
        connection.settimeout(3)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    connection.close()


def test_programs_that_are_not_a_crun(tmp):
    def serve_http(c):
        threading.Thread(target=http, args=(c,), daemon=True).start()

    def serve_ssh(c):
        c.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    cases = ((serve_http, "it is not a crun: it speaks HTTP"),
             (serve_ssh, "it is not a crun: it speaks SSH"),
             (lambda c: c.close(), "it closes the connection; it is not a crun"),
             (lambda c: None, "connected, but nothing comes"))  # a crun that is stopped does this
    for i, (speak, expected) in enumerate(cases):
        folder = tmp / str(i)
        folder.mkdir()
        with Program(speak) as program, Nodes(folder, "--nnodes=2",
                                              endpoint=f"127.0.0.1:{program.port}",
                                              conf=TIMES) as nodes:
            a = nodes.start("a")
            is_known = expected != cases[-1][1]
            holder = "another program has the port: " if is_known else "the port is in use: "
            warning(a, "this node has the address, but " + holder, expected)
            assert a.wait() == 1
            last = a.text.splitlines()[-1]
            assert last.count(expected) == 1 and "--rdzv-endpoint another port" in last, last


def test_a_crun_that_refuses_is_no_other_program(tmp):
    """The node's machine has the endpoint, and a crun with another secret serves there."""
    tokens = [tmp / "token0", tmp / "token1"]
    for token in tokens:
        token.touch(0o600)
        token.write_text(f"a secret of more than 32 characters in {token.name}\n")
    with Nodes(tmp, "--nnodes=2", conf=TIMES) as nodes:
        nodes.start_host("a", "--rdzv-token-file", tokens[0])
        b = nodes.start("b", "--rdzv-token-file", tokens[1])
        warning(b, "this node has the address, but the port is in use: ", "it has another secret")
        assert "another program has the port" not in b.text, b.text


def test_torchrun_at_the_endpoint(tmp):
    """torchrun keeps the state of its rendezvous under a key in the TCPStore at the endpoint."""
    store = start([CRUN_STORE, "serve", "--host=127.0.0.1"], stderr=subprocess.STDOUT)
    endpoint = store.stdout.readline().strip()
    done = start([CRUN_STORE, "set", endpoint, "torch.rendezvous.job", "x"])
    assert done.wait() == 0
    done.communicate()
    with Nodes(tmp, "--nnodes=2", endpoint=endpoint) as nodes:
        a = nodes.start("a")
        assert a.wait(20 * SCALE) == 1
        assert "torchrun serves this job at 127.0.0.1; start all nodes with crun" in a.text, a.text
    store.terminate()
    store.communicate()


if __name__ == "__main__":
    run_tests(globals())
