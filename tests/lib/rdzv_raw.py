"""A second implementation of the rendezvous protocol, written from docs/rendezvous.md: its tests
fail if the bytes of the protocol change."""
import os
import socket
import struct

import secure_raw

MAGIC = b"CRUNrdzv"
MESSAGES = {
    "HELLO": (1, "u32 version_min, u32 version_max, text software, text run_id, u64 epoch"),
    "JOIN": (2, "text host, text addr, u64 pid, u64 instance, u64 link, text role, i64 node_rank,"
                "u32 local_world_size, u64 rounds_seen, u32 restarts_seen, i64 last_rank,"
                "u32 min_nodes, u32 max_nodes, u32 max_restarts, u32 fixed_ranks,"
                "i64 join_timeout_ms, i64 last_call_timeout_ms, i64 close_timeout_ms,"
                "i64 keep_alive_interval_ms, u32 keep_alive_max_attempt, i64 change_notice_ms"),
    "FAILED": (3, "u64 round, text what"),
    "SUCCEEDED": (4, "u64 round"),
    "LEAVE": (5, "text why"),
    "BEAT": (6, "i64 sent_ms"),
    "STATUS": (7, "u32 version_min, u32 version_max"),
    "CHANGE_ANSWER": (8, "u64 id, i64 step, i64 needs_ms"),
    "CHANGE_READY": (9, "u64 id"),
    "NOTICE": (10, "u32 kind, i64 left_ms, text why"),
    "OPERATE": (11,
                "u32 version_min, u32 version_max, text run_id, text host, u32 kind, i64 left_ms,"
                    "text why"),
    "LEADS": (16, "u32 version_min, u32 version_max, text run_id, u64 epoch, text addr, u32 port"),
    "RELAY": (20, "u32 version_min, u32 version_max, text software, text run_id"),
    "ATTACH": (21, "u32 place, text addr"),
    "DETACH": (22, "u32 place, u32 is_broken"),
    "VIA": (23, "u32 place"),
    "WELCOME": (65, "u32 version, u64 epoch"),
    "ACCEPTED": (66, "i64 keep_alive_interval_ms, u32 keep_alive_max_attempt"),
    "ROUND": (67,
              "u64 round, u32 restart_count, u32 group_rank, u32 group_world_size, u32 first_rank,"
                  "u32 world_size, u32 first_role_rank, u32 role_world_size, text master_addr,"
                  "u32 master_port"),
    "STOP": (68, "u64 round, text why"),
    "END": (69, "u32 outcome, text why"),
    "BEAT_ACK": (70, "i64 sent_ms"),
    "REFUSED": (71, "u32 version_min, u32 version_max, u64 epoch, text why"),
    "CHANGE": (75, "u64 round, u64 id, u32 kind, i64 left_ms, text why"),
    "CHANGE_AT": (76, "u64 id, u64 step, i64 left_ms"),
    "ASK_NOTICE": (77, "u32 kind, i64 left_ms, text why"),
    "ASK_DUMP": (78, "text why"),
    "FAILURE": (19, "u64 round, text host, u32 rank, u32 local_rank, u64 pid, i64 exit_code,"
                    "text kind, i64 died_ns, i64 wall_ns, i64 offset_ns, i64 offset_error_ns,"
                    "text what, text message, text last_words, text kernel, text log_folder"),
    "ASK_INSPECT": (82, "u64 id, text why"),
    "ROW": (13, "u64 id, text ranks, u64 pid, text host, text state, text program, text kernel,"
                "text operation, text python, text native, text note"),
    "INSPECTED": (14, "u64 id, u32 rows"),
    "OPERATED": (79, "u32 nodes"),
    "WAITING": (81, "i64 waited_ms, i64 left_ms, text what"),
    "GOODBYE": (80, "text why"),
}
# Fields that protocol version 3 adds to the end of a message.
SINCE_3 = {
    "JOIN": "u64 incarnation, u64 digest, i64 stop_limit_ms, u32 store_port,"
            "u32 last_group_size, u64 last_coordinator, u32 skips_last_call",
    "ACCEPTED": "u64 incarnation, text differs",
    "FAILED": "u32 blame",
    "BEAT": "u64 rounds_over",
    "WELCOME": "u32 in_launcher, u64 coordinator",
    "ROUND": "u32 max_restarts, u64 incarnation",
    "STOP": "i64 limit_ms, u32 is_late",
}
NAMES = {number: name for name, (number, _) in MESSAGES.items()}
FORMATS = {"u32": ">I", "u64": ">Q", "i64": ">q"}
SUCCEEDED, FAILED, LOST = range(3)


