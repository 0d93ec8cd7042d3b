#!/usr/bin/env python3
# timeout: 300
"""Each of the three programs either does its job or ends with a clear error when an allocation
fails."""
import pathlib
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import crun_test  # noqa: E402
from allocation_failures import DEADLINE_S, FAILING, for_each_allocation  # noqa: E402
from crun_test import BUILD, SCALE, TIMEOUT_S, run_tests, signal, skip  # noqa: E402
from free_port import free_port  # noqa: E402
from rdzv_raw import SUCCEEDED, Member  # noqa: E402
from secure_raw import Refused  # noqa: E402
from store_raw import Modern, Server, listed, text  # noqa: E402

if BUILD.name == "tsan":
    skip("thousands of short processes with one thread each; the ASan build runs them")
CRUN, STORE, AGENT = (FAILING / name for name in ("crun", "crun-store", "crun-agent"))


def shell(words):
    return ["--no-python", "/bin/sh", "-c", words.replace("$", "$$")]


# ---- crun on one node ----

# A node whose message could not be sent for lack of memory loses its place when its lease is over.
SHORT_LEASE = "keep_alive_interval=0.5,keep_alive_max_attempt=4"


# read_timeout in seconds. It must not expire before the node has tried to send something, because
# stderr would not say in that case that memory is short.
READ_TIMEOUT_S = 0.5 * min(SCALE, 4)


def alone(case):
    """Returns the options of a job on one node. In cases where all later allocations fail, too
    ("+"), the node ends only when a time limit of the rendezvous expires, so these limits are set
    to small values."""
    limits = f"join_timeout=1,read_timeout={READ_TIMEOUT_S},keep_alive_interval=0.1," \
             "keep_alive_max_attempt=3"
    return ["--standalone", "--nproc-per-node=2",
            f"--rdzv-conf={limits if case.wish.endswith('+') else SHORT_LEASE}"]


def start(case):
    return case.run([CRUN, *alone(case), f"--log-dir={case.folder}/logs", "--tee=3",
                     *shell("echo out; echo err >&2")])


def restart(case):
    return case.run([CRUN, *alone(case), "--max-restarts=1",
                     *shell('exit "$((1 - TORCHELASTIC_RESTART_COUNT))"')])


def report(case):
    """The workers write error files and fail. crun must exit with 1 and report either this failure
    or the lack of memory."""
    record = '{"message": {"message": "broken", "extraInfo": {"timestamp": "1"}}}'
    status, err = case.run([CRUN, *alone(case),
                            *shell(f"echo '{record}' >$TORCHELASTIC_ERROR_FILE; exit 3")])
    assert status == 1, (status, err)
    return (0, err) if "broken" in err or "exit code 3" in err else (1, err)


def test_start(tmp):
    for_each_allocation(tmp, start, CRUN, stride=6)


def test_restart(tmp):
    for_each_allocation(tmp, restart, CRUN, stride=6)


def test_report(tmp):
    for_each_allocation(tmp, report, CRUN, stride=6)


# ---- two nodes: the allocator of one of them fails ----

def two_nodes(case, hosts, *more):
    """Runs a round, a restart and a good end on two nodes. Returns the exit status of the node
    whose allocator fails, and the stderr of both: a hosting node that lacks memory may refuse the
    other node, so either may report the error."""
    words = [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=job", "--rdzv-backend=c10d",
             "--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", *more,
             *shell('[ "$RANK.$TORCHELASTIC_RESTART_COUNT" != 0.0 ]')]
    conf = "--rdzv-conf=join_timeout=3,read_timeout=3,is_host="
    failing = case.start([CRUN, f"{conf}{int(hosts)}", *words])
    other = case.start([crun_test.CRUN, f"{conf}{int(not hosts)}", *words],
                       case.plain_environment())
    try:
        status, err = case.finish(failing)
        if status != 0:
            other.send_signal(signal.SIGTERM)
        other_status, other_err = case.finish(other)
    finally:
        for node in failing, other:
            node.kill()
            node.wait()
    assert status != 0 or other_status == 0, \
        f"the other node ended with {other_status}: {other_err}"
    return status, f"{err}--- the other node:\n{other_err}"


def hosting_node(case):
    return two_nodes(case, hosts=True)


