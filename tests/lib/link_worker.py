"""The worker's end of a channel (contract/channel.h) without libcrunrt: a test's worker sends and
receives single packets with it.

    link = Link()                       # connects to $CRUN_AGENT; HELLO, WELCOME
    link.step()                         # counts a step, as crunrt_step() does; returns the bell
    link.send(REJOIN); link.recv()      # one packet as a dict
"""
import array
import mmap
import os
import socket
import struct
import time

HELLO, READY, REJOIN, DUMPED, LIMIT = 1, 2, 3, 4, 5
WELCOME, CHANGE, STOP_AT, OVER, ROUND, REFUSED = 65, 66, 67, 68, 69, 70
PACKET, ROOM, TEXT = 400, 128, 256
# offsets in the page
STEP, STEPPED, LIMIT_MS, NEEDS_MS, ANSWER = 0, 8, 16, 24, 32
CAN_REJOIN, STOPPED_FOR, BELL, DUMP_ID = 36, 40, 48, 56


def address():
    return os.environ["CRUN_AGENT"].rsplit(":", 1)


def packet(kind, number=0, room=b"", text=b""):
    return struct.pack("=IIQ", kind, 0, number) + room.ljust(ROOM, b"\0") + text.ljust(TEXT, b"\0")


def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\0" + address()[0])
    return s


class Link:
    def __init__(self, dump_signal=0, token=None):
        self.socket = connect()
        token = token or address()[1]
        self.send(HELLO, 0, struct.pack("=Ii", 1, dump_signal) + token.encode() + b"\0")
        data, anc, _, _ = self.socket.recvmsg(PACKET, socket.CMSG_SPACE(4))
        self.first = self.parse(data)
        if self.first["type"] != WELCOME:
            return
        fds = array.array("i")
        fds.frombytes(anc[0][2][:4])
        self.page_fd = fds[0]
        self.page = mmap.mmap(self.page_fd, 4096)
        self.heard = 0

    def send(self, kind, number=0, room=b"", text=b""):
        self.socket.send(packet(kind, number, room, text))

    def recv(self):
        data = self.socket.recv(PACKET + 1)
        return self.parse(data) if data else None

    @staticmethod
    def parse(data):
        assert len(data) == PACKET, data
        kind, zero, number = struct.unpack_from("=IIQ", data)
        assert zero == 0
        room, text = data[16:16 + ROOM], data[16 + ROOM:].split(b"\0")[0].decode()
        out = {"type": kind, "id": number, "text": text}
        if kind == CHANGE:
            out["kind"], out["left_ms"] = struct.unpack_from("=I4xq", room)
        elif kind == STOP_AT:
            out["step"], out["left_ms"] = struct.unpack_from("=Qq", room)
        elif kind == ROUND:
            names = ("round rank world_size local_rank local_world_size "
                     "group_rank group_world_size role_rank role_world_size "
                     "restart_count master_port").split()
            out.update(zip(names, struct.unpack_from("=Q10I", room)))
            out["master_addr"] = room[48:112].split(b"\0")[0].decode()
            out["kept"] = struct.unpack_from("=I", room, 112)[0] - 1  # -1: unknown
        return out

    def put(self, at, value):
        self.page[at:at + 8] = struct.pack("=q", value)

    def put32(self, at, value):
        self.page[at:at + 4] = struct.pack("=I", value)

    def get(self, at):
        return struct.unpack_from("=q", self.page, at)[0]

    def step(self):
        self.put(STEPPED, time.monotonic_ns())
        self.put(STEP, self.get(STEP) + 1)
        return struct.unpack_from("=I", self.page, BELL)[0]
