#!/usr/bin/env python3
# timeout: 300
"""Nodes that authenticate by MUNGE. Two real munged with one key are the MUNGE daemons of two
hosts; a third one has another key. MUNGE_SOCKET says which of them a process uses. The attackers
have what attackers have: the program munge as another user, recordings, a daemon with another
key."""
import contextlib
import os
import pathlib
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import secure_raw
from crun_test import (BUILD, CRUN, CRUN_STORE, SCALE, clean_env, kill, run_tests, skip,
                       wait_for)
from free_port import free_port
from nodes import Nodes

AGENT = BUILD / "bin" / "crun-agent"
TASK = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}  # how a task of Slurm looks to crun
BAD_CREDENTIAL = 11
NOBODY = 65534
LABEL = b"crun rendezvous credential 1\0"
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Munged:
    def __init__(self, folder, name, key):
        self.socket = folder / f"{name}.socket"
        self.out = open(folder / f"{name}.out", "wb")
        path = folder / f"{name}.key"
        path.write_bytes(key)
        path.chmod(0o400)
        self.process = subprocess.Popen(
            [shutil.which("munged", path=SEARCH), "--foreground", "--force", "--key-file", path,
             "--socket", self.socket, "--pid-file", folder / f"{name}.pid",
             "--seed-file", folder / f"{name}.seed"],
            stdout=self.out, stderr=self.out, stdin=subprocess.DEVNULL)

    def encode(self, payload, *options, user=None):
        done = subprocess.run(["munge", "--socket", self.socket, *map(str, options)],
                              input=payload, capture_output=True, user=user,
                              group=None if user is None else NOBODY,
                              extra_groups=None if user is None else [])
        assert done.returncode == 0, done
        return done.stdout.strip()

    def decode(self, credential, user=None):
        return subprocess.run(["unmunge", "--socket", self.socket], input=credential,
                              capture_output=True, user=user,
                              group=None if user is None else NOBODY,
                              extra_groups=None if user is None else [])

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.out.close()


class Cluster:
    """The MUNGE daemons of two hosts `a` and `b`, and the one of a host of another cluster."""

    def __init__(self, tmp):
        if any(shutil.which(p, path=SEARCH) is None for p in ("munged", "munge", "unmunge")):
            skip("munged is not installed (package munge)")
        if b"built without" in (BUILD / "bin" / "crun").read_bytes() and \
                b"libmunge.so.2" not in (BUILD / "bin" / "crun").read_bytes():
            skip("this crun was built without libmunge-dev")
        folder = tmp / "munge"
        folder.mkdir()
        for path in (folder, tmp, *tmp.parents):  # other users reach the sockets
            if path.stat().st_uid == os.geteuid() and path != pathlib.Path("/tmp"):
                path.chmod(path.stat().st_mode | 0o111)
        key = secrets.token_bytes(64)
        self.a, self.b = Munged(folder, "a", key), Munged(folder, "b", key)
        self.other = Munged(folder, "other", secrets.token_bytes(64))

    def __enter__(self):
        for m in (self.a, self.b, self.other):
            wait_for(m.socket.exists, "the socket of munged")
        return self

    def __exit__(self, *_):
        for m in (self.a, self.b, self.other):
            m.stop()


def task(munged):
    return {**TASK, "MUNGE_SOCKET": munged.socket}


@contextlib.contextmanager
def job(tmp, cluster):
    """A healthy job of two nodes on two hosts; at the end it is as healthy as before."""
    with Nodes(tmp, "--nnodes=2", conf="last_call_timeout=0.3,keep_alive_interval=0.5") as nodes:
        nodes.host = nodes.start_host("a", **task(cluster.a))
        other = nodes.start("b", **task(cluster.b))
        workers = nodes.round(2)
        yield nodes
        assert all(w.alive for w in workers), "workers have died"
        for w in workers:
            w.signal(Nodes.WELL)
        assert [nodes.host.wait(), other.wait()] == [0, 0]
        for n in nodes.nodes[:2]:
            assert "restart 1" not in n.text and "is open to its network" not in n.text, n.text


