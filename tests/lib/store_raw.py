"""Runs our store's server as a process, and talks to it with clients that send given bytes.

    with Server("--max-clients", "5") as server:
        c = Modern(server)
        c.set("k", "v")
        assert c.get("k") == b"v"
"""
import socket
import struct

from crun_test import BUILD, CRUN_STORE, TIMEOUT_S, start, wait_for

# Factor for the memory limits of tests: sanitizers keep shadow memory and freed blocks, so with
# them the resident memory of the server is much larger.
SHADOW = 50 if BUILD.name in ("asan", "tsan") else 1

VALIDATE = bytes.fromhex("00cef7853c")
CODES = {
    "modern": dict(set=1, compare_set=2, get=3, add=4, check=5, wait=6, num_keys=7, delete=8,
                   append=9, multi_get=10, multi_set=11, cancel=12, ping=13, push=14, pop=15,
                   len=16,
                   list_keys=17, barrier=18),
    "legacy": dict(set=0, compare_set=1, get=2, add=3, check=4, wait=5, num_keys=6, watch=7,
                   delete=8),
}


class Server:
    """`crun-store serve` on a free port, until the end of the `with` block."""

    def __init__(self, *options, host="127.0.0.1", program=(), **how):
        argv = [*program, CRUN_STORE, "serve"] + (["--host", host] if host else []) + list(options)
        self.process = start(argv, **how)
        self.address = self.process.stdout.readline().strip()
        assert self.address, f"no address from {argv}: {self.process.stderr.read()}"
        self.port = int(self.address.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.out, self.err = self.process.communicate(timeout=TIMEOUT_S)

    def connect(self, host="127.0.0.1"):
        s = socket.create_connection((host, self.port), timeout=TIMEOUT_S)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def resident_kib(self, line="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(entry.split()[1]) for entry in f if entry.startswith(line))

    def peak_kib(self):
        return self.resident_kib("VmHWM")

    def descriptors(self):
        import os
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100


def text(value):
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def listed(values):
    return struct.pack("<Q", len(values)) + b"".join(text(v) for v in values)


class Raw:
    dialect, hello = "modern", b""

    def __init__(self, server, host="127.0.0.1", hello=None):
        self.socket = server.connect(host)
        self.send(self.hello if hello is None else hello)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, n):
        got = b""
        while len(got) < n:
            piece = self.socket.recv(min(n - len(got), 1 << 20))
            if not piece:
                raise EOFError(f"closed after {len(got)} of {n} bytes: {got[:40]!r}")
            got += piece
        return got

    def number(self):
        return struct.unpack("<q", self.receive(8))[0]

    def value(self):
        return self.receive(self.number())

    def byte(self):
        return self.receive(1)[0]

    def push(self):
        """Receives a push. Returns its bytes: the code, the key, the old and the new value."""
        return self.receive(1) + self.value() + self.value() + self.value()

    def silent(self):
        """Makes a round trip to the server. Returns whether only its reply has arrived."""
        self.num_keys()
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) and False
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)

    def closed(self):
        """Discards all bytes until the connection ends. Returns True if it ended by FIN, False if
        by RST."""
        try:
            while self.socket.recv(65536):
                pass
            return True
        except ConnectionResetError:
            return False

    def close(self):
        self.socket.close()

    def say(self, op, *fields):
        self.send(bytes([CODES[self.dialect][op]]) + b"".join(fields))

    # operations as a torch client would send them
    def set(self, key, value):
        self.say("set", text("/" + key), text(value))

    def set_for_all(self, key, value):
        """Sets the key and makes a round trip, because SET has no reply: after it, other clients
        see the value, too."""
        self.set(key, value)
        self.num_keys()

    def get(self, key):
        self.say("get", text("/" + key))
        return self.value()

    def add(self, key, n):
        self.say("add", text("/" + key), struct.pack("<q", n))
        return self.number()

    def wait(self, *keys):
        self.say("wait", listed(["/" + k for k in keys]))

    def check(self, *keys):
        self.say("check", listed(["/" + k for k in keys]))
        return self.byte()

    def num_keys(self):
        self.say("num_keys")
        return self.number()

    def delete(self, key):
        self.say("delete", text("/" + key))
        return self.number()


class Modern(Raw):
    dialect, hello = "modern", VALIDATE


class Legacy(Raw):
    dialect, hello = "legacy", b""


def stat(server):
    """Returns the server's figures, by `crun-store stat`."""
    import json
    with server.connect() as s:
        s.sendall(b"CRS1S")
        size = struct.unpack("<Q", s.recv(8, socket.MSG_WAITALL))[0]
        return json.loads(s.recv(size, socket.MSG_WAITALL))


__all__ = ["CODES", "Legacy", "Modern", "Raw", "SHADOW", "Server", "VALIDATE", "listed", "stat",
           "text",
           "wait_for"]
