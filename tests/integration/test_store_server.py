#!/usr/bin/env python3
# timeout: 300
"""crun-store serve over real sockets: handshakes and framing, what stays open and what is closed,
both generations on one port, the program's own behaviour."""
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN_STORE, ROOT, TIMEOUT_S, run, run_tests, start
from free_port import free_port
from store_raw import SHADOW, VALIDATE, Legacy, Modern, Raw, Server, listed, stat, text, wait_for

PING = bytes.fromhex("0d39300000")


# ---- the golden bytes ----

def play(path, server, split):
    peers = {}
    for line in (ROOT / path).read_text().splitlines():
        if line.startswith("#"):
            continue
        name, peer, request, _, *replies = line.split()
        if peer not in peers:
            peers[peer] = Raw(server)
        c = peers[peer]
        raw = b"" if request == "-" else bytes.fromhex(request)
        for piece in split(raw):
            c.send(piece)
        wanted = [b"" if r == "-" else bytes.fromhex(r) for r in replies if r != "or"]
        got = c.receive(len(wanted[0]))
        assert got in wanted, f"{path} {name}: {got.hex()} instead of {wanted[0].hex()}"
    for c in peers.values():
        c.close()


def whole(raw):
    return [raw] if raw else []


def single_bytes(raw):
    return [raw[i:i + 1] for i in range(len(raw))]


def test_golden_bytes(tmp):
    for path in ("tests/golden/store_legacy.txt", "tests/golden/store_modern.txt"):
        for split in (whole, single_bytes):
            with Server() as server:
                play(path, server, split)


# ---- handshake ----

def test_validate_and_ping(tmp):
    with Server() as server:
        a = Raw(server, hello=VALIDATE)
        a.send(PING)
        assert a.receive(4) == PING[1:]
        b = Raw(server, hello=VALIDATE + PING)
        assert b.receive(4) == PING[1:]
        c = Raw(server)
        for byte in VALIDATE + PING:
            c.send(bytes([byte]))
        assert c.receive(4) == PING[1:]
        for client in (a, b, c):
            assert client.silent()


def test_wrong_magic_and_unknown_operations_close(tmp):
    with Server() as server:
        bystander = Modern(server)
        for bad in (bytes.fromhex("00cef7853d") + b"\x07" * 8, VALIDATE + b"\x63",
                    VALIDATE + VALIDATE,
                    PING, b"\x09" + b"\0" * 20, VALIDATE + b"\x13"):
            c = Raw(server, hello=bad)
            c.closed()
            assert bystander.num_keys() == 0, bad
    assert server.err.count("closed the connection of '127.0.0.1:") == 6, server.err


def test_first_bytes_choose_the_numbering(tmp):
    with Server() as server:
        joined = Legacy(server)
        joined.say("add", text("init/"), struct.pack("<q", 1))
        assert joined.number() == 1
        setter = Legacy(server)
        setter.set("k", "v")  # 00 02 00 …: no VALIDATE
        assert setter.get("k") == b"v"
        modern = Modern(server)
        assert modern.get("k") == b"v"
        modern.set("k", "w")
        assert modern.num_keys() == 2
        assert setter.get("k") == b"w" and joined.get("k") == b"w"


def test_silent_connections_stay(tmp):
    """torch 1.13.1 opens a second connection and sends nothing on it. The server must keep such a
    connection, and at its end close it by FIN, not RST."""
    server = Server()
    silent = [Raw(server) for _ in range(20)] + [Modern(server)]
    active = Modern(server)
    begin = time.monotonic()
    while time.monotonic() - begin < 5:
        assert active.add("n", 1) > 0
        time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    for c in silent + [active]:
        assert c.closed(), "reset instead of FIN"
    assert server.process.wait(TIMEOUT_S) == 0
    server.process.communicate()


def test_pipelining_answers_in_order(tmp):
    with Server() as server:
        c = Modern(server)
        n = 20000
        receiver = threading.Thread(
            target=lambda: [None for i in range(n) if c.number() == i + 1 or 1 / 0], daemon=True)
        receiver.start()
        c.send((b"\x04" + text("/n") + struct.pack("<q", 1)) * n)
        receiver.join(TIMEOUT_S)
        assert not receiver.is_alive()
        assert c.get("n") == str(n).encode()