def connect(endpoint):
    host, port = endpoint.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 30 * SCALE)


def read_to_end(sock):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := sock.recv(65536):
            data += more
    return data


def head_of(credential, role="member", run_id="job"):
    return secure_raw.head_of(role, run_id, 2) + struct.pack(">H", len(credential)) + credential


def greeting(credential, secret, **how):
    head = head_of(credential, **how)
    key = secure_raw.mac(secret, how.get("role", "member").encode(), b"\0",
                         how.get("run_id", "job").encode(), b"\x01")
    noise = secure_raw.Initiator(head, key)
    return head + noise.first(), noise


def offer(endpoint, credential, secret):
    """Begins a connection with the credential, and returns the answer."""
    text, noise = greeting(credential, secret)
    with connect(endpoint) as s:
        s.sendall(text)
        answer = b""
        while len(answer) < (6 if answer[:5] == b"CRUNA" else 53):
            more = s.recv(53 - len(answer))
            assert more, answer
            answer += more
    if answer[:5] == b"CRUNK":
        noise.second(answer[5:])  # raises if the coordinator does not know the secret
    return answer


def offer_until(answer, endpoint, make, secret):
    """Offers new credentials until the answer is as expected: on a busy machine munged may take
    longer than crun waits. Returns the last credential."""
    for _ in range(5):
        credential = make()
        got = offer(endpoint, credential, secret)
        if got.startswith(answer):
            return credential
    raise AssertionError(f"{got}, not {answer}")


def operator(*argv, **env):
    return subprocess.run([AGENT, *map(str, argv)], capture_output=True, text=True,
                          env=clean_env(**env))


def test_tasks_of_slurm_need_no_configuration(tmp):
    """These authenticate without any option: the nodes of a job on two hosts; an operator of the
    same user, outside of Slurm; and a second implementation of the protocol, with a credential that
    the program munge has made."""
    with Cluster(tmp) as cluster, job(tmp, cluster) as it:
        status = operator("status", it.endpoint, MUNGE_SOCKET=cluster.b.socket)
        assert status.returncode == 0 and "2 of 2:2 nodes" in status.stdout, status
        secret = secrets.token_bytes(32)
        make = lambda: cluster.b.encode(LABEL + secret, "--restrict-uid", os.geteuid())
        offer_until(b"CRUNK", it.endpoint, make, secret)


def test_gateways_authenticate_by_munge(tmp):
    """Each node's gateway opens its own connection to the store of the round."""
    meet = (f'"{CRUN_STORE}" add $MASTER_ADDR:$MASTER_PORT here 1 > "{tmp}/$RANK.out" && '
            f'"{CRUN_STORE}" set $MASTER_ADDR:$MASTER_PORT rank$RANK x && '
            f'"{CRUN_STORE}" wait $MASTER_ADDR:$MASTER_PORT rank0 rank1')
    with Cluster(tmp) as cluster, Nodes(tmp, "--nnodes=2", "--store-gateway") as nodes:
        a = nodes.start_host("a", program="/bin/sh", args=("-c", meet), **task(cluster.a))
        b = nodes.start("b", program="/bin/sh", args=("-c", meet), **task(cluster.b))
        assert [a.wait(), b.wait()] == [0, 0], (a.text, b.text)
        assert sorted((tmp / f"{r}.out").read_text() for r in (0, 1)) == ["1\n", "2\n"]


def test_strangers_without_munge_are_refused(tmp):
    with Cluster(tmp) as cluster, job(tmp, cluster) as it:
        status = operator("status", it.endpoint, MUNGE_SOCKET=tmp / "none")
        assert status.returncode == 1 and "authenticate by MUNGE" in status.stderr, status
        plain = it.start("c", MUNGE_SOCKET=tmp / "none")
        assert plain.wait() == 1 and "authenticate by MUNGE" in plain.text, plain.text
        wait_for(lambda: "it does not use MUNGE" in it.host.text, "the line of the host")


