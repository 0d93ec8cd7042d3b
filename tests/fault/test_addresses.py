#!/usr/bin/env python3
# timeout: 300
"""Nodes on hosts with names and addresses as real networks have them find each other: a machine's
own name that is a loopback address there, as in Debian's /etc/hosts, names with several addresses
of which some do not answer, IPv6, and endpoints that are not an address of any host."""
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, CRUN_STORE, SCALE, clean_env, run, run_tests, start, wait_for
from netns import Net
from nodes import Nodes

CRUN_AGENT = BUILD / "bin" / "crun-agent"
CONF = "last_call_timeout=0.3,join_timeout=30"


def debian(net):
    """Writes /etc/hosts as Debian's installer does, with the other host's address added."""
    net.hosts[0].etc_hosts("127.0.1.1 head", "10.77.0.2 n2")
    net.hosts[1].etc_hosts("127.0.1.1 n2", "10.77.0.1 head")


def meet(net, nodes, options=(), hosts=None):
    """Starts one node per host, waits for a round with all, and ends it. Returns the workers."""
    hosts = hosts or net.hosts
    options = options or [()] * len(hosts)
    started = [nodes.start(f"n{i}", *options[i], prefix=h.run) for i, h in enumerate(hosts)]
    workers = nodes.round(len(hosts))
    for w in workers:
        nodes.connects(w)
        w.signal(nodes.WELL)
    assert [n.wait() for n in started] == [0] * len(started)
    return workers


def listening(host, port):
    """Returns the addresses at which the host listens on the port."""
    out = run([*host.run, "ss", "-Hltn"]).stdout
    return sorted(line.split()[3].rsplit(":", 1)[0] for line in out.splitlines()
                  if line.split()[3].endswith(f":{port}"))


def test_own_name_is_127_0_1_1_c10d(tmp):
    with Net(2, names=["head", "n2"]) as net:
        debian(net)
        with Nodes(tmp, "--nnodes=2", endpoint="head:29400", conf=CONF) as nodes:
            workers = meet(net, nodes)
            assert {w.address[0] for w in workers} == {"10.77.0.1"}, workers[0].env


def test_own_name_is_127_0_1_1_is_host(tmp):
    with Net(2, names=["head", "n2"]) as net:
        debian(net)
        with Nodes(tmp, "--nnodes=2", endpoint="head:29400", conf=CONF) as nodes:
            meet(net, nodes, ((f"--rdzv-conf={CONF},is_host=1",),
                              (f"--rdzv-conf={CONF},is_host=0",)))


def test_own_name_is_127_0_1_1_static(tmp):
    with Net(2, names=["head", "n2"]) as net:
        debian(net)
        with Nodes(tmp, "--nnodes=2", endpoint="head:29500", backend="static", conf="") as nodes:
            workers = meet(net, nodes, (("--node-rank=0",), ("--node-rank=1",)))
            assert {w.address for w in workers} == {("head", 29500)}, workers[0].env


class Agent:
    """crun-agent serve on a host."""
    def __init__(self, host, listen, *options):
        self.process = start([*host.run, CRUN_AGENT, "serve", f"--listen={listen}", "--auth=off",
                              *options],
                             env=clean_env(), stderr=subprocess.STDOUT)
        self.address = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def test_own_name_is_127_0_1_1_agent(tmp):
    with Net(2, names=["head", "n2"]) as net:
        debian(net)
        with Agent(net.hosts[0], "head:29400"), \
                Nodes(tmp, "--nnodes=2", endpoint="head:29400",
                      conf=f"{CONF},is_host=0") as nodes:
            meet(net, nodes)


def test_an_explicit_address_is_the_one_listened_on(tmp):
    with Net(1, v6=True) as net:
        host = net.hosts[0]
        for listen, expected in (("0.0.0.0:29400", ["0.0.0.0"]), ("[::]:29400", ["*"]),
                                 ("10.77.0.1:29400", ["10.77.0.1"]),
                                 ("[fd77::1]:29400", ["[fd77::1]"]),
                                 ("localhost:29400", ["127.0.0.1"])):
            with Agent(host, listen) as agent:
                assert agent.address == listen, agent.address
                assert listening(host, 29400) == expected, (listen, listening(host, 29400))


