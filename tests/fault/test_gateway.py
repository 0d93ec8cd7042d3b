#!/usr/bin/env python3
# timeout: 300
"""--store-gateway: workers reach the store of another node through their own node's crun, on
loopback; nobody else reaches the store, and a lost connection costs the workers only time."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import run, run_tests, skip, wait_for
from netns import Net
from nodes import Nodes

CONF = "last_call_timeout=0.3,join_timeout=60,keep_alive_interval=2"
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
made = 0
while made < 50 or (folder / "hold").exists():
    s.add("n", 1)
    made += 1
    if made == 50: (folder / f"busy.{{rank}}").touch()
s.add("made", made)
if s.add("done", 1) == world: s.set("all", b"1")
s.wait("all")
assert s.byte() == 0
assert s.add("n", 0) == s.add("made", 0), "an addition was lost, or made twice"
for other in range(world):
    assert s.get("name/%d" % other) == b"x" * (100000 * other)
print("rank", rank, "is content", flush=True)
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