def test_empty_value_is_prompt(tmp):
    with Server() as server:
        for c in (Modern(server), Legacy(server)):
            c.set("e", "")
            spent = []
            for _ in range(20):
                begin = time.monotonic()
                assert c.get("e") == b""
                spent.append(time.monotonic() - begin)
            assert min(spent) < 0.02, spent


def test_set_then_close_is_applied(tmp):
    with Server() as server:
        for i in range(50):
            c = Modern(server)
            c.set(f"k{i}", "v")
            c.close()
        c = Modern(server)
        c.wait(*[f"k{i}" for i in range(50)])
        assert c.byte() == 0


# ---- sizes ----

def test_sizes_up_to_torchs_limits(tmp):
    with Server() as server:
        for c in (Modern(server), Legacy(server)):
            for size in (0, 1, 1 << 10, 32767, 32768, 32769, 1 << 20, 8 << 20, 13 << 20, 6 << 20):
                value = random.Random(size).randbytes(size)
                c.set("v", value)
                assert c.get("v") == value, size
            for size in (8191, 8192, 64 << 10):  # torch's servers of 1.13 and "classic" take any
                key = "k" * size
                c.set(key, "v")
                assert c.get(key) == b"v"
            c.set("there", "v")
            assert c.check(*["there"] * 131072) == 0


def test_a_key_over_64_kib_closes(tmp):
    with Server() as server:
        c = Modern(server)
        c.send(b"\x03" + text("/" + "k" * ((64 << 10) + 1)))
        c.closed()
    assert "key too long" in server.err, server.err


def test_a_value_in_any_pieces(tmp):
    """A SET between other requests arrives in two pieces, cut near the length field, in the body
    and near the body's end."""
    with Server() as server:
        c = Modern(server)
        value = random.Random(1).randbytes(200_000)
        request = b"\x07" + b"\x01" + text("/v") + text(value) + b"\x03" + text("/v") + b"\x07"
        for cut in (1, 2, 9, 11, 12, 19, 20, 21, 5000, 32787, 199_999, 200_019, 200_020, 200_021):
            c.send(request[:cut])
            time.sleep(0.01)
            c.send(request[cut:])
            c.number()
            assert c.value() == value, cut
            assert c.number() == 1


def test_compare_set_answers_any_size(tmp):
    """The server copies small replies and sends big ones from the stored value. Both must have the
    right bytes."""
    with Server() as server:
        c, before = Modern(server), stat(server)["memory"]
        for size in (0, 1, 16383, 16384, 32767, 32768, 200000, 5 << 20):
            old, new = os.urandom(size), os.urandom(size + 1)
            for expected, desired, answer in ((b"", old, old), (old, new, new), (old, old, new)):
                c.say("compare_set", text("/cs"), text(expected), text(desired))
                assert c.value() == answer, (size, expected[:8], desired[:8])
            assert c.get("cs") == new and c.delete("cs") == 1
            # The key is absent, so the reply is the expected value of the request.
            c.say("compare_set", text("/cs"), text(new), text(old))
            assert c.value() == new
        c.close()
        wait_for(lambda: stat(server)["memory"] == before, "all to be freed")


def asked(server, key):
    """Requests `key` and waits for the first byte of the reply, but reads none. Returns the
    client."""
    c = Modern(server)
    c.send(b"\x03" + text(key))
    c.socket.recv(1, socket.MSG_PEEK)
    return c


