#!/usr/bin/env python3
# timeout: 300
"""--store-gateway: workers reach the store of another node through their own node's crun, on
loopback; nobody else reaches the store, and a lost connection costs the workers only time."""
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import SCALE, run, run_tests, skip, wait_for
from free_port import free_port
from netns import Net
from nodes import Daemon, Nodes

CONF = "last_call_timeout=0.3,join_timeout=60,keep_alive_interval=10"
LIB = pathlib.Path(__file__).resolve().parent.parent / "lib"

# Four workers on two nodes. Each adds 1 to a counter again and again while the file `hold` is
# there, at least 50 times; then all meet, and each checks that no addition was lost or made twice.
WORKER = f"""
import os, pathlib, socket, sys
sys.path.insert(0, {str(LIB)!r})
from store_raw import Modern
class Here:
    def connect(self, host):
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return socket.create_connection(address, 120)
folder = pathlib.Path(os.environ["TEST_DIR"])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
(folder / f"address.{{rank}}").write_text(
    os.environ["MASTER_ADDR"] + " " + os.environ["MASTER_PORT"])
s = Modern(Here())
s.set("name/%d" % rank, b"x" * (100000 * rank))
made, until = 0, None
while made < 50 or (folder / "hold").exists():
    s.add("n", 1)
    made += 1
    if made > 50 and not (folder / f"busy.{{rank}}").exists():
        until = until or made + 50
        if made == until: (folder / f"still.{{rank}}").touch()
    if made == 50: (folder / f"busy.{{rank}}").touch()
s.add("made", made)
if s.add("done", 1) == world: s.set("all", b"1")
s.wait("all")
assert s.byte() == 0
assert s.add("n", 0) == s.add("made", 0), "an addition was lost, or made twice"
for other in range(world):
    assert s.get("name/%d" % other) == b"x" * (100000 * other)
print(f"rank {{rank}} is content", flush=True)
if s.add("left", 1) == world: s.set("end", b"1")
s.wait("end")
assert s.byte() == 0
"""

CLIENT = """
import socket, struct, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
s.settimeout(20)
try:
    s.sendall(b"\\0\\xce\\xf7\\x85\\x3c" + b"\\7")
    print("served" if len(s.recv(8)) > 0 else "refused")
except ConnectionError:
    print("refused")
"""


def token(tmp):
    path = tmp / "token"
    path.write_text("0123456789abcdef" * 4 + "\n")
    path.chmod(0o600)
    return f"--rdzv-token-file={path}"


def start_two(tmp, nodes, net):
    program = tmp / "worker.py"
    program.write_text(WORKER)
    (tmp / "hold").touch()
    started = [nodes.start(f"n{i}", program="/usr/bin/python3", args=[program], prefix=h.run)
               for i, h in enumerate(net.hosts[:2])]
    wait_for(lambda: len(list(tmp.glob("busy.*"))) == 4, "four busy workers")
    return started


def let_end(tmp, started):
    (tmp / "hold").unlink()
    assert [n.wait() for n in started] == [0, 0], [n.text for n in started]
    text = "".join(n.text for n in started)
    assert text.count("is content") == 4, text


def connections(host, port):
    """Returns the other ends of the connections that the host has at its port `port`."""
    out = run([*host.run, "ss", "-Htn", "state", "established", "sport", "=", f":{port}"]).stdout
    return [line.split()[3].rsplit(":", 1)[0].strip("[]").removeprefix("::ffff:")
            for line in out.splitlines()]


def check_round(tmp, net):
    """Returns the port of the store, the host that has it, and the other one."""
    addresses = {int(p.suffix[1:]): p.read_text().split() for p in tmp.glob("address.*")}
    # rank 0 is on the node that has the store; the workers of the other node use their gateway
    where, port = addresses[0]
    assert {addresses[2][0], addresses[3][0]} == {"127.0.0.1"}, addresses
    assert addresses[2][1] == addresses[3][1] != port, addresses
    here = next(h for h in net.hosts[:2] if connections(h, port))
    there = next(h for h in net.hosts[:2] if h is not here)
    assert where in ("127.0.0.1", here.addr), addresses
    others = connections(here, port)
    assert others.count(there.addr) == 1, others      # two workers, but one connection
    return port, here, there