def test_one_of_two_addresses_is_a_black_hole(tmp):
    with Net(2, names=["head", "n2"]) as net:
        net.hosts[0].etc_hosts("10.77.0.1 head")
        net.hosts[1].etc_hosts("10.77.0.3 head", "10.77.0.1 head")
        net.hosts[1].black_hole("10.77.0.3")
        with Nodes(tmp, "--nnodes=2", endpoint="head:29400", conf=CONF) as nodes:
            begin = time.monotonic()
            meet(net, nodes)
            assert time.monotonic() - begin < 25 * SCALE


def test_ipv6_is_filtered(tmp):
    with Net(2, names=["head", "n2"], v6=True) as net:
        for h in net.hosts:
            h.etc_hosts("10.77.0.1 head", "fd77::1 head")
        net.hosts[1].black_hole("fd77::1")
        with Nodes(tmp, "--nnodes=2", endpoint="head:29400", conf=CONF) as nodes:
            begin = time.monotonic()
            meet(net, nodes)
            assert time.monotonic() - begin < 25 * SCALE


def test_ipv6_only(tmp):
    with Net(2, names=["head", "n2"], v4=False, v6=True) as net:
        for h in net.hosts:
            h.etc_hosts("fd77::1 head")
        for i, (endpoint, backend) in enumerate((
                ("head:29400", "c10d"), ("[fd77::1]:29400", "c10d"),
                ("[fd77::1]:29500", "static"))):
            folder = tmp / str(i)
            folder.mkdir()
            ranks = (("--node-rank=0",), ("--node-rank=1",)) if backend == "static" else ((), ())
            with Nodes(folder, "--nnodes=2", endpoint=endpoint, conf="", backend=backend) as nodes:
                assert meet(net, nodes, ranks)[0].address[0] == "fd77::1"


def test_a_silent_program_at_one_address_does_not_win(tmp):
    """A connection alone proves nothing: the program at the first address never answers."""
    with Net(2, names=["head", "n2"]) as net:
        net.hosts[0].etc_hosts("10.77.0.1 head")
        net.hosts[1].etc_hosts("10.77.0.2 other", "127.0.0.9 head", "10.77.0.1 head")
        code = "import socket; s = socket.create_server(('127.0.0.9', 29400)); s.accept(); input()"
        silent = start([*net.hosts[1].run, "python3", "-c", code], stdin=subprocess.PIPE)
        wait_for(lambda: listening(net.hosts[1], 29400), "the silent program to listen")
        with Nodes(tmp, "--nnodes=2", endpoint="head:29400",
                   conf=f"{CONF},is_host=0") as nodes:
            meet(net, nodes, ((f"--rdzv-conf={CONF},is_host=1",), ()))
        silent.kill()
        silent.communicate()


def test_a_name_that_appears_later(tmp):
    with Net(2, names=["head", "n2"]) as net:
        for h in net.hosts:
            h.etc_hosts("10.77.0.2 n2")
        for i, (backend, ranks) in enumerate((
                ("c10d", ((), ())), ("static", (("--node-rank=0",), ("--node-rank=1",))))):
            folder = tmp / str(i)
            folder.mkdir()
            with Nodes(folder, "--nnodes=2", endpoint="pod-0.svc:29400", conf="timeout=50",
                       backend=backend) as nodes:
                started = [nodes.start(f"n{j}", *ranks[j], prefix=h.run)
                           for j, h in enumerate(net.hosts)]
                for n in started:
                    wait_for(lambda: "cannot resolve the host 'pod-0.svc'" in n.text, "a warning")
                for h in net.hosts:
                    h.etc_hosts("10.77.0.1 pod-0.svc")
                for w in nodes.round(2):
                    nodes.connects(w)
                    w.signal(nodes.WELL)
                for n in started:
                    assert n.wait() == 0
                    assert n.text.count("warning: cannot resolve") == 1, n.text
            for h in net.hosts:
                h.etc_hosts("10.77.0.2 n2")


def test_a_forgotten_node_rank(tmp):
    with Net(2) as net, Nodes(tmp, "--nnodes=2", backend="static", endpoint="10.77.0.1:29500",
                              conf=f"timeout={40 * SCALE}") as nodes:
        other = nodes.start("n1", prefix=net.hosts[1].run)
        assert other.wait(30 * SCALE) != 0  # it knows at once, and does not wait for its time
        assert "give every node its --node-rank" in other.text, other.text
        # where the endpoint is, the default is right
        a = nodes.start("n0", prefix=net.hosts[0].run)
        b = nodes.start("n1", "--node-rank=1", prefix=net.hosts[1].run)
        for w in nodes.round(2):
            w.signal(nodes.WELL)
        assert a.wait() == 0 and b.wait() == 0


