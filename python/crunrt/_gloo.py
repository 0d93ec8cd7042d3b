"""Ends all waits of torch's Gloo for other ranks, when some of these ranks are dead.

Gloo has no call for that, so this module does it from outside, in three ways:

- It shuts down the sockets of Gloo, so operations that have begun, or that begin now, fail.
- It ends waits for messages that are half sent or half received (the module torch_gloo.so). Gloo
  forgets such messages when a connection breaks, so these waits would last until the timeout of
  the group.
- While a rank regroups, Gloo may wait until a dead rank connects to it, and there is no socket
  that could be shut down. This module connects in the dead rank's place, and closes the connection.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
import socket
import struct
import sys

import torch

from ._library import library

# Keys of torch's store that hold the address of a rank in a regrouping.
_ADDRESS_KEY = "/reconfigure/"
_CONNECT_S = 1.0


def _sockets() -> dict[int, int]:
    """Returns {inode: descriptor} of this process's sockets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found[int(target[8:-1])] = int(name)
    return found


def _shut_down(descriptor: int) -> None:
    """Shuts down a TCP connection without closing its descriptor, which its owner still uses."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6):
                copy.getpeername()  # fails on listening sockets, which stay open
                copy.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def parse_address(value: bytes, size: int) -> tuple[str, int, list[int]]:
    """Returns host, port and numbers of a rank's listener from what Gloo writes into the store: the
    length of the host name and the name; the length of an address and the address (a
    sockaddr_storage and a number); one number for each of the `size` ranks. A rank that connects
    to the listener sends its number first. Without numbers they are 0 … size - 1."""
    name_length, = struct.unpack_from("=q", value)
    length, = struct.unpack_from("=q", value, 8 + name_length)
    address = value[16 + name_length:16 + name_length + length]
    rest = value[16 + name_length + length:]
    family, = struct.unpack_from("=H", address)
    port, = struct.unpack_from("!H", address, 2)
    if family == socket.AF_INET:
        host = socket.inet_ntop(family, address[4:8])
    elif family == socket.AF_INET6:
        host = socket.inet_ntop(family, address[8:24])
    else:
        raise ValueError(f"address family {family}")
    if not rest:
        return host, port, list(range(size))
    if len(rest) != 8 * size:
        raise ValueError(f"{len(rest)} bytes of numbers for {size} ranks")
    return host, port, list(struct.unpack(f"={size}q", rest))


def _load_waits() -> ctypes.CDLL | None:
    """Loads torch_gloo.so and installs it in torch's library. Returns None if that is not possible:
    in that case, waits for messages that are half sent or half received end only with the timeout
    of the group."""
    try:
        with open("/proc/self/maps") as maps:
            found = re.search(r"/\S*/libcrunrt\.so\S*", maps.read())
        folder = os.environ.get("CRUNRT_BACKEND_DIR") or (
            f"{pathlib.Path(found[0] if found else library().path).resolve().parent}/crunrt")
        module = ctypes.CDLL(f"{folder}/torch_gloo.so")
        of_torch = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
        result = module.crunrt_torch_install(ctypes.c_void_p(of_torch._handle))
        if result < 0:
            raise OSError(-result, "torch's Gloo is not as torch_gloo.so expects it")
        return module
    except OSError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"crunrt: a rank that dies while it sends may cost the others, too: {error}",
                  file=sys.stderr, flush=True)
        return None


_waits: ctypes.CDLL | None = None
_is_loaded = False


def _waits_module() -> ctypes.CDLL | None:
    """Returns what _load_waits() has returned at the first call of this function: torch_gloo.so may
    be installed in torch's library only once."""
    global _waits, _is_loaded
    if not _is_loaded:
        _waits, _is_loaded = _load_waits(), True
    return _waits


class Gloo:
    """Knows what Gloo waits for in this process, and ends these waits. One thread calls the
    methods in the order begin_round(), connecting(), connected(); another thread may call
    end_waits() at any time."""

    def __init__(self) -> None:
        self._waits = _waits_module()
        self._others: set[int] = set()      # inodes of sockets that existed before Gloo connected
        # inodes of Gloo's sockets; None: Gloo's are all sockets that are not in _others
        self._ours: set[int] | None = None
        self._listeners: list[tuple[str, int, list[int]]] = []
        self._size = 0

    def begin_round(self) -> None:
        """Call this before Gloo connects. end_waits() does not shut down the sockets that exist
        now: they are not Gloo's, or belong to connections of the last round."""
        self._others, self._ours, self._listeners = set(_sockets()), None, []

    def connecting(self, size: int) -> None:
        """Call this before `size` ranks regroup."""
        self._ours, self._listeners, self._size = None, [], size

    def note(self, key: str, value: bytes) -> None:
        """Call this when torch sets a key of its store. If the value is the address at which Gloo
        waits for other ranks, notes that address."""
        if _ADDRESS_KEY not in key:
            return
        try:
            self._listeners.append(parse_address(value, self._size))
        except (struct.error, ValueError, TypeError):
            pass  # this Gloo writes another format, so its waits end with the group's timeout

    def connected(self) -> None:
        """Call this when the ranks have regrouped."""
        self._ours, self._listeners = set(_sockets()) - self._others, []

    def end_waits(self) -> None:
        """Ends all waits of Gloo that have begun. Waits that begin later need another call."""
        ours = self._ours
        for inode, descriptor in _sockets().items():
            if inode in ours if ours is not None else inode not in self._others:
                _shut_down(descriptor)
        while self._listeners:
            self._connect(*self._listeners.pop())
        if self._waits is not None:
            self._waits.crunrt_torch_end_waits(b"gloo: crunrt: the round is over: a worker failed")

    @staticmethod
    def _connect(host: str, port: int, numbers: list[int]) -> None:
        """For each number, connects to this process's own listener, sends the number, and closes
        the connection."""
        for number in numbers:
            try:
                with socket.create_connection((host, port), timeout=_CONNECT_S) as connection:
                    connection.sendall(struct.pack("=q", number))
            except OSError:
                return  # the listener is closed


__all__ = ["Gloo", "parse_address"]