def test_workers_meet_through_their_node(tmp):
    for i, options in enumerate(([], [token(tmp)])):
        folder = tmp / str(i)
        folder.mkdir()
        with Net(3) as net, Nodes(folder, "--nnodes=2", "--nproc-per-node=2", "--store-gateway",
                                  *options, endpoint="10.77.0.1:29400", conf=CONF) as nodes:
            started = start_two(folder, nodes, net)
            port, here, there = check_round(folder, net)
            for host in (there, net.hosts[2]):      # a node of the job, and a stranger
                done = run([*host.run, sys.executable, "-c", CLIENT, here.addr, port])
                assert done.stdout.strip() == "refused", (options, done)
            done = run([*here.run, sys.executable, "-c", CLIENT, here.addr, port])
            assert done.stdout.strip() == "served", done
            let_end(folder, started)


def test_a_static_rendezvous_has_gateways_too(tmp):
    with Net(2) as net, Nodes(tmp, "--nnodes=2", "--nproc-per-node=2", "--store-gateway",
                              endpoint="10.77.0.1:29400", given=(
                                  "--rdzv-backend=static", "--rdzv-endpoint=10.77.0.1:29400",
                                  "--rdzv-id=job")) as nodes:
        program = tmp / "worker.py"
        program.write_text(WORKER)
        started = [nodes.start(f"n{i}", f"--node-rank={i}", program="/usr/bin/python3",
                               args=[program], prefix=h.run) for i, h in enumerate(net.hosts)]
        assert [n.wait() for n in started] == [0, 0], [n.text for n in started]


def living(nodes, restarts=0):
    """Waits for two living workers. Nodes.round() cannot: each node has a store's address of its
    own."""
    def look():
        found = [w for w in nodes.workers() if w.alive and w.restarts == restarts]
        return found if len(found) == 2 else None
    return wait_for(look, f"two workers after {restarts} restarts")


# Records the first bytes of a gateway's connection, as whoever sits on the way can.
SNIFF = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("listening", flush=True)
while True:
    packet = s.recv(65536)
    magic = sys.argv[1].encode()
    if magic in packet:
        print(packet[packet.index(magic):].hex(), flush=True)
        break
"""

# A process of a node that uses the gateway of round 0, and tries it again in round 1.
OLD = f"""
import socket, sys
sys.path.insert(0, {str(LIB)!r})
from store_raw import Modern
class Here:
    def connect(self, host):
        return socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s = Modern(Here())
s.set("left by round 0", b"x")
assert s.get("left by round 0") == b"x"
print("served", flush=True)
sys.stdin.readline()
try:
    print("answered", s.add("left by round 0", 1))
except (EOFError, ConnectionError):
    print("closed")
try:
    Here().connect("")
    print("connected")
except ConnectionRefusedError:
    print("refused")
"""

# Sends HELLO to a store. Prints the store's answer.
HELLO = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
s.sendall(bytes.fromhex(sys.argv[3]))
print(s.recv(1)[0])
"""

# Prints how many of the keys that round 0 has left the store has.
CHECK = f"""
import socket, sys
sys.path.insert(0, {str(LIB)!r})
from store_raw import Modern
class There:
    def connect(self, host):
        return socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
s = Modern(There())
s.say("check", (1).to_bytes(8, "little"), (len(b"/left by round 0")).to_bytes(8, "little"),
      b"/left by round 0")
print("there" if s.byte() == 0 else "not there")
"""