def test_other_users_and_other_clusters_are_refused(tmp):
    """The host refuses credentials that another user has made, for this user or for everybody; one
    of a daemon with another key; one that this user has made for everybody, because everybody
    knows its secret; one with a text that is not crun's; and one that no daemon has made."""
    if os.geteuid() != 0:
        skip("needs root, to be another user")
    secret = secrets.token_bytes(32)
    text, only = LABEL + secret, ("--restrict-uid", os.geteuid())
    with Cluster(tmp) as cluster:
        b, other = cluster.b, cluster.other
        for number, (make, why) in enumerate((
                (lambda: b.encode(text, *only, user=NOBODY), f"user {NOBODY} has made"),
                (lambda: b.encode(text, user=NOBODY), f"user {NOBODY} has made"),
                (lambda: other.encode(text, *only), "Invalid credential"),
                (lambda: b.encode(text), "other users can read"),
                (lambda: b.encode(b"other purpose" + bytes(48), *only), "not made by crun"),
                (lambda: b"MUNGE:forged:", "MUNGE does not accept its credential: "))):
            folder = tmp / str(number)  # a job for each: one host logs few refusals in 10 s
            folder.mkdir()
            with job(folder, cluster) as it:
                for _ in range(3):  # a munged that is slow is another reason to refuse
                    assert offer(it.endpoint, make(), secret) == b"CRUNA\x0b", why
                wait_for(lambda: why in it.host.text, f"the reason '{why}'")
        (tmp / "node").mkdir()
        with job(tmp / "node", cluster) as it:
            stranger = it.start("c", **task(cluster.other))
            wait_for(lambda: "refuses the credential" in stranger.text, "the refusal at the node")
            stranger.process.kill()


def test_a_credential_on_the_way_is_of_no_use(tmp):
    """What somebody on the way records: another user cannot decode it on any host, and whoever
    repeats it is refused, with the same and with a new handshake."""
    if os.geteuid() != 0:
        skip("needs root, to be another user")
    with Cluster(tmp) as cluster, job(tmp, cluster) as it:
        secret = secrets.token_bytes(32)
        make = lambda: cluster.b.encode(LABEL + secret, "--restrict-uid", os.geteuid())
        credential = make()
        for munged in (cluster.a, cluster.b):
            stolen = munged.decode(credential, user=NOBODY)
            assert stolen.returncode != 0 and secret not in stolen.stdout, stolen
            assert b"Unauthorized" in stolen.stderr, stolen
        # The sender of this credential does not know its secret, so it does not know the key
        # either. After this refusal the credential is used up, because munged decodes it only once.
        used = offer_until(b"CRUNA\x01", it.endpoint, make, secrets.token_bytes(32))
        for _ in range(2):
            assert offer(it.endpoint, used, secret) == b"CRUNA\x0b"
        wait_for(lambda: "Replayed credential" in it.host.text, "the reason of the refusal")


def test_a_token_file_goes_before_munge(tmp):
    """A job with a token file uses it under Slurm, too, and refuses a node that uses MUNGE. A job
    that uses MUNGE refuses a node with a token file. Both sides say why."""
    token = tmp / "token"
    token.touch(0o600)
    token.write_text("a secret of more than 32 characters\n")
    with Cluster(tmp) as cluster:
        for number, (host, node, at_node, at_host) in enumerate((
                (("--rdzv-token-file", token), (), "it does not use MUNGE, this end does",
                 "it uses MUNGE, this coordinator does not"),
                ((), ("--rdzv-token-file", token), "it uses MUNGE, this end has a token file",
                 "it has a token file, this coordinator uses MUNGE"),
                (("--rdzv-conf=auth=off",), (), "it does not use MUNGE, this end does",
                 "it uses MUNGE, this coordinator does not"))):
            folder = tmp / str(number)
            folder.mkdir()
            with Nodes(folder, "--nnodes=2") as nodes:
                a = nodes.start_host("a", *host, **task(cluster.a))
                b = nodes.start("b", *node, **task(cluster.b))
                wait_for(lambda: at_node in b.text, f"'{at_node}' at the node")
                wait_for(lambda: at_host in a.text, f"'{at_host}' at the coordinator")