def fields(name, version=2):
    text = MESSAGES[name][1]
    if version >= 3 and name in SINCE_3:
        text += "," + SINCE_3[name]
    return [tuple(f.split()) for f in text.split(",")]


def encode(name, version=2, **values):
    body = b""
    for kind, field in fields(name, version):
        value = values[field] if version == 2 else values.get(field, 0)
        if kind == "text":
            raw = value.encode(errors="surrogateescape") + b"\0"
            body += struct.pack(">H", len(raw)) + raw
        else:
            body += struct.pack(FORMATS[kind], value)
    return struct.pack(">IB", len(body) + 1, MESSAGES[name][0]) + body


def decode(name, body, version=2):
    out, at = {"type": name}, 0
    for kind, field in fields(name, version):
        if kind == "text":
            (n,) = struct.unpack_from(">H", body, at)
            out[field] = body[at + 2:at + 2 + n - 1].decode()
            at += 2 + n
        else:
            (out[field],) = struct.unpack_from(FORMATS[kind], body, at)
            at += struct.calcsize(FORMATS[kind])
    assert at == len(body), (name, body)
    return out


class Member:
    """One node's side of the protocol. It sends only the messages that the test requests."""

    def __init__(self, address, run_id="job", host="raw", timeout=60, version=2, secret=None,
                 key_role="member", key_of_job=None, epoch=0, **join):
        """With a secret, the member authenticates in this role, as a node of `key_of_job` (default:
        run_id)."""
        self.version = version
        ip, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((ip, int(port)), timeout)
        if secret is not None:
            job = run_id if key_of_job is None else key_of_job
            self.socket = secure_raw.Channel(self.socket, secret, key_role, job)
        self.join = dict(host=host, addr=host, pid=os.getpid(),
                         instance=int.from_bytes(os.urandom(7), "big"),
                         link=1, role="default", node_rank=-1, local_world_size=1, rounds_seen=0,
                         restarts_seen=0, last_rank=-1, min_nodes=1, max_nodes=1, max_restarts=0,
                         fixed_ranks=0, join_timeout_ms=60000, last_call_timeout_ms=500,
                         close_timeout_ms=1000, keep_alive_interval_ms=5000,
                         keep_alive_max_attempt=3,
                         change_notice_ms=0)
        self.join.update(join)
        self.socket.sendall(MAGIC)
        self.send("HELLO", version_min=2, version_max=version, software="raw", run_id=run_id,
                  epoch=epoch)

    def send(self, name, **values):
        version = 2 if name in ("HELLO", "STATUS", "OPERATE") else self.version
        self.socket.sendall(encode(name, version, **values))

    def send_join(self):
        self.send("JOIN", **self.join)

    def receive(self):
        """Returns the next message, or None at the end of the stream."""
        head = self.exactly(5)
        if head is None:
            return None
        length, number = struct.unpack(">IB", head)
        body = self.exactly(length - 1) if length > 1 else b""
        return decode(NAMES[number], body, self.version)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                return None
            data += more
        return data

    def expect(self, name):
        m = self.receive()
        assert m is not None and m["type"] == name, (name, m)
        return m

    def close(self):
        self.socket.close()