def test_nothing_is_written_into_another_round(tmp):
    """Neither a process that has used the gateway of round 0, nor the recorded first bytes of that
    gateway's connection, reach the store of round 1. Without a secret, so that the recorded bytes
    can be read; with one they are encrypted (unit/test_secure)."""
    with Net(2) as net, Nodes(tmp, "--nnodes=2", "--max-restarts=1", "--store-gateway",
                              endpoint="10.77.0.1:29400", conf=CONF) as nodes:
        python = [sys.executable, "-c"]
        sniffer = subprocess.Popen([*net.hosts[0].run, *python, SNIFF, "CRG1"],
                                   stdout=subprocess.PIPE, text=True)
        assert sniffer.stdout.readline() == "listening\n"
        started = [nodes.start(f"n{i}", prefix=h.run) for i, h in enumerate(net.hosts)]
        hosts = {f"n{i}": h for i, h in enumerate(net.hosts)}
        first = sorted(living(nodes), key=lambda w: w.rank)
        hello = sniffer.stdout.readline().strip()
        assert sniffer.wait() == 0
        gateway = first[1].address[1]
        old = subprocess.Popen([*hosts[first[1].node].run, *python, OLD, str(gateway)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert old.stdout.readline() == "served\n"
        first[0].signal(signal.SIGUSR1)
        second = sorted(living(nodes, restarts=1), key=lambda w: w.rank)
        said = old.communicate("\n")[0].split()
        assert said == ["closed", "refused"] or second[1].address[1] == gateway, said
        here, port = hosts[second[0].node], second[0].address[1]
        done = run([*here.run, *python, CHECK, second[0].address[0], port])
        assert done.stdout == "not there\n", done
        # another trunk of the recorded round is refused, one of the round that runs is not
        other, answers = "00" * 16, []
        for number in (0, 1):
            round_bytes = number.to_bytes(8, "little").hex()
            done = run([*here.run, *python, HELLO, here.addr, port,
                        hello[:8] + other + hello[40:56] + round_bytes + "00" * 8])
            answers.append(done.stdout.strip())
        assert answers == ["2", "0"], (answers, hello)
        for w in second:
            w.signal(Nodes.WELL)
        assert [n.wait() for n in started] == [0, 0]


# A stranger at the port at which the store takes the connections of gateways.
STRANGER = f"""
import contextlib, os, socket, struct, sys
sys.path.insert(0, {str(LIB)!r})
import secure_raw
address = sys.argv[1], int(sys.argv[2])
def connect(): return socket.create_connection(address, 120)
def rest(s):
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := s.recv(65536): data += more
    return data
head = secure_raw.head_of("member", "job")
slow = [connect() for _ in range(30)]
for i, s in enumerate(slow): s.sendall((head + bytes(48))[:8 + i])   # and nothing more
for _ in range(300):                                                 # a flood
    with connect() as s, contextlib.suppress(ConnectionError):
        s.sendall(head + os.urandom(48))
        assert s.recv(100) in (b"CRUNA\\x01", b""), "a stranger was let in"
for data in (b"CRG1" + bytes(40),                                    # downgrade: without the secret
             secure_raw.MAGIC + struct.pack(">BBH", 1, 1, 65535) + b"x" * 65535,   # giant
             bytes.fromhex(sys.argv[5])):                            # a recorded connection
    with connect() as s, contextlib.suppress(ConnectionError):
        s.sendall(data)
        with contextlib.suppress(OSError):     # the store may have closed the connection already
            s.shutdown(socket.SHUT_WR)
        answer = rest(s)
        assert len(answer) <= 53, answer       # at most a handshake, and no reply of the store
for secret, role, job in ((sys.argv[4], "member", "job"), (sys.argv[3], "operator", "job"),
                          (sys.argv[3], "member", "other")):         # wrong key, role, job
    try:
        channel = secure_raw.Channel(connect(), secret, role, job)
        channel.send(b"CRG1" + bytes(40))
        assert rest(channel.socket) == b"", (role, job)
    except (secure_raw.Refused, ConnectionError):
        pass
channel = secure_raw.Channel(connect(), sys.argv[3], "member", "job")
channel.socket.sendall(b"\\xff\\xff" + bytes(100))                    # a giant record
assert rest(channel.socket) == b""
for s in slow: rest(s)                          # ended by the store
print("the stranger has done nothing")
"""

# Another process on a node, which can reach the gateway's port as the workers can.
NEIGHBOUR = f"""
import contextlib, os, socket, struct, sys
sys.path.insert(0, {str(LIB)!r})
from store_raw import Modern
class Here:
    def connect(self, host):
        return socket.create_connection(("127.0.0.1", int(sys.argv[1])), 120)
flood = [Here().connect("") for _ in range(300)]
for i, s in enumerate(flood):
    with contextlib.suppress(ConnectionError):
        s.sendall(os.urandom(1 + i))
giant = Here().connect("")                     # announces a value of 4 EiB
with contextlib.suppress(ConnectionError):
    giant.sendall(bytes.fromhex("00cef7853c") + b"\\x01" + struct.pack("<Q", 2) + b"/k"
                  + struct.pack("<Q", 1 << 62) + b"x" * 1000)
    assert giant.recv(1) == b"", "a giant value was accepted"
reader = Modern(Here())                        # never reads its replies
reader.set("big", b"x" * (4 << 20))
reader.socket.settimeout(2)
get = b"\\x03" + struct.pack("<Q", 4) + b"/big"
with contextlib.suppress(TimeoutError):
    for _ in range(100000):
        reader.send(get)
print("slow", flush=True)
sys.stdin.readline()
"""


def test_attacks_on_store_and_gateway(tmp):
    """A job with a secret goes on unharmed while a stranger tries the port of the store, and a
    process of a node misuses the gateway."""
    secret = token(tmp)
    with Net(3) as net, Nodes(tmp, "--nnodes=2", "--nproc-per-node=2", "--store-gateway", secret,
                              endpoint="10.77.0.1:29400", conf=CONF) as nodes:
        python = [sys.executable, "-c"]
        sniffer = subprocess.Popen([*net.hosts[0].run, *python, SNIFF, "CRUNsec1"],
                                   stdout=subprocess.PIPE, text=True)
        assert sniffer.stdout.readline() == "listening\n"
        started = start_two(tmp, nodes, net)
        recorded = sniffer.stdout.readline().strip()
        assert sniffer.wait() == 0
        port, here, there = check_round(tmp, net)
        gateway = next(p.read_text().split()[1] for p in tmp.glob("address.*")
                       if p.read_text().split()[1] != port)
        neighbour = subprocess.Popen([*there.run, *python, NEIGHBOUR, gateway], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        key = (tmp / "token").read_text().strip()
        done = run([*net.hosts[2].run, *python, STRANGER, here.addr, port, key,
                    "fedcba9876543210" * 4, recorded])
        assert done.stdout == "the stranger has done nothing\n", done
        assert neighbour.stdout.readline() == "slow\n"
        before = {p.name: p.stat().st_mtime_ns for p in tmp.glob("address.*")}
        let_end(tmp, started)
        neighbour.communicate("\n")
        assert len(before) == 4, "a worker was started anew"
        text = "".join(n.text for n in started)
        assert text.count("warning") < 40, text
        # The trunk was never lost. A sanitizer makes the store so slow that it may be.
        assert SCALE > 1 or "the gateway has the store at" not in text, text


def test_a_coordinator_that_restarts_delays_no_request(tmp):
    """The store is in the crun of a node, so the workers use it while no coordinator is there."""
    port = free_port()
    agent = Daemon(port)
    with Nodes(tmp, "--nnodes=2", "--nproc-per-node=2", "--store-gateway",
               endpoint=f"127.0.0.1:{port}", conf=f"{CONF},is_host=0,coordinator_wait=60") as nodes:
        program = tmp / "worker.py"
        program.write_text(WORKER)
        (tmp / "hold").touch()
        started = [nodes.start(f"n{i}", program="/usr/bin/python3", args=[program])
                   for i in range(2)]
        wait_for(lambda: len(list(tmp.glob("busy.*"))) == 4, "four busy workers")
        agent.kill()
        try:
            for p in tmp.glob("busy.*"):  # each worker makes 50 more requests without it
                p.unlink()
            wait_for(lambda: len(list(tmp.glob("still.*"))) == 4, "four workers that go on")
            agent = Daemon(port)
            wait_for(lambda: agent.phase() == "RUNNING", "the job at the new coordinator")
            let_end(tmp, started)
        finally:
            agent.kill()


def test_all_nodes_have_gateways_or_none(tmp):
    """A node that differs is refused, and both sides name the difference; the job goes on."""
    with Nodes(tmp, "--nnodes=2", conf=CONF) as nodes:
        host = nodes.start_host("host", "--store-gateway")
        wait_for(lambda: "1 waiting" in host.text, "the first node to join")
        other = nodes.start("other")
        assert other.wait() == 1
        assert "cannot join without --store-gateway" in other.text, other.text
        assert "started without --store-gateway, and this job with it" in host.text, host.text
        second = nodes.start("second", "--store-gateway")
        for w in living(nodes):
            w.signal(Nodes.WELL)
        assert [host.wait(), second.wait()] == [0, 0]


def cut_and_heal(tmp, options, seconds, reset):
    """Cuts a node off for some seconds, while its workers use the store."""
    with Net(2) as net, Nodes(tmp, "--nnodes=2", "--nproc-per-node=2", "--store-gateway", *options,
                              endpoint="10.77.0.1:29400", conf=CONF) as nodes:
        started = start_two(tmp, nodes, net)
        port, here, there = check_round(tmp, net)
        there.cut()
        if reset:
            done = run([*there.run, "ss", "-K", "dst", here.addr, "dport", "=", f":{port}"])
            if str(port) not in done.stdout:
                skip("this kernel cannot end connections (ss -K)")
        subprocess.run(["sleep", str(seconds)], check=True)
        there.heal()
        wait_for(lambda: connections(here, port).count(there.addr) >= 1, "the gateway to be back")
        let_end(tmp, started)
        return "".join(n.text for n in started)


def test_an_outage_costs_time_only(tmp):
    cut_and_heal(tmp, [], 2, reset=False)


def test_a_lost_connection_is_made_again(tmp):
    text = cut_and_heal(tmp, [token(tmp)], 1, reset=True)
    assert "the gateway has the store at" in text, text


if __name__ == "__main__":
    run_tests(globals())
