"""The agent's end of a channel (contract/channel.h), simulated by a test for a worker that is built
on libcrunrt.

    with FakeAgent() as agent:
        worker = Worker(argv, contract(store, 0, 1, CRUN_AGENT=agent.variable))
        link = agent.accept()                  # HELLO, WELCOME, the page
        link.until(lambda: link.step > 3)
        link.change(1, kind=1, left_ms=60000, why="a node joins")
"""
import array
import ctypes
import mmap
import os
import socket
import struct
import threading
import time

from link_worker import (ANSWER, BELL, CAN_REJOIN, CHANGE, DUMP_ID, HELLO, LIMIT_MS, NEEDS_MS, OVER,
                         PACKET, REFUSED,
                         ROOM, ROUND, STEP, STOP_AT, STOPPED_FOR, TEXT, WELCOME, packet)

TOKEN = "0123456789abcdef" * 2
DEADLINE_S = 60


class FakeAgent:
    def __init__(self):
        self.address = f"crun-test-{os.getpid()}-{os.urandom(4).hex()}"
        self.variable = f"{self.address}:{TOKEN}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind("\0" + self.address)
        self.socket.listen()
        self.socket.settimeout(DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        return WorkerLink(self.socket.accept()[0])


class WorkerLink:
    """The connection of one worker. `hello` is the worker's first packet. If `welcome` is False,
    the test itself must answer it."""

    def __init__(self, connection, welcome=True):
        self.socket = connection
        self.socket.settimeout(DEADLINE_S)
        self.page = None
        self.hello = self.receive()
        assert self.hello["type"] == HELLO, self.hello
        assert self.hello["token"] == TOKEN, self.hello
        fd = os.memfd_create("page")
        os.ftruncate(fd, mmap.PAGESIZE)
        self.page = mmap.mmap(fd, mmap.PAGESIZE)
        self.socket.sendmsg([packet(WELCOME, 0, struct.pack("=I", 1))],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        os.close(fd)

    def receive(self):
        """Returns the next packet, or None if the worker has closed its end."""
        data = self.socket.recv(PACKET + 1)
        if not data:
            return None
        assert len(data) == PACKET, len(data)
        kind, zero, number = struct.unpack_from("=IIQ", data)
        assert zero == 0
        out = {"type": kind, "id": number, "text": data[16 + ROOM:].split(b"\0")[0].decode()}
        if kind == HELLO:
            out["version"], out["dump_signal"] = struct.unpack_from("=Ii", data, 16)
            out["token"] = data[24:24 + 33].split(b"\0")[0].decode()
        return out

    # Taking a lock is a full memory fence, and each access of the real agent is one, too.
    def _get(self, form, at):
        with threading.Lock():
            return struct.unpack_from(form, self.page, at)[0]

    step = property(lambda self: self._get("=Q", STEP))
    stopped_for = property(lambda self: self._get("=Q", STOPPED_FOR))
    answer = property(lambda self: self._get("=I", ANSWER))
    needs_ms = property(lambda self: self._get("=q", NEEDS_MS))
    limit_ms = property(lambda self: self._get("=q", LIMIT_MS))
    can_rejoin = property(lambda self: self._get("=I", CAN_REJOIN))

    def put_step(self, value):
        struct.pack_into("=Q", self.page, STEP, value)

    def put_stopped_for(self, value):
        struct.pack_into("=Q", self.page, STOPPED_FOR, value)

    def put_dump_id(self, value):
        struct.pack_into("=Q", self.page, DUMP_ID, value)

    def ring(self):
        word = ctypes.c_uint32.from_buffer(self.page, BELL)
        word.value += 1

    def send(self, data):
        self.socket.send(data)
        self.ring()

    def until(self, condition, what="the worker"):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"FAIL: waited {DEADLINE_S} s for {what}")
            time.sleep(0.001)

    def change(self, number, kind=1, left_ms=60000, why=""):
        self.send(packet(CHANGE, number, struct.pack("=I4xq", kind, left_ms), why.encode()))

    def stop_at(self, number, step, left_ms=60000):
        self.send(packet(STOP_AT, number, struct.pack("=Qq", step, left_ms)))

    def over(self, why=""):
        self.send(packet(OVER, 0, b"", why.encode()))

    def refuse(self, why=""):
        self.send(packet(REFUSED, 0, b"", why.encode()))

    def round(self, rank, world_size, restart_count, port, local_rank=0, local_world_size=1,
              address="127.0.0.1"):
        self.put_step(0)
        self.put_stopped_for(0)
        room = struct.pack("=Q10I", restart_count + 1, rank, world_size, local_rank,
                           local_world_size, rank, world_size,
                           rank, world_size, restart_count, port)
        self.send(packet(ROUND, 0, room + address.encode()))

    def close(self):
        self.socket.close()


assert TEXT == 256  # packet() pads texts to 256 bytes