def test_unread_replies_keep_their_bytes(tmp):
    """A reply has the bytes that the value had at the request, even if the value is replaced,
    appended to or deleted before the client reads. Big values reach the socket by reference, so
    the server must not change their memory."""
    rng = random.Random(7)
    with Server() as server:
        writer = Modern(server)
        for size in (1 << 10, 100 << 10, 128 << 10, 131 << 10, (1 << 20) - 1, 3 << 20, 6 << 20):
            old, new = rng.randbytes(size), rng.randbytes(size)
            writer.set("k", b"")
            writer.set_for_all("k", old)
            replaced = asked(server, "/k")
            writer.set_for_all("k", new)
            for i in range(20):  # one of these values may get the memory of the old one
                writer.set(f"other{i}", new)
            writer.set_for_all("k", new[:-100])
            appended = asked(server, "/k")
            writer.send(b"\x09" + text("/k") + text("A" * 100))
            assert writer.num_keys() > 0
            deleted = asked(server, "/k")
            writer.delete("k")
            writer.set_for_all("k2", rng.randbytes(size))
            assert replaced.value() == old, size
            assert appended.value() == new[:-100], size
            assert deleted.value() == new[:-100] + b"A" * 100, size


def test_big_values_without_a_spare_descriptor(tmp):
    value = random.Random(8).randbytes(3 << 20)
    with Server() as server:
        c = Modern(server)
        c.set_for_all("k", value)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (server.descriptors(),) * 2)
        for _ in range(3):
            assert c.get("k") == value


def test_a_long_list_of_keys(tmp):
    """The server makes the list in pieces. Later requests of the same client are answered after it,
    other clients are served meanwhile, and if the client disconnects, the list is freed."""
    with Server() as server:
        c, other, gone = Modern(server), Modern(server), Modern(server)
        wanted = {b"/key%d" % i for i in range(200_000)}
        keys = sorted(wanted)
        for half in (keys[::2], keys[1::2]):
            c.send(b"\x0b" + struct.pack("<Q", 100_000)
                   + b"".join(text(k) + text("v") for k in half))
        assert c.num_keys() == 200_000
        memory = stat(server)["memory"]
        gone.send(b"\x11")
        gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        c.send(b"\x11\x07\x11" + b"\x04" + text("/n") + struct.pack("<q", 1))
        for _ in range(30):
            assert other.check("key0", "absent") == 1
        for turn in range(2):
            assert {c.value() for _ in range(c.number())} == wanted
            if turn == 0:
                assert c.number() == 200_000
        assert c.number() == 1
        c.delete("n")
        wait_for(lambda: stat(server)["memory"] == memory, "the memory of the lists to be free")


def test_absurd_lengths_close(tmp):
    with Server() as server:
        before = server.resident_kib()
        for n in (2**64 - 1, 2**63, 2**40, (64 << 20) + 1):
            for head in (b"\x03", b"\x01" + text("/k"), b"\x06", b"\x0b", b"\x0e" + text("/q"),
                         b"\x02" + text("/k") + text("e")):
                c = Modern(server)
                c.send(head + struct.pack("<Q", n))
                c.closed()
        assert server.resident_kib() - before < SHADOW * 4096
        assert Modern(server).num_keys() == 0