def test_a_name_with_the_addresses_of_all_nodes(tmp):
    """A headless service of Kubernetes: each node could host, and exactly one does."""
    with Net(3, names=["n0", "n1", "n2"]) as net:
        for h in net.hosts:
            h.etc_hosts("10.77.0.3 svc", "10.77.0.1 svc", "10.77.0.2 svc")
        for i, nnodes in enumerate(("3", "1:3")):
            folder = tmp / str(i)
            folder.mkdir()
            with Nodes(folder, f"--nnodes={nnodes}", endpoint="svc:29400",
                       conf="last_call_timeout=5,join_timeout=30") as nodes:
                meet(net, nodes)


def test_the_first_of_a_name_with_all_addresses_is_not_there(tmp):
    """The machine with the smallest address never comes, and packets to it are lost."""
    with Net(3, names=["n0", "n1", "n2"]) as net:
        for h in net.hosts[1:]:
            h.etc_hosts("10.77.0.1 svc", "10.77.0.2 svc", "10.77.0.3 svc")
            h.black_hole("10.77.0.1")
        with Nodes(tmp, "--nnodes=2", endpoint="svc:29400", conf=CONF) as nodes:
            meet(net, nodes, hosts=net.hosts[1:])


def test_all_interfaces_as_endpoint(tmp):
    with Net(2) as net, Nodes(tmp, "--nnodes=2", endpoint="10.77.0.1:29400", conf=CONF) as nodes:
        workers = meet(net, nodes, (("--rdzv-endpoint=0.0.0.0:29400",
                                     f"--rdzv-conf={CONF},is_host=1"), ()))
        assert {w.address[0] for w in workers} == {"10.77.0.1"}, [w.address for w in workers]


def rank_0_is_at_master_addr(net, workers):
    """Checks that MASTER_ADDR is an address of the host on which rank 0 runs."""
    first = next(w for w in workers if w.rank == 0)
    host = net.hosts[int(first.node[1:])]
    assert {w.address for w in workers} == {(host.addr, first.address[1])}, \
        [(w.node, w.rank, w.address) for w in workers]


def test_rank_0_is_at_master_addr(tmp):
    """JAX, Ray, DeepSpeed and others let rank 0 open ports of its own at MASTER_ADDR."""
    with Net(2, names=["alpha", "zeta"]) as net:
        with Nodes(tmp, "--nnodes=2", endpoint="10.77.0.2:29400", conf=CONF) as nodes:
            workers = meet(net, nodes)
            rank_0_is_at_master_addr(net, workers)
            assert workers[0].address[0] == "10.77.0.1"  # ranks follow the names of the hosts


def test_rank_0_is_at_master_addr_with_an_agent(tmp):
    with Net(3, names=["n1", "n2", "daemon"]) as net:
        with Agent(net.hosts[2], "10.77.0.3:29400"), \
                Nodes(tmp, "--nnodes=1:2", "--max-restarts=1", endpoint="10.77.0.3:29400",
                      conf=f"{CONF},is_host=0") as nodes:
            a = nodes.start("a0", prefix=net.hosts[0].run)
            b = nodes.start("b1", prefix=net.hosts[1].run)
            first = nodes.round(2)
            rank_0_is_at_master_addr(net, first)
            next(w for w in first if w.rank == 1).signal(signal.SIGUSR1)
            second = nodes.round(2)
            rank_0_is_at_master_addr(net, second)
            assert second[0].address != first[0].address
            assert not reaches(net.hosts[1], first[0].address)  # the old store is closed
            a.signal(signal.SIGKILL)  # rank 0 moves to the other host, and the store with it
            third = nodes.round(1)
            assert third[0].address[0] == "10.77.0.2", third[0].address
            nodes.connects(third[0])
            third[0].signal(nodes.WELL)
            assert b.wait() == 0


def reaches(host, address):
    """Returns whether a program on the host can connect to the address."""
    code = f"import socket; socket.create_connection({address!r}, 5)"
    return run([*host.run, "python3", "-c", code]).returncode == 0


def one_node(net, tmp, *options):
    """Starts a job of one node on the first host. Returns the node's tools and its worker."""
    nodes = Nodes(tmp, given=options)
    nodes.start("a", prefix=net.hosts[0].run)
    return nodes, nodes.round(1)[0]