def test_without_munge_the_open_job_says_why(tmp):
    """A task of Slurm on a host without munged, for example in a container without its socket."""
    endpoint = f"127.0.0.1:{free_port()}"
    with Nodes(tmp, "--nnodes=2", endpoint=f"0.0.0.0:{endpoint.split(':')[1]}") as nodes:
        a = nodes.start("a", **TASK, MUNGE_SOCKET=tmp / "none")
        wait_for(lambda: "MUNGE is not used: " in a.text, "the line about the open job")
    for word, text in (("required", "MUNGE is not used: "), ("munge", "auth=munge, but ")):
        done = subprocess.run([CRUN, "--nnodes=2", "--rdzv-backend=c10d",
                               f"--rdzv-endpoint={endpoint}", f"--rdzv-conf=auth={word}",
                               "true"], capture_output=True, text=True,
                              env=clean_env(**TASK, MUNGE_SOCKET=tmp / "none"))
        assert done.returncode != 0 and text in done.stderr, done
        assert "munged has no socket at" in done.stderr or "libmunge" in done.stderr, done


def test_a_stopped_munged_blocks_neither_start_nor_job(tmp):
    """The munged of the host is stopped while the job runs: the job goes on, and a further node is
    refused until munged goes on. A node whose own munged is stopped does not start without
    authentication: it ends with an error."""
    with Cluster(tmp) as cluster, job(tmp, cluster) as it:
        cluster.a.process.send_signal(signal.SIGSTOP)
        late = it.start("c", "--rdzv-conf=read_timeout=30", **task(cluster.b))
        wait_for(lambda: "munged does not answer" in it.host.text, "the refusal by the host")
        stopped = it.start("d", **task(cluster.a))
        assert stopped.wait() == 1 and "munged does not answer" in stopped.text, stopped.text
        cluster.a.process.send_signal(signal.SIGCONT)
        wait_for(lambda: f"process {late.process.pid}) joined" in it.host.text,
                 "the late node to be let in")
        status = operator("status", it.endpoint, MUNGE_SOCKET=cluster.b.socket)
        assert "2 workers, restart 0" in status.stdout, status
        late.process.kill()


@contextlib.contextmanager
def silent_munged(munged):
    """Puts a socket that accepts calls, but answers none, in the place of the daemon's socket."""
    away = munged.socket.with_suffix(".away")
    os.rename(munged.socket, away)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(munged.socket))
        silent.listen()
        silent.settimeout(30 * SCALE)
        yield silent
    os.rename(away, munged.socket)


def serves_others_first(munged, address, make, secret, others_bytes):
    """Begins a connection whose credential the process at `address` has to read, while munged does
    not answer. Returns whether another connection is answered before that one."""
    with connect(address) as waiting, connect(address) as other, silent_munged(munged) as silent:
        waiting.sendall(greeting(make(), secret)[0])
        with silent.accept()[0]:  # from now on the process waits for munged
            other.sendall(others_bytes)
            answered, _, _ = select.select([waiting, other], [], [], 30 * SCALE)
    assert answered, "nobody is answered"
    wait_for(lambda: offer(address, make(), secret).startswith(b"CRUNK"), "munged to answer again")
    return waiting not in answered


def expect_others_first(*args):
    # tries again if the process, without processor time for 0.5 s, has stopped waiting for munged
    assert any(serves_others_first(*args) for _ in range(5)), "all wait for munged"