def test_half_a_multi_set_has_no_effect(tmp):
    """While only half of a MULTI_SET has arrived, other clients must see none of its keys."""
    with Server() as server:
        writer, waiter, other = Modern(server), Modern(server), Modern(server)
        pairs = b"".join(text("/k%d" % i) + text("v%d" % i) for i in range(1000))
        request = b"\x0b" + struct.pack("<Q", 1000) + pairs
        waiter.wait("k0")
        writer.send(request[:len(request) // 2])
        wait_for(lambda: stat(server)["bytes_in"] >= len(request) // 2, "the first half to be read")
        assert other.num_keys() == 0 and other.check("k0") == 1
        assert waiter.silent()
        writer.send(request[len(request) // 2:])
        assert waiter.byte() == 0
        assert other.num_keys() == 1000 and other.get("k999") == b"v999"


# ---- waits over the wire ----

def test_many_waiters_one_set(tmp):
    with Server() as server:
        waiters = [Modern(server) if i % 2 else Legacy(server) for i in range(300)]
        for w in waiters:
            w.wait("go", "set")
        wait_for(lambda: stat(server)["waiting_clients"] == 300, "300 waiters")
        c = Modern(server)
        c.set("go", "1")
        c.set("set", "1")
        assert [w.byte() for w in waiters] == [0] * 300
        assert all(w.silent() for w in waiters)


def test_cancel_races_with_set(tmp):
    """A wait and its cancel are answered by 01, or by 00 01 if the SET came first. No other bytes
    may precede the next reply."""
    with Server() as server:
        waiter, setter = Modern(server), Modern(server)
        seen = {b"\x01": 0, b"\x00\x01": 0}
        for i in range(10000):
            key = f"k{i}"
            waiter.wait(key)
            if i % 3 == 0:
                setter.set(key, "v")
                waiter.say("cancel")
            elif i % 3 == 1:
                waiter.say("cancel")
                setter.set(key, "v")
            else:
                threading.Thread(target=setter.set, args=(key, "v")).start()
                waiter.say("cancel")
            got = waiter.receive(1)
            if got == b"\x00":
                got += waiter.receive(1)
            seen[got] += 1  # a KeyError means an illegal answer
            assert waiter.add("n", 1) == i + 1
        assert sum(seen.values()) == 10000
        assert seen[b"\x01"] > 0


def test_legacy_wait_given_up(tmp):
    with Server() as server:
        old, c = Legacy(server), Modern(server)
        old.wait("late")
        assert old.num_keys() == 0
        c.set("late", "v")
        assert c.num_keys() == 1
        assert old.num_keys() == 1  # no byte for the cancelled wait precedes it
        assert old.silent()


def test_gone_waiters_leave_nothing(tmp):
    with Server() as server:
        c = Modern(server)
        c.set("base", "v")
        memory = stat(server)["memory"]
        for i in range(10000):
            w = Modern(server)
            w.wait("missing", "other")
            if i % 2:
                w.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            w.close()
        wait_for(lambda: stat(server)["waiting_clients"] == 0, "every waiter to be forgotten")
        wait_for(lambda: stat(server)["memory"] == memory, "the waiters' memory to be free")
        c.set("missing", "v")
        c.set("other", "v")
        assert c.num_keys() == 3


def test_half_closed_waiter_is_gone(tmp):
    with Server() as server:
        w, c = Modern(server), Modern(server)
        w.wait("k")
        w.socket.shutdown(socket.SHUT_WR)
        wait_for(lambda: stat(server)["waiting_clients"] == 0, "the wait to end")
        c.set("k", "v")
        assert w.socket.recv(10) == b""


def test_half_closed_sender_gets_its_answers(tmp):
    with Server() as server:
        c = Modern(server)
        big = bytes(3 << 20)
        c.set("big", big)
        c.send((b"\x03" + text("/big")) * 3)
        c.socket.shutdown(socket.SHUT_WR)
        for _ in range(3):
            assert c.value() == big
        assert c.socket.recv(1) == b""


def test_watch_key(tmp):
    with Server() as server:
        callback, c = Legacy(server), Legacy(server)
        callback.say("watch", text("/w"))
        assert callback.byte() == 3
        c.set("w", "a")
        assert callback.push() == b"\1/wa"
        assert c.add("w2", 1) == 1
        c.delete("w")
        assert callback.push() == b"\2/wa"


# ---- the program ----

def test_reachable_under_every_address(tmp):
    with Server(host=None) as server:
        assert server.address == f"[::]:{server.port}", server.address
        hosts = ["127.0.0.1", "::ffff:127.0.0.1"]
        if os.path.exists("/proc/net/if_inet6") and "00000001" in open("/proc/net/if_inet6").read():
            hosts.append("::1")
        for i, host in enumerate(hosts):
            assert Modern(server, host).add("n", 1) == i + 1
    with Server(host="127.0.0.1") as server:  # listens at this address only
        try:
            Raw(server, "127.0.0.2").close()
            raise AssertionError("listens beyond --host")
        except ConnectionRefusedError:
            pass


def test_bad_command_lines(tmp):
    lines = {
        ("serve", "--foo"): "unknown option '--foo'",
        ("serve", "--port"): "--port needs a value: --port PORT",
        ("serve", "--port", "66000"): "cannot use '66000' for --port",
        ("serve", "--port=x"): "cannot use 'x' for --port",
        ("serve", "--max-memory", "12Q"): "cannot use '12Q' for --max-memory",
        ("serve", "--max-memory", "0"): "cannot use '0' for --max-memory",
        ("serve", "--max-list", "0"):
            "cannot use '0' for --max-list: give a whole number from 1 to 16777216",
        ("serve", "extra"): "unexpected argument 'extra'",
        ("nonsense",): "unknown command 'nonsense'",
        (): "no command given",
    }
    for args, wanted in lines.items():
        done = run([CRUN_STORE, *args])
        assert done.returncode == 2 and done.stdout == "", done
        assert wanted in done.stderr and "--help'" in done.stderr, done
        assert done.stderr.count("\n") == 1, done


def test_cannot_listen(tmp):
    with Server() as server:
        done = run([CRUN_STORE, "serve", "--host", "127.0.0.1", "--port", server.port])
        assert done.returncode == 1 and done.stdout == "", done
        wanted = f"cannot listen on '127.0.0.1:{server.port}': Address already in use"
        assert wanted in done.stderr, done
    done = run([CRUN_STORE, "serve", "--host", "no.such.host.invalid"])
    assert done.returncode == 1 and "no.such.host.invalid" in done.stderr, done


def test_readiness_for_systemd(tmp):
    for name in (str(tmp / "notify"), "@crun-test-" + str(os.getpid())):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind("\0" + name[1:] if name[0] == "@" else name)
            s.settimeout(TIMEOUT_S)
            server = start([CRUN_STORE, "serve", "--host", "127.0.0.1"],
                           env={**os.environ, "NOTIFY_SOCKET": name})
            assert s.recv(100) == b"READY=1"
            server.terminate()
            assert s.recv(100) == b"STOPPING=1"
            assert server.wait(TIMEOUT_S) == 0
            server.communicate()


def test_ends_on_signals_and_the_port_is_free(tmp):
    for number in (signal.SIGTERM, signal.SIGINT):
        # not an ephemeral port: a connection of another program could get it between the two
        server = Server("--port", str(free_port()))
        c = Modern(server)
        c.wait("never")
        server.process.send_signal(number)
        assert server.process.wait(TIMEOUT_S) == 0
        assert c.socket.recv(1) == b""
        c.close()
        again = Server("--port", str(server.port))
        assert Modern(again).num_keys() == 0
        again.__exit__()
        server.process.communicate()


def test_stat(tmp):
    with Server() as server:
        c, w = Modern(server), Modern(server)
        c.set('odd"\\\n\xff', "v")
        c.add("n", 1)
        c.say("push", text("/q"), text("job"))
        w.say("wait", listed([b"/x\0\xff\"", "/n", "/y"]))
        wait_for(lambda: stat(server)["waiting_clients"] and stat(server)["queues"] == 1,
                 "the waiter, and the push of the other client")
        seen = stat(server)
        assert seen["clients"] == 2 and seen["keys"] == 2 and seen["queues"] == 1, seen
        assert seen["operations_by_kind"] == {"set": 1, "add": 1, "queue_push": 1, "wait": 1}, seen
        assert seen["value_bytes"] == 5 and seen["operations"] == 4, seen
        waiting = seen["waiting"][0]
        host, port = w.socket.getsockname()
        assert waiting["peer"] == f"{host}:{port}" and waiting["kind"] == "wait", waiting
        assert waiting["missing"] == 2 and waiting["for_ms"] >= 0, waiting
        assert waiting["keys"] == ["/x\0\xff\"", "/y"], waiting
        bad = Raw(server, hello=b"CRS1?")
        assert bad.closed()


def switches(pid):
    """Returns the voluntary context switches of the server's main thread. If two values are equal,
    the thread has not woken up in between. Preemption by other processes is not counted."""
    status = pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return [line for line in status.splitlines() if line.startswith("voluntary_ctxt")]


def test_idle_server_does_nothing(tmp):
    with Server() as server:
        clients = [Modern(server) for _ in range(100)]
        for c in clients:
            c.wait("never")
        wait_for(lambda: stat(server)["waiting_clients"] == 100, "100 waiters")

        def at_rest():
            before = switches(server.process.pid)
            time.sleep(3)  # the server must not wake up in these seconds
            return switches(server.process.pid) == before
        wait_for(at_rest, "the server to go to sleep after its last answer, and sleep")


if __name__ == "__main__":
    run_tests(globals())
