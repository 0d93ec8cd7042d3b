"""Runs stores for tests: our client (store_driver, through pipes), our server and torch's.

    with Server() as server, Driver("tcp", server.port) as store:
        store.set("k", "v1")
        assert store.get("k") == b"v1"
"""
import os
import socket
import subprocess
import sys

from crun_test import BUILD, CRUN_STORE, clean_env

DRIVER = str(BUILD / "tests" / "interop" / "store_driver")
TIMEOUT_MS = 30000
HERE = os.path.dirname(os.path.abspath(__file__))



class StoreError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


def to_hex(value):
    data = value.encode() if isinstance(value, str) else bytes(value)
    return data.hex() or "-"


def from_hex(word):
    return b"" if word == "-" else bytes.fromhex(word)


class Driver:
    """One store of our client. Methods return bytes, numbers or lists, or raise StoreError."""

    def __init__(self, kind, *args, protocol="probe", timeout_ms=TIMEOUT_MS):
        if kind == "tcp":
            host, port = ("127.0.0.1", args[0]) if len(args) == 1 else args
            args = (host, port, protocol, timeout_ms)
        words = [DRIVER, kind, *map(str, args)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        try:
            self.protocol = " ".join(self.answer())
        except StoreError:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(30)
        self.process.stdout.close()
        assert code in (0, 1), f"the driver ended with {code}"

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "the driver ended"
        words = line.split()
        if words[0] == "error":
            raise StoreError(int(words[1]), " ".join(words[2:]))
        return words[1:]

    def send(self, op, *fields, timeout_ms=TIMEOUT_MS):
        """Sends a command to the driver; answer() waits for its result."""
        self.process.stdin.write(" ".join([op, str(timeout_ms), *map(str, fields)]) + "\n")
        self.process.stdin.flush()

    def call(self, op, *fields, timeout_ms=TIMEOUT_MS):
        self.send(op, *fields, timeout_ms=timeout_ms)
        return self.answer()

    def set(self, key, value):
        self.call("set", to_hex(key), to_hex(value))

    def get(self, key, timeout_ms=TIMEOUT_MS):
        return from_hex(self.call("get", to_hex(key), timeout_ms=timeout_ms)[0])

    def add(self, key, delta):
        return int(self.call("add", delta, to_hex(key))[0])

    def add_raw(self, key, delta):
        return int(self.call("add_raw", delta, to_hex(key))[0])

    def compare_set(self, key, expected, desired):
        return from_hex(self.call("compare_set", *map(to_hex, (key, expected, desired)))[0])

    def wait(self, *keys, timeout_ms=TIMEOUT_MS):
        self.call("wait", *map(to_hex, keys), timeout_ms=timeout_ms)

    def check(self, *keys):
        return self.call("check", *map(to_hex, keys)) == ["1"]

    def delete(self, key):
        return self.call("delete", to_hex(key)) == ["1"]

    def num_keys(self):
        return int(self.call("num_keys")[0])

    def append(self, key, value):
        self.call("append", to_hex(key), to_hex(value))

    def multi_get(self, *keys, timeout_ms=TIMEOUT_MS):
        return [from_hex(w) for w in self.call("multi_get", *map(to_hex, keys),
                                               timeout_ms=timeout_ms)]

    def multi_set(self, pairs):
        self.call("multi_set", *map(to_hex, pairs), *map(to_hex, pairs.values()))

    def queue_push(self, name, value):
        self.call("queue_push", to_hex(name), to_hex(value))

    def queue_pop(self, name, timeout_ms=TIMEOUT_MS):
        return from_hex(self.call("queue_pop", to_hex(name), timeout_ms=timeout_ms)[0])

    def queue_len(self, name):
        return int(self.call("queue_len", to_hex(name))[0])

    def list_keys(self):
        return sorted(from_hex(w) for w in self.call("list_keys"))

    def barrier(self, name, world_size, timeout_ms=TIMEOUT_MS):
        self.call("barrier", world_size, to_hex(name), timeout_ms=timeout_ms)


class Process:
    """A server in a process of its own; `port` is where it listens on 127.0.0.1."""

    def __init__(self, words, env=None):
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                                        text=True, env=env or clean_env())
        line = self.process.stdout.readline()
        assert line.strip(), f"{words[0]} did not say where it listens"
        self.port = int(line.strip().rpartition(":")[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


class Server(Process):
    """Our server."""

    def __init__(self, *options):
        super().__init__([CRUN_STORE, "serve", "--host", "127.0.0.1", "--port", "0", *options])


class TorchServer(Process):
    """torch's server, of any release. If the release has two backends, use_libuv selects one."""

    def __init__(self, python, use_libuv=None):
        words = [] if use_libuv is None else [str(int(use_libuv))]
        super().__init__([python, os.path.join(HERE, "torch_store_server.py"), *words])


class Raw:
    """A connection on which the test sends and receives bytes."""

    def __init__(self, port, timeout_s=30):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                break
            data += piece
        return data

    def is_silent(self, seconds=0.3):
        """Returns whether neither a byte nor the end of the stream comes within `seconds`. The
        result is certain only if the server has meanwhile answered a later request on another
        connection."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b"never"
        except socket.timeout:
            return True
        finally:
            self.socket.settimeout(30)


def log(text):
    print(text, file=sys.stderr, flush=True)