def joining_node(case):
    return two_nodes(case, hosts=False)


SECRET = "a secret of more than 32 characters"


def token_file(folder):
    path = folder / "token"
    path.touch(0o600)
    path.write_text(SECRET)
    return path


def hosting_node_with_a_secret(case):
    return two_nodes(case, True, f"--rdzv-token-file={token_file(case.folder)}")


def joining_node_with_a_secret(case):
    return two_nodes(case, False, f"--rdzv-token-file={token_file(case.folder)}")


def test_hosting_node_with_a_secret(tmp):
    for_each_allocation(tmp, hosting_node_with_a_secret, CRUN, stride=40)


def test_joining_node_with_a_secret(tmp):
    for_each_allocation(tmp, joining_node_with_a_secret, CRUN, stride=40)


def test_hosting_node(tmp):
    for_each_allocation(tmp, hosting_node, CRUN, stride=10)


def test_joining_node(tmp):
    for_each_allocation(tmp, joining_node, CRUN, stride=10)


# ---- crun-store ----

class Peer:
    """A stand-in for store_raw's Server, with the port and connect() that its clients need."""

    def __init__(self, address):
        self.port = int(address.rsplit(":", 1)[1])

    def connect(self, host):
        connection = Server.connect(self, host)
        connection.settimeout(DEADLINE_S)
        return connection


def first_line(process):
    """Returns the address that a server prints, or "" if the server has ended."""
    return process.stdout.readline().strip()


def end(case, process):
    process.send_signal(signal.SIGTERM)
    return case.finish(process)


def use_store(server, name):
    """Sends every operation once. All keys begin with `name`, so that two clients use different
    keys."""
    c = Modern(server)
    c.set(f"{name}key", "one")
    assert c.get(f"{name}key") == b"one"
    c.say("append", text(f"/{name}key"), text("x" * 100000))
    c.say("compare_set", text(f"/{name}key"), text("other"), text("new"))
    c.value()
    c.add(f"{name}count", 1)
    c.wait(f"{name}key", f"{name}count")
    c.byte()
    c.check(f"{name}key", "absent")
    c.say("multi_set", struct.pack("<Q", 2), *map(text, (f"/{name}a", "1", f"/{name}b", "2")))
    c.say("multi_get", listed([f"/{name}a", f"/{name}b"]))
    assert c.value() + c.value() == b"12"
    for value in "first", "second":
        c.say("push", text(f"/{name}queue"), text(value))
    c.say("len", text(f"/{name}queue"))
    assert c.number() == 2
    for left, value in (2, b"first"), (1, b"second"):
        c.say("pop", text(f"/{name}queue"))
        assert c.number() == left and c.value() == value
    c.say("list_keys")
    for _ in range(c.number()):
        c.value()
    c.num_keys()
    assert c.delete(f"{name}a") == 1
    c.close()


def wait_in_store(server, name):
    """One client waits for a key that another one sets."""
    waiter, setter = Modern(server), Modern(server)
    waiter.wait(f"{name}late")
    setter.set_for_all(f"{name}late", "x")
    waiter.byte()
    for c in waiter, setter:
        c.close()


def store(case):
    """Lets three clients use the server in turn. If the server lacks memory it may drop a client's
    connection, but it must go on and serve the next client correctly."""
    process = case.start([STORE, "serve", "--host", "127.0.0.1", "--port", "0"])
    address = first_line(process)
    if address == "":
        return case.finish(process)
    server, dropped = Peer(address), 0
    for n, use in enumerate([use_store, wait_in_store, use_store]):
        try:
            use(server, f"{n}-")
        except (EOFError, ConnectionError):
            dropped += 1
    allowed = 3 if case.wish.endswith("+") else 0 if case.wish == "0" else 1
    assert dropped <= allowed, f"{dropped} clients were dropped"
    return end(case, process)


def test_store(tmp):
    for_each_allocation(tmp, store, STORE)


def prints_all_or_nothing(case, argv):
    """Runs a command and checks that it has printed its whole answer if its exit status is 0."""
    status, err = case.run(argv)
    shape = re.sub(r"[0-9.]+", "0", case.out)
    if case.wish == "0":
        prints_all_or_nothing.shape = shape
    elif status == 0:
        assert shape == prints_all_or_nothing.shape, f"status 0, but printed only\n{case.out}"
    return status, err