def test_one_node_is_reached_from_other_hosts(tmp):
    with Net(2) as net:
        for options, addr in (
                ((), "10.77.0.1"),
                (("--rdzv-backend=c10d",), "10.77.0.1"),
                (("--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29400"), "10.77.0.1"),
                (("--rdzv-backend=c10d", "--rdzv-endpoint=elsewhere:29400"), "10.77.0.1"),
                (("--local-addr=10.77.0.1",), "10.77.0.1"),
                (("--standalone", "--local-addr=10.77.0.1"), "10.77.0.1")):
            nodes, worker = one_node(net, tmp, *options)
            with nodes:
                assert worker.address[0] == addr, (options, worker.address)
                assert reaches(net.hosts[1], worker.address), options
                worker.signal(nodes.WELL)
                assert nodes.nodes[0].wait() == 0


def test_a_standalone_node_is_not_reached_from_other_hosts(tmp):
    with Net(2) as net:
        nodes, worker = one_node(net, tmp, "--standalone")
        with nodes:
            assert worker.address[0] == "127.0.0.1", worker.address
            assert not reaches(net.hosts[1], ("10.77.0.1", worker.address[1]))
            worker.signal(nodes.WELL)
            assert nodes.nodes[0].wait() == 0


def listeners(host):
    """Returns the (address, port) pairs at which programs on the host listen by TCP."""
    lines = run([*host.run, "ss", "-Hltn"]).stdout.splitlines()
    return sorted(tuple(line.split()[3].rsplit(":", 1)) for line in lines)


def where_two_nodes_listen(net, tmp, endpoint, *given):
    """Runs a job on two hosts. Returns what both hosts listen at while its workers run."""
    with Nodes(tmp, "--nnodes=2", *given, endpoint=endpoint, conf=CONF) as nodes:
        started = [nodes.start(f"n{i}", f"--node-rank={i}", f"--local-addr={h.addr}",
                               prefix=h.run) for i, h in enumerate(net.hosts)]
        workers = nodes.round(2)
        found = [listeners(h) for h in net.hosts]
        for w in workers:
            nodes.connects(w)
            w.signal(nodes.WELL)
        assert [n.wait() for n in started] == [0, 0]
    return found, workers[0].address


def test_an_address_that_the_user_wrote_is_the_only_one(tmp):
    """The coordinator and the stores listen at the address of the command line, not everywhere."""
    with Net(2) as net:
        for given in (("--rdzv-backend=c10d",), ("--rdzv-backend=static",)):
            found, store = where_two_nodes_listen(net, tmp, "10.77.0.1:29400", *given)
            ports = {"29400", str(store[1])}
            assert found == [[("10.77.0.1", p) for p in sorted(ports)], []], (given, found)


def test_local_addr_decides_where_stores_listen(tmp):
    """The endpoint is a name, so the coordinator listens everywhere, but the store does not."""
    with Net(2) as net:
        for host in net.hosts:
            host.etc_hosts("10.77.0.1 head")
        found, store = where_two_nodes_listen(net, tmp, "head:29400", "--rdzv-backend=c10d")
        expected = sorted([("*", "29400"), ("10.77.0.1", str(store[1]))])
        assert found == [expected, []], found
        nodes, worker = one_node(net, tmp, "--local-addr=10.77.0.1")
        with nodes:
            found = listeners(net.hosts[0])
            assert found == [("10.77.0.1", str(worker.address[1]))], found
            worker.signal(nodes.WELL)
            assert nodes.nodes[0].wait() == 0


def beyond(found, first, last, *given):
    """Returns the listeners whose port is neither in the range nor one of those given."""
    allowed = {str(p) for p in (*range(first, last + 1), *given)}
    return [l for l in found if l[1] not in allowed]


def test_port_range_bounds_every_listener(tmp):
    """Two nodes and a crun-agent, over several rounds, listen at no port beyond the range."""
    with Net(3) as net:
        with Agent(net.hosts[2], "10.77.0.3:29400", "--port-range=7000-7009"), \
                Nodes(tmp, "--nnodes=1:2", "--max-restarts=3", "--port-range=7000-7004",
                      endpoint="10.77.0.3:29400", conf=f"{CONF},is_host=0") as nodes:
            started = [nodes.start(f"n{i}", prefix=net.hosts[i].run) for i in range(2)]
            for failures in range(4):
                workers = nodes.round(2)
                found = [l for h in net.hosts for l in listeners(h)]
                assert 7000 <= workers[0].address[1] <= 7004, workers[0].address
                assert beyond(found, 7000, 7009, 29400) == [], found
                workers[1].signal(nodes.WELL if failures == 3 else signal.SIGKILL)
            workers[0].signal(nodes.WELL)
            assert [n.wait() for n in started] == [0, 0]