def test_a_silent_munged_delays_nobody_else(tmp):
    """While the host waits for its munged, it serves other connections: it refuses an operator
    without MUNGE before the node whose credential munged does not read."""
    secret = secrets.token_bytes(32)
    with Cluster(tmp) as cluster, job(tmp, cluster) as it:
        make = lambda: cluster.b.encode(LABEL + secret, "--restrict-uid", os.geteuid())
        expect_others_first(cluster.a, it.endpoint, make, secret, b"CRUNrdzv")


def test_a_silent_munged_does_not_delay_a_relay(tmp):
    secret = secrets.token_bytes(32)
    with Cluster(tmp) as cluster:
        make = lambda: cluster.b.encode(LABEL + secret, "--restrict-uid", os.geteuid())
        relay = subprocess.Popen([AGENT, "relay", f"127.0.0.1:{free_port()}", "--auth=munge",
                                  "--listen=127.0.0.1:0"], stdout=subprocess.PIPE, text=True,
                                 env=clean_env(MUNGE_SOCKET=cluster.a.socket))
        try:
            address = relay.stdout.readline().strip()
            expect_others_first(cluster.a, address, make, secret, b"CRUNrdzv")
        finally:
            kill(relay)


def test_a_silent_munged_does_not_delay_the_store_of_a_round(tmp):
    """A worker on the node of the store is answered while the store waits for munged because of the
    gateway of another node."""
    secret = secrets.token_bytes(32)
    with Cluster(tmp) as cluster, Nodes(tmp, "--nnodes=2", "--store-gateway") as nodes:
        started = [nodes.start_host("a", **task(cluster.a)), nodes.start("b", **task(cluster.b))]

        def workers():
            found = sorted(nodes.workers(), key=lambda w: w.rank)
            return found if len(found) == 2 else None
        first = wait_for(workers, "two workers")[0]  # its node has the store
        here, there = (cluster.a, cluster.b)[::1 if first.node == "a" else -1]
        make = lambda: there.encode(LABEL + secret, "--restrict-uid", os.geteuid())
        ping = b"\0\xce\xf7\x85\x3c" + b"\x0d" + bytes(4)
        expect_others_first(here, "%s:%d" % first.address, make, secret, ping)
        for w in nodes.workers():
            w.signal(Nodes.WELL)
        assert [n.wait() for n in started] == [0, 0], [n.text for n in started]


def test_a_silent_munged_does_not_delay_a_node_that_connects(tmp):
    """A node goes on to print what its worker writes while it waits for the credential with which
    it connects again to its coordinator."""
    port = free_port()
    serve = [AGENT, "serve", "--auth=munge", f"--listen=127.0.0.1:{port}"]
    worker = ("-c", f"while [ ! -e {tmp}/end ]; do echo tick; sleep 0.02; done")
    with Cluster(tmp) as cluster, contextlib.ExitStack() as stack:
        def coordinate():
            agent = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True,
                                     env=clean_env(MUNGE_SOCKET=cluster.a.socket))
            stack.callback(kill, agent)
            assert agent.stdout.readline().strip() == f"127.0.0.1:{port}"
            return agent

        agent = coordinate()
        with Nodes(tmp, "--nnodes=1:2", endpoint=f"127.0.0.1:{port}",
                   conf="is_host=0,coordinator_wait=60,last_call_timeout=0.3") as nodes:
            node = nodes.start("b", program="/bin/sh", args=worker, **task(cluster.b))
            wait_for(lambda: "tick" in node.text, "the worker's output")
            kill(agent)
            with silent_munged(cluster.b) as silent:
                coordinate()
                with silent.accept()[0]:  # from now on the node waits for its munged
                    before = len(node.text)
                    wait_for(lambda: "munged does not answer" in node.text[before:], "its line")
                    ticks = node.text[before:].partition("munged does not answer")[0].count("tick")
            assert ticks >= 2, node.text[before:]
            (tmp / "end").touch()
            assert node.wait() == 0, node.text


if __name__ == "__main__":
    run_tests(globals())