COMMANDS = (["set", "AT", "key", "value"], ["get", "AT", "key"], ["get", "--json", "AT", "key"],
            ["add", "AT", "count", "1"], ["wait", "AT", "key", "count"], ["keys", "AT"],
            ["keys", "--json", "AT"], ["stat", "AT"], ["stat", "--json", "AT"], ["ping", "AT"],
            ["delete", "AT", "gone"], ["--help"])


def test_store_commands(tmp):
    with Server() as server:
        client = Modern(server)
        client.set_for_all("key", "x" * 5000)
        for n, words in enumerate(COMMANDS):
            words = [server.address if w == "AT" else w for w in words]

            def store_command(case):
                client.set_for_all("gone", "soon")
                return prints_all_or_nothing(case, [STORE, *words])

            folder = tmp / str(n)
            folder.mkdir()
            for_each_allocation(folder, store_command, STORE)


# ---- crun-agent ----

def agent(case, *more, secret=None):
    """Runs one job with one node at crun-agent, from the node's JOIN to the good end. If the agent
    lacks memory, it may refuse or disconnect the node, but it must live until SIGTERM."""
    process = case.start([AGENT, "serve", "--listen=127.0.0.1:0", *more])
    address = first_line(process)
    if address == "":
        return case.finish(process)
    try:
        run_job(address, secret)
    except (AssertionError, ConnectionError, Refused):
        assert case.wish != "0", "a job failed that has memory"
    return end(case, process)


def agent_with_a_secret(case):
    return agent(case, "--rdzv-token-file", token_file(case.folder), secret=SECRET)


def run_job(address, secret=None, run_id="job"):
    node = Member(address, timeout=DEADLINE_S, secret=secret, run_id=run_id)
    node.send_join()
    for name in "WELCOME", "ACCEPTED", "ROUND":
        node.expect(name)
    node.send("SUCCEEDED", round=0)
    assert node.expect("END")["outcome"] == SUCCEEDED
    node.close()


def test_agent(tmp):
    for_each_allocation(tmp, agent, AGENT)


def test_agent_with_a_secret(tmp):
    for_each_allocation(tmp, agent_with_a_secret, AGENT)


def relay(case):
    """Runs the jobs of two nodes, one after the other, through a relay that lacks memory. The relay
    may refuse one of the nodes, but it must serve the next one, and live until SIGTERM."""
    process = case.start([AGENT, "relay", relay.upstream, "--listen=127.0.0.1:0"])
    address = first_line(process)
    if address == "":
        return case.finish(process)
    refused = 0
    for n in range(2):
        try:
            run_job(address, run_id=f"{case.mark}-{n}")
        except (AssertionError, ConnectionError):
            refused += 1
    allowed = 2 if case.wish.endswith("+") else 0 if case.wish == "0" else 1
    assert refused <= allowed, f"{refused} nodes were refused"
    return end(case, process)


def test_relay(tmp):
    server = crun_test.start([BUILD / "bin" / "crun-agent", "serve", "--listen=127.0.0.1:0"])
    try:
        relay.upstream = first_line(server)
        for_each_allocation(tmp, relay, AGENT)
    finally:
        server.kill()
        server.communicate()


def test_agent_commands(tmp):
    server = crun_test.start([BUILD / "bin" / "crun-agent", "serve", "--listen=127.0.0.1:0"])
    try:
        address = first_line(server)
        node = Member(address, timeout=TIMEOUT_S)
        node.send_join()
        for name in "WELCOME", "ACCEPTED", "ROUND":
            node.expect(name)

        def status(case):
            return prints_all_or_nothing(case, [AGENT, "status", address])

        def status_json(case):
            return prints_all_or_nothing(case, [AGENT, "status", "--json", address])

        def dump(case):
            return case.run([AGENT, "dump", address, "--job", "job"])

        for command in status, status_json, dump:
            folder = tmp / command.__name__
            folder.mkdir()
            for_each_allocation(folder, command, AGENT)
    finally:
        server.kill()
        server.communicate()


if __name__ == "__main__":
    run_tests(globals())