def test_a_port_range_without_a_free_port(tmp):
    with Net(1) as net, Agent(net.hosts[0], "10.77.0.1:7000"):
        done = run([*net.hosts[0].run, CRUN, "--standalone", "--port-range=7000-7000", "/bin/true"])
        assert done.returncode == 0, done  # the agent has this port at another address only
        done = run([*net.hosts[0].run, CRUN, "--standalone", "--local-addr=10.77.0.1",
                    "--port-range=7000-7000", "/bin/true"])
        assert done.returncode == 1, done
        assert "all ports from 7000 to 7000 are in use; give a larger --port-range" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_the_endpoint_of_one_node_answers(tmp):
    with Net(2) as net:
        for options in (("--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29400"),
                        ("--master-addr=10.77.0.1", "--master-port=29400"),
                        ("--rdzv-backend=static", "--rdzv-endpoint=10.77.0.1:29400")):
            nodes, worker = one_node(net, tmp, *options)
            with nodes:
                status = run([*net.hosts[1].run, CRUN_AGENT, "status", "10.77.0.1:29400"])
                assert "RUNNING" in status.stdout, (options, status)
                keys = run([*net.hosts[1].run, CRUN_STORE, "set", "10.77.0.1:29400", "k", "v"])
                assert keys.returncode == 0, (options, keys)
                worker.signal(nodes.WELL)
                assert nodes.nodes[0].wait() == 0


def test_one_node_runs_though_the_port_of_its_endpoint_is_taken(tmp):
    with Net(1) as net, Agent(net.hosts[0], "10.77.0.1:29400"):
        nodes, worker = one_node(net, tmp, "--rdzv-backend=c10d",
                                 "--rdzv-endpoint=10.77.0.1:29400")
        with nodes:
            worker.signal(nodes.WELL)
            assert nodes.nodes[0].wait() == 0
            assert "another program has this port" in nodes.nodes[0].text, nodes.nodes[0].text


# A client of the store that sets a key and reads it again, by torch's protocol.
CLIENT = """
import socket, struct, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
name = lambda text: struct.pack("=Q", len(text)) + text
try:
    s.sendall(struct.pack("=BI", 0, 0x3C85F7CE))  # VALIDATE, SET, GET
    s.sendall(b"\\1" + name(b"/key") + name(b"value") + b"\\3" + name(b"/key"))
    answer = s.recv(100)
except ConnectionError:
    answer = b""
print("served" if answer == name(b"value") else f"refused {answer}")
"""


def use_store(prefix, address):
    done = run([*prefix, sys.executable, "-c", CLIENT, *map(str, address)])
    assert done.returncode == 0, done
    return done.stdout.split()[0]


def test_a_store_serves_the_nodes_of_its_round(tmp):
    """A stranger is refused in each round; a node is served once it is in the round."""
    with Net(4) as net:
        stranger = net.hosts[3]
        with Agent(net.hosts[2], "10.77.0.3:29400"), \
                Nodes(tmp, "--nnodes=1:2", "--max-restarts=1", "--store-allow=nodes",
                      endpoint="10.77.0.3:29400", conf=f"{CONF},is_host=0") as nodes:
            a = nodes.start("a0", prefix=net.hosts[0].run)
            first = nodes.round(1)
            store = first[0].address
            assert store[0] == "10.77.0.1", store
            assert use_store(net.hosts[0].run, store) == "served"
            assert use_store(net.hosts[0].run, ("10.77.0.1", store[1])) == "served"
            assert use_store(net.hosts[1].run, store) == "refused"   # not in the round yet
            assert use_store(stranger.run, store) == "refused"
            b = nodes.start("b1", prefix=net.hosts[1].run)
            second = nodes.round(2)
            store = second[0].address
            assert use_store(net.hosts[1].run, store) == "served"
            assert use_store(stranger.run, store) == "refused"
            next(w for w in second if w.node == "b1").signal(signal.SIGUSR1)
            b.signal(signal.SIGKILL)
            third = nodes.round(1)
            store = third[0].address
            assert use_store(net.hosts[1].run, store) == "refused"   # not in the round any more
            assert use_store(net.hosts[0].run, store) == "served"
            third[0].signal(nodes.WELL)
            assert a.wait() == 0
            assert "closed the connection of '10.77.0.4:" in a.text, a.text
            assert "belongs to no node of the round" in a.text, a.text


