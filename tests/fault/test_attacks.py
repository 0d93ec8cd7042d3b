#!/usr/bin/env python3
# timeout: 300
"""Attacks on a job that has a secret. Each test has a healthy job of two nodes: whatever a
stranger, somebody on the way, or the owner of another key does, its workers stay alive, it has no
restart, and it ends well. The strangers are sockets, and a second implementation of the
protocol."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rdzv_raw
import secure_raw
from crun_test import BUILD, CRUN, CRUN_STORE, PACE, SCALE, clean_env, run_tests, script, skip, \
    wait_for
from free_port import free_port
from nodes import Nodes

AGENT = BUILD / "bin" / "crun-agent"
SECRET, OTHER = "a secret of more than 32 characters", "another one of more than 32 characters"


def token_file(folder, name, *lines):
    path = pathlib.Path(folder, name)
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


class Job(Nodes):
    """Two nodes with SECRET. Node a hosts at `endpoint`; node b reaches it at `through`, if given,
    else directly."""

    def __init__(self, tmp, endpoint=None, through=None):
        super().__init__(tmp, "--nnodes=2", "--rdzv-token-file", token_file(tmp, "token", SECRET),
                         endpoint=endpoint, conf="last_call_timeout=0.3,keep_alive_interval=0.5")
        self.host = self.start_host("a")
        self.other = self.start("b", *([f"--rdzv-endpoint={through}"] if through else []))

    def begin(self):
        self.first = self.round(2)

    def end(self):
        """The job is as healthy as if nobody had attacked it."""
        assert all(w.alive for w in self.first), "workers have died"
        for w in self.first:
            w.signal(Nodes.WELL)
        assert self.host.wait() == 0 and self.other.wait() == 0
        for n in self.nodes:
            assert "restart 1" not in n.text and "round 1:" not in n.text, n.text


@contextlib.contextmanager
def job(tmp):
    with Job(tmp) as it:
        it.begin()
        yield it
        it.end()


def connect(endpoint, timeout=30 * SCALE):
    host, port = endpoint.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout)


def operator(command, *options, token=None):
    env = clean_env() if token is None else clean_env(CRUN_RDZV_TOKEN_FILE=token)
    return subprocess.run([AGENT, command, *map(str, options)], capture_output=True, text=True,
                          env=env)


def read_to_end(sock):
    """Returns what still comes; a reset counts as the end."""
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


# ---- strangers ----


def test_a_stranger_without_a_secret_learns_and_does_nothing(tmp):
    with job(tmp) as it:
        status = operator("status", it.endpoint)
        assert status.returncode == 1 and "only those that have the job's secret" in status.stderr
        assert status.stdout == "", status
        order = operator("notify", it.endpoint, "--job=job", f"--node={socket.gethostname()}",
                         "--in=0")
        assert order.returncode == 1 and "secret" in order.stderr, order
        member = rdzv_raw.Member(it.endpoint, run_id="job")
        answer = member.expect("REFUSED")
        assert "--rdzv-token-file" in answer["why"] and answer["epoch"] == 0, answer
        assert read_to_end(member.socket) == b""
        wait_for(lambda: "it has no secret" in it.host.text, "a line about the refusal")


def test_the_owner_of_another_secret_is_refused_on_both_sides(tmp):
    wrong = token_file(tmp, "wrong", OTHER)
    with job(tmp) as it:
        status = operator("status", it.endpoint, token=wrong)
        assert status.returncode == 1 and "it has another secret" in status.stderr, status
        assert re.search(r"refused an operator at 127.0.0.1:\d+: it has another secret",
                         it.host.text), it.host.text
        try:
            secure_raw.Channel(connect(it.endpoint), OTHER, "member", "job")
            raise AssertionError("the stranger was accepted")
        except secure_raw.Refused as why:
            assert why.args[0] == secure_raw.WRONG_KEY
        assert operator("status", it.endpoint, token=it.tmp / "token").returncode == 0


def test_lines_about_strangers_are_few(tmp):
    with job(tmp) as it:
        for _ in range(300):
            with connect(it.endpoint) as s:
                s.sendall(secure_raw.head_of("member", "job") + os.urandom(48))
                assert s.recv(100) == b"CRUNA\x01"
        assert 1 <= it.host.text.count("warning: refused ") <= 3, it.host.text


def test_the_key_of_another_job_or_role_opens_nothing_else(tmp):
    """A crun-agent serves two jobs. The owners of one job's keys try to use them for the other."""
    cluster = token_file(tmp, "cluster", SECRET)
    keys = {(role, name): operator("key", f"--job={name}", f"--role={role}", token=cluster).stdout
            for role in ("member", "operator") for name in ("mine", "theirs")}
    endpoint = f"127.0.0.1:{free_port()}"
    agent = subprocess.Popen([AGENT, "serve", f"--listen={endpoint}"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True,
                             env=clean_env(CRUN_RDZV_TOKEN_FILE=cluster))
    try:
        assert agent.stdout.readline().strip() == endpoint
        theirs = token_file(tmp, "theirs", keys["member", "theirs"].strip())
        with Nodes(tmp, "--nnodes=2", given=(
                "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=theirs",
                "--rdzv-conf=is_host=0", f"--rdzv-token-file={theirs}", "--nnodes=2")) as nodes:
            both = [nodes.start("a"), nodes.start("b")]
            workers = nodes.round(2)
            mine = keys["member", "mine"].strip()
            for claims in (("member", "theirs"), ("operator", "theirs"), ("operator", "mine")):
                try:
                    secure_raw.Channel(connect(endpoint), mine, *claims)
                    raise AssertionError(f"the key of the job 'mine' was accepted as {claims}")
                except secure_raw.Refused as why:
                    assert why.args[0] == secure_raw.WRONG_KEY
            # authenticated for one job, a node cannot name the other
            node = rdzv_raw.Member(endpoint, run_id="theirs", secret=mine, key_of_job="mine")
            assert "the key of the job 'mine'" in node.expect("REFUSED")["why"]
            # a node's key gives no orders, an operator's key takes no seat
            channel = secure_raw.Channel(connect(endpoint), mine, "member", "mine")
            channel.send(rdzv_raw.MAGIC + rdzv_raw.encode("STATUS", version_min=2, version_max=3))
            assert b"gives no orders" in channel.recv(1000)
            node = rdzv_raw.Member(endpoint, run_id="mine", key_role="operator",
                                   secret=keys["operator", "mine"].strip())
            assert "does not admit a node" in node.expect("REFUSED")["why"]
            # an operator of one job neither sees nor steers the other
            own = token_file(tmp, "own", keys["operator", "mine"].strip())
            assert operator("status", endpoint, token=own).stdout == "no jobs\n"
            order = operator("notify", endpoint, "--job=theirs", "--node=x", "--in=0", token=own)
            assert "for the job 'mine' only" in order.stderr, order
            seen = token_file(tmp, "seen", keys["operator", "theirs"].strip())
            assert "job 'theirs': RUNNING" in operator("status", endpoint, token=seen).stdout
            assert all(w.alive for w in workers)
            for w in workers:
                w.signal(Nodes.WELL)
            assert [n.wait() for n in both] == [0, 0]
    finally:
        agent.kill()
        agent.wait()


def test_only_a_node_of_the_job_says_where_it_is_led(tmp):
    """The owner of another job's key, and an operator, tell the host of a forming job that another
    host leads it. Nobody is sent there: the job forms at its own host."""
    token = token_file(tmp, "token", SECRET)
    key = operator("key", "--job=other", token=token).stdout.strip()
    with Nodes(tmp, "--nnodes=3", "--rdzv-token-file", token) as nodes:
        a = nodes.start_host("a")
        wait_for(lambda: "1 waiting" in a.text, "node a to join its own host")
        for secret, role, job_id in ((key, "member", "other"), (SECRET, "operator", "job")):
            channel = secure_raw.Channel(connect(nodes.endpoint), secret, role, job_id)
            channel.send(rdzv_raw.MAGIC + rdzv_raw.encode(
                "LEADS", version_min=2, version_max=9, run_id="job", epoch=1, addr="192.0.2.77",
                port=7))
            assert read_to_end(channel.socket) == b""
        b, c = nodes.start("b"), nodes.start("c")
        for w in nodes.round(3):
            w.signal(Nodes.WELL)
        assert [n.wait() for n in (a, b, c)] == [0, 0, 0]
        assert "192.0.2.77" not in a.text + b.text + c.text


# ---- somebody on the way ----


class Proxy:
    """Passes on the bytes between a node and its coordinator, and can record and change them."""

    def __init__(self, target, change=None):
        self.target, self.recorded, self.connections = target, [], 0
        self.change = change  # a function (to the coordinator?, bytes) -> bytes to pass on
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.connections += 1
                with contextlib.suppress(OSError):
                    far = connect(self.target)
                    near.settimeout(None)
                    far.settimeout(None)
                    heard = bytearray()
                    self.recorded.append(heard)
                    for frm, to, inward in ((near, far, True), (far, near, False)):
                        threading.Thread(target=self.carry, args=(frm, to, inward, heard),
                                         daemon=True).start()

    def carry(self, frm, to, inward, heard):
        try:
            while data := frm.recv(65536):
                if inward:
                    heard += data
                change = self.change
                data = change(inward, data) if change else data
                to.sendall(data)
            with contextlib.suppress(OSError):
                to.shutdown(socket.SHUT_WR)
        except OSError:  # one end has reset its connection: the other end is told so
            for s in (frm, to):
                with contextlib.suppress(OSError):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.shutdown(socket.SHUT_RD)  # wakes the other direction's recv()
                    s.close()

    def close(self):
        self.listener.close()


@contextlib.contextmanager
def job_through_proxy(tmp, change=None):
    """A job whose node b reaches node a through a proxy, which listens before node b starts."""
    endpoint = f"127.0.0.1:{free_port()}"
    with contextlib.closing(Proxy(endpoint, change)) as proxy:
        with Job(tmp, endpoint, proxy.address) as it:
            it.begin()
            yield it, proxy
            it.end()


def test_a_recorded_connection_cannot_be_repeated(tmp):
    with job_through_proxy(tmp) as (it, proxy):
        recording = wait_for(lambda: next((bytes(r) for r in proxy.recorded if len(r) > 300), None),
                             "the greeting of node b")
        for _ in range(3):
            with connect(it.endpoint) as s:
                s.sendall(recording)
                answer = read_to_end(s)
                assert answer[:5] == b"CRUNK" and len(answer) == 53, answer  # and nothing more
        assert "repeats the recorded handshake" in it.host.text, it.host.text


def changed_once(how):
    """Returns a function for Proxy.change that changes the bytes once in each direction."""
    done = set()

    def change(inward, data):
        if inward in done or len(data) < 20:
            return data
        done.add(inward)
        return how(data)
    return change, done


def flip(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def records(data):
    found = []
    while len(data) >= 2:
        n = 2 + struct.unpack(">H", data[:2])[0]
        found.append(data[:n])
        data = data[n:]
    return found + [data]


def repeat(data):
    first = records(data)[0]
    return first + data


def check_change_on_the_way(tmp, how):
    with job_through_proxy(tmp) as (it, proxy):
        before = proxy.connections
        change, done = changed_once(how)
        proxy.change = change
        wait_for(lambda: proxy.connections > before, "node b to connect again")
        proxy.change = None
        wait_for(lambda: operator("status", it.endpoint,
                                  token=it.tmp / "token").stdout.count("RUNNING") == 3,
                 "both nodes in their seats again")
        assert "bytes were changed on their way" in it.host.text + it.other.text


def test_a_changed_byte_ends_a_connection_and_not_the_job(tmp):
    check_change_on_the_way(tmp, flip)


def test_a_repeated_record_ends_a_connection_and_not_the_job(tmp):
    check_change_on_the_way(tmp, repeat)


def test_forged_answers_do_not_end_a_node(tmp):
    """Somebody on the way answers in place of the coordinator: with a plain REFUSED, with a plain
    WELCOME, and with each refusal of the authenticated protocol. The node keeps trying, and joins
    as soon as it is let through."""
    forged = [rdzv_raw.encode("REFUSED", version_min=2, version_max=3, epoch=0, why="go away"),
              struct.pack(">IBIQ", 13, 65, 2, 0),  # WELCOME
              b"CRUNA\x01", b"CRUNA\x02", b"CRUNA\x03", b"CRUNK" + bytes(48)]
    waiting = list(forged)
    change = lambda inward, data: data if inward or not waiting else waiting.pop(0)
    with job_through_proxy(tmp, change) as (it, _):
        assert not waiting
        assert "cannot authenticate with the coordinator" in it.other.text, it.other.text


# ---- exhaustion ----


def test_floods_slow_and_giant_handshakes(tmp):
    head = secure_raw.head_of("member", "job")
    giant_id = secure_raw.MAGIC + struct.pack(">BBH", 1, 1, 65535) + b"x" * 65535
    with job(tmp) as it:
        slow = [connect(it.endpoint) for _ in range(50)]
        begin = time.monotonic()
        for i, s in enumerate(slow):
            s.sendall((head + bytes(48))[:8 + i])  # all of them stop somewhere in the middle
        for _ in range(300):
            s = connect(it.endpoint)
            s.sendall(os.urandom(20))
            s.close()
        for text in (giant_id, head[:8] + bytes([9]) + head[9:] + bytes(48),
                     head[:9] + bytes([7]) + head[10:] + bytes(48)):
            with connect(it.endpoint) as s:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    s.sendall(text)
                assert read_to_end(s) in (b"", b"CRUNA\x03")
        # an authenticated node that announces a giant record is cut off at once
        channel = secure_raw.Channel(connect(it.endpoint), SECRET, "member", "job")
        channel.socket.sendall(b"\xff\xff" + bytes(100))
        assert channel.exactly(1) == b""
        assert operator("status", it.endpoint, token=it.tmp / "token").returncode == 0
        for s in slow:
            read_to_end(s)
        assert time.monotonic() - begin < 60 * SCALE


def test_many_handshakes_at_once(tmp):
    """The daemon is stopped while 64 handshakes come, so that it finds all of them at once. It
    computes most answers on other threads; half of the peers are gone before that."""
    server = subprocess.Popen(
        [AGENT, "serve", "--listen=127.0.0.1:0", "--rdzv-token-file",
         token_file(tmp, "token", SECRET)],
        stdout=subprocess.PIPE, stderr=open(tmp / "log", "w"), text=True,
        env=clean_env(LOGLEVEL="DEBUG"))
    try:
        endpoint = server.stdout.readline().strip()
        head, key = (secure_raw.head_of("member", "job"),
                     secure_raw.key_of(SECRET, "member", "job"))
        noises = [secure_raw.Initiator(head, key) for _ in range(64)]
        offers = [head + noise.first() for noise in noises]
        server.send_signal(signal.SIGSTOP)
        peers = [connect(endpoint) for _ in noises]
        for peer, offer in zip(peers, offers):
            peer.sendall(offer)
        for peer in peers[::2]:
            peer.close()
        server.send_signal(signal.SIGCONT)
        for peer, noise in list(zip(peers, noises))[1::2]:
            answer = b""
            while len(answer) < 53:
                more = peer.recv(53 - len(answer))
                assert more, answer
                answer += more
            assert answer[:5] == b"CRUNK"
            noise.second(answer[5:])
            peer.close()
        node = rdzv_raw.Member(endpoint, secret=SECRET)
        node.send_join()
        for name in "WELCOME", "ACCEPTED", "ROUND":
            node.expect(name)
        node.send("SUCCEEDED", round=0)
        assert node.expect("END")["outcome"] == rdzv_raw.SUCCEEDED
        node.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30 * SCALE) == 0
        has_threads = len(os.sched_getaffinity(0)) > 1
        assert not has_threads or "on another thread" in (tmp / "log").read_text()
    finally:
        server.kill()
        server.communicate()


# ---- who speaks what ----


def test_a_secured_node_at_a_plain_coordinator_and_the_other_way_round(tmp):
    """Each is named at once on both sides, and not when the time of the node is over. The plain
    node ends, because it cannot know that the answer is genuine or that waiting would help; the
    secured one keeps trying."""
    token = token_file(tmp, "token", SECRET)
    for host, node, at_node, at_host in (
            ((), ("--rdzv-token-file", token), "it has no secret, but this end has one",
             "it has a secret, but this coordinator has none"),
            (("--rdzv-token-file", token), (), "serves only those that have the job's secret",
             "it has no secret")):
        folder = tmp / str(len(host))
        folder.mkdir()
        with Nodes(folder, "--nnodes=2") as nodes:
            a = nodes.start_host("a", *host)
            b = nodes.start("b", *node, "--rdzv-conf=join_timeout=10000,read_timeout=10000")
            wait_for(lambda: at_node in b.text, f"'{at_node}' at the node")
            wait_for(lambda: at_host in a.text, f"'{at_host}' at the coordinator")


def test_a_secured_node_names_torch_at_its_endpoint(tmp):
    """A TCPStore of torch closes the connection of a node; the node finds out what it is. If it has
    torchrun's state of this job, waiting is of no use."""
    port = free_port()
    token = token_file(tmp, "token", SECRET)
    store = subprocess.Popen([CRUN_STORE, "serve", "--host=127.0.0.1", f"--port={port}"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             env=clean_env())
    try:
        assert store.stdout.readline()
        with Nodes(tmp, "--nnodes=2", "--rdzv-token-file", token, endpoint=f"127.0.0.1:{port}",
                   conf=f"is_host=0,read_timeout={3 * PACE}") as nodes:
            a = nodes.start("a")
            assert a.wait() == 1 and "a TCPStore that is not crun's" in a.text, a.text
            done = subprocess.run([CRUN_STORE, "set", nodes.endpoint, "torch.rendezvous.job", "x"],
                                  capture_output=True, text=True, env=clean_env())
            assert done.returncode == 0, done
            b = nodes.start("b", "--rdzv-conf=is_host=0,read_timeout=10000")
            assert b.wait() == 1 and "torchrun serves this job" in b.text, b.text
    finally:
        store.kill()
        store.wait()


def test_required_needs_a_secret_and_open_jobs_say_so_once(tmp):
    with Nodes(tmp, "--nnodes=2", conf="auth=required") as nodes:
        a = nodes.start("a")
        assert a.wait() == 1 and "auth=required, but there is no secret" in a.text, a.text
    for conf, lines in (("last_call_timeout=0.3", 1), ("last_call_timeout=0.3,auth=off", 0)):
        folder = tmp / str(lines)
        folder.mkdir()
        with Nodes(folder, "--nnodes=2", given=(
                "--rdzv-backend=c10d", f"--rdzv-endpoint=0.0.0.0:{free_port()}", "--rdzv-id=job",
                f"--rdzv-conf={conf}")) as nodes:
            both = [nodes.start("a"), nodes.start("b")]
            for w in nodes.round(2):
                w.signal(Nodes.WELL)
            assert [n.wait() for n in both] == [0, 0]
            text = "".join(n.text for n in both)
            assert text.count("open to its network") == lines, text


def test_workers_do_not_get_the_name_of_the_file(tmp):
    show = script(tmp, "show", "#!/bin/sh\nenv | grep -c TOKEN_FILE\ntrue\n")
    token = token_file(tmp, "token", SECRET)
    done = subprocess.run([BUILD / "bin" / "crun", show], capture_output=True, text=True,
                          env=clean_env(CRUN_RDZV_TOKEN_FILE=token, PET_RDZV_TOKEN_FILE=token))
    assert done.returncode == 0 and done.stdout == "0\n", done


def test_the_secret_may_come_through_a_pipe(tmp):
    command = [CRUN, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job",
               f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-token-file=/dev/stdin",
               "--no-python", "true"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=clean_env()) for _ in range(2)]
    for node in started:
        node.stdin.write(SECRET + "\n")
        node.stdin.close()
    for node in started:
        text = node.stderr.read()
        node.stderr.close()
        assert node.wait() == 0, text


# Mounts a secret as Kubernetes does with `defaultMode: 0440`: the file is a link to the newest
# version, and belongs to root and a group. Then executes the program "$@".
MOUNTED = f"""
mkdir -p /run/secrets && mount -t tmpfs tmpfs /run/secrets && cd /run/secrets &&
mkdir -p crun/..1 && (umask 0377; echo "{SECRET}" > crun/..1/token) &&
chgrp 12345 crun/..1/token && chmod 0440 crun/..1/token &&
ln -s ..1 crun/..data && ln -s ..data/token crun/token && cd "$OLDPWD" && exec "$@"
"""


def test_a_mounted_secret_of_kubernetes_needs_no_option(tmp):
    """Two pods have the secret mounted. A third one does not, and is refused."""
    pod = ["unshare", "-m", "sh", "-c", MOUNTED, "sh"]
    if subprocess.run([*pod, "true"], capture_output=True).returncode != 0:
        skip("needs the right to mount")
    with Nodes(tmp, "--nnodes=2", "--rdzv-conf=auth=required") as nodes:
        started = [nodes.start_host("a", prefix=pod), nodes.start("b", prefix=pod)]
        workers = nodes.round(2)
        assert operator("status", nodes.endpoint).returncode == 1
        answer = rdzv_raw.Member(nodes.endpoint, run_id="job").expect("REFUSED")
        assert "--rdzv-token-file" in answer["why"], answer
        for w in workers:
            w.signal(Nodes.WELL)
        assert [n.wait() for n in started] == [0, 0], [n.text for n in started]


# ---- rotation ----


def test_a_secret_is_replaced_while_the_job_runs(tmp):
    """The file of node a gets the new secret first, that of node c has only the old one, later only
    the new one; both join the running job."""
    old, new = SECRET, OTHER
    host, joins = token_file(tmp, "host", old), token_file(tmp, "joins", old)
    with Nodes(tmp, "--nnodes=1:3", "--max-restarts=0",
               conf="last_call_timeout=0.3,change_notice=0") as nodes:
        a = nodes.start_host("a", "--rdzv-token-file", host)
        nodes.round(1)
        token_file(tmp, "host", new, old)
        b = nodes.start("b", "--rdzv-token-file", joins)  # the old one is still accepted
        nodes.round(2)
        token_file(tmp, "joins", new)
        c = nodes.start("c", "--rdzv-token-file", joins)
        workers = nodes.round(3)
        token_file(tmp, "host", new)
        token_file(tmp, "joins", new, old)
        assert operator("status", nodes.endpoint, token=joins).returncode == 0
        token_file(tmp, "joins", old, new)  # the newest one is not known there: the next is tried
        assert operator("status", nodes.endpoint, token=joins).returncode == 0
        token_file(tmp, "joins", old)
        assert operator("status", nodes.endpoint, token=joins).returncode == 1
        for w in workers:
            w.signal(Nodes.WELL)
        assert [n.wait() for n in (a, b, c)] == [0, 0, 0]


if __name__ == "__main__":
    with_sodium = subprocess.run([AGENT, "key", "--role=operator"], capture_output=True, text=True,
                                 env=clean_env(CRUN_RDZV_TOKEN_FILE="/dev/null"))
    if "without libsodium" in with_sodium.stderr:
        skip("this crun was built without libsodium (Debian: libsodium-dev)")
    run_tests(globals())