def test_store_allow_of_a_hosting_node(tmp):
    """The coordinator's node has the store; its ports still take nodes of the job."""
    with Net(3) as net:
        for backend in ("c10d", "static"):
            for allow, answer in (("nodes", "refused"), ("10.77.0.3,fd00::/8", "served"),
                                  ("10.77.0.2/31", "served"), ("any", "served")):
                with Nodes(tmp, "--nnodes=2", f"--store-allow={allow}", "--rdzv-conf=" + CONF,
                           given=("--rdzv-id=job", f"--rdzv-backend={backend}",
                                  "--rdzv-endpoint=10.77.0.1:29400")) as nodes:
                    started = [nodes.start(f"n{i}", f"--node-rank={i}", prefix=h.run)
                               for i, h in enumerate(net.hosts[:2])]
                    workers = nodes.round(2)
                    for host in net.hosts[:2]:
                        assert use_store(host.run, workers[0].address) == "served"
                    assert use_store(net.hosts[2].run, workers[0].address) == answer, allow
                    assert use_store(net.hosts[2].run, ("10.77.0.1", 29400)) == answer, allow
                    for w in workers:
                        w.signal(nodes.WELL)
                    assert [n.wait() for n in started] == [0, 0]


def test_a_secret_restricts_the_store(tmp):
    """In a job with a secret, --store-allow=nodes is the default."""
    token = tmp / "token"
    token.write_text("0123456789abcdef" * 4 + "\n")
    token.chmod(0o600)
    with Net(3) as net:
        for options, answer in (((), "refused"), (("--store-allow=any",), "served")):
            with Nodes(tmp, "--nnodes=2", f"--rdzv-token-file={token}", *options,
                       endpoint="10.77.0.1:29400", conf=CONF) as nodes:
                started = [nodes.start(f"n{i}", prefix=h.run)
                           for i, h in enumerate(net.hosts[:2])]
                workers = nodes.round(2)
                for host in net.hosts[:2]:
                    assert use_store(host.run, workers[0].address) == "served"
                assert use_store(net.hosts[2].run, workers[0].address) == answer, options
                for w in workers:
                    w.signal(nodes.WELL)
                assert [n.wait() for n in started] == [0, 0]
        nodes, worker = one_node(net, tmp, "--rdzv-backend=c10d", f"--rdzv-token-file={token}")
        with nodes:
            assert use_store(net.hosts[1].run, worker.address) == "refused"
            worker.signal(nodes.WELL)
            assert nodes.nodes[0].wait() == 0


SILENT = """
import socket, sys, time
began = time.monotonic()
sockets = [socket.create_connection((sys.argv[1], int(p)), 60) for p in sys.argv[2:]]
for s in sockets:
    assert s.recv(1) == b""
print(time.monotonic() - began)
"""


def test_a_silent_stranger_is_ended(tmp):
    """At the store and at the coordinator's port, though both serve everybody."""
    with Net(3) as net:
        with Nodes(tmp, "--nnodes=2", endpoint="10.77.0.1:29400", conf=CONF) as nodes:
            started = [nodes.start(f"n{i}", prefix=h.run) for i, h in enumerate(net.hosts[:2])]
            workers = nodes.round(2)
            address = workers[0].address
            done = run([*net.hosts[2].run, sys.executable, "-c", SILENT, *map(str, address),
                        "29400"])
            assert done.returncode == 0, done
            assert 25 < float(done.stdout) < 55, done
            assert use_store(net.hosts[2].run, address) == "served"
            for w in workers:
                w.signal(nodes.WELL)
            assert [n.wait() for n in started] == [0, 0]


def test_one_node_with_store_allow(tmp):
    with Net(2) as net:
        nodes, worker = one_node(net, tmp, "--local-addr=10.77.0.1", "--store-allow=nodes")
        with nodes:
            assert use_store(net.hosts[0].run, worker.address) == "served"
            assert use_store(net.hosts[1].run, worker.address) == "refused"
            worker.signal(nodes.WELL)
            assert nodes.nodes[0].wait() == 0


if __name__ == "__main__":
    run_tests(globals())
