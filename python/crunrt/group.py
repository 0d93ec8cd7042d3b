"""Process groups: collectives and messages on objects with a buffer (array.array, bytearray, numpy
arrays, memoryviews) and on torch tensors in host memory.

    group = rt.group()
    gradients = array.array("f", [...])
    group.all_reduce(gradients)
"""
from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from ._library import GroupOptions, Op, library
from .errors import check, milliseconds

if TYPE_CHECKING:
    from .runtime import Runtime

DTYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
          "float32": 7, "float64": 8, "bfloat16": 9}
REDUCTIONS = {"sum": 0, "product": 1, "max": 2, "min": 3, "avg": 4, "band": 5, "bor": 6, "bxor": 7}
_KINDS = {"all_reduce": 0, "reduce": 1, "broadcast": 2, "all_gather": 3, "gather": 4, "scatter": 5,
          "reduce_scatter": 6, "all_to_all": 7, "all_to_all_counts": 8, "barrier": 9, "send": 10,
          "recv": 11}
_SIZES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2,
          "float32": 4, "float64": 8, "bfloat16": 2}
# Formats of the buffer protocol (module struct); "l" has 8 bytes on the systems that crun runs on.
_FORMATS = {"b": "int8", "B": "uint8", "c": "uint8", "?": "uint8", "i": "int32", "I": "uint32",
            "l": "int64", "q": "int64", "L": "uint64", "Q": "uint64", "e": "float16",
            "f": "float32", "d": "float64"}


class _Memory(NamedTuple):
    address: int
    elements: int
    dtype: str
    keep: object  # holds the memory alive during the call


def _tensor(tensor: Any, dtype: str | None) -> _Memory:
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("use a tensor in a group of crunrt: it must be contiguous, and in host "
                         "memory; call .contiguous() or .cpu() first")
    return _Memory(tensor.data_ptr(), tensor.numel(), dtype or str(tensor.dtype).split(".")[-1],
                   tensor)


def _memory(data: Any, dtype: str | None, writes: bool) -> _Memory:
    """Finds address, number of elements and type of `data`. Read-only memory is copied, because
    ctypes gives no address of it; writable memory is used where it is."""
    if hasattr(data, "data_ptr"):
        return _tensor(data, dtype)
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("use a buffer in a group of crunrt: it must be contiguous")
    if writes and view.readonly:
        raise ValueError("receive into a buffer in a group of crunrt: it is read-only")
    kind = dtype or _FORMATS.get(view.format.lstrip("@="))
    if kind is None:
        raise ValueError(f"use a buffer of format '{view.format}' in a group of crunrt: there is "
                         f"no such type; name one with dtype= ({', '.join(DTYPES)})")
    flat = view.cast("B") if view.nbytes else view
    array = ctypes.c_char * view.nbytes
    held = array.from_buffer_copy(flat) if view.readonly else array.from_buffer(flat)
    return _Memory(ctypes.addressof(held), view.nbytes // _SIZES[kind], kind, held)


def _number(table: dict[str, int], name: str, what: str) -> int:
    if name not in table:
        raise ValueError(f"'{name}' is not a {what}; use one of {', '.join(table)}")
    return table[name]


class Group:
    """A set of ranks that communicate through one backend. Made by Runtime.group().

    All calls but send() and recv() are collectives: all ranks of the group call them, in the same
    order, with buffers of the same length and type. Only one thread at a time may use a group.
    After a failure the group is broken and can only be closed. A result goes into the buffer that
    was passed for it: `all_reduce(x)` works in place, `all_reduce(x, out)` does not.
    """

    def __init__(self, runtime: Runtime, backend: str | None = None, name: str | None = None,
                 ranks: Sequence[int] | None = None, timeout: float | None = None):
        """For use by this package: call Runtime.group() instead."""
        options = GroupOptions(size=ctypes.sizeof(GroupOptions), device=-1)
        options.backend = backend.encode() if backend else None
        options.name = name.encode() if name else None
        options.timeout_ms = 0 if timeout is None else milliseconds(timeout)
        if ranks is not None:
            options.ranks, options.rank_count = (c_int * len(ranks))(*ranks), len(ranks)
        out = c_void_p()
        self._handle = 0
        check(library().group_new(runtime._handle, byref(options), byref(out)))
        self._runtime, self._handle = runtime, out.value or 0

    @property
    def rank(self) -> int:
        """This process's rank in the group; -1 if it is not in the group."""
        return int(library().group_rank(self._handle))

    @property
    def size(self) -> int:
        """The number of ranks in the group; -1 if this process is not in it."""
        return int(library().group_size(self._handle))

    @property
    def backend(self) -> str:
        """The name of the group's backend, e.g. "gloo"."""
        return bytes(library().group_backend(self._handle) or b"").decode()

    def close(self) -> None:
        """Closes the group's connections. Other ranks that are still in the last operation may fail
        with ConnectionLost; call barrier() before to avoid that."""
        handle, self._handle = self._handle, 0
        library().group_destroy(handle)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, kind: str, send: _Memory | None, recv: _Memory | None, count: int, **more: Any
             ) -> None:
        memory = send or recv
        op = Op(size=ctypes.sizeof(Op), kind=_KINDS[kind], count=count,
                dtype=_number(DTYPES, memory.dtype if memory else "uint8", "type"),
                reduce=_number(REDUCTIONS, more.pop("reduce", "sum"), "reduction"),
                timeout_ms=milliseconds(more.pop("timeout", None)), **more)
        if send and recv and send.dtype != recv.dtype:
            raise ValueError(f"{kind}: one buffer is {send.dtype}, the other {recv.dtype}")
        op.send, op.recv = send.address if send else None, recv.address if recv else None
        check(library().group_run(self._handle, byref(op)))

    def _parts(self, kind: str, whole: _Memory, part: _Memory) -> None:
        if whole.elements != part.elements * self.size:
            raise ValueError(f"{kind}: the long buffer has {whole.elements} elements; it needs "
                             f"{part.elements} for each of {self.size} ranks")

    def all_reduce(self, data: Any, out: Any = None, op: str = "sum", *, dtype: str | None = None,
                   timeout: float | None = None) -> None:
        """Sets `out` (None: `data` itself), on every rank, to the reduction over all ranks."""
        recv = _memory(data if out is None else out, dtype, True)
        send = recv if out is None else _memory(data, dtype, False)
        if send.elements != recv.elements:
            raise ValueError(f"all_reduce: {send.elements} elements into {recv.elements}")
        self._run("all_reduce", send, recv, send.elements, reduce=op, timeout=timeout)

    def reduce(self, data: Any, out: Any = None, op: str = "sum", root: int = 0, *,
               dtype: str | None = None, timeout: float | None = None) -> None:
        """Sets `out` on `root` to the reduction over all ranks. Other ranks need no `out`."""
        send = _memory(data, dtype, False)
        recv = None if out is None else _memory(out, dtype, True)
        if recv is not None and recv.elements != send.elements:
            raise ValueError(f"reduce: {send.elements} elements into {recv.elements}")
        self._run("reduce", send, recv, send.elements, reduce=op, root=root, timeout=timeout)

    def broadcast(self, data: Any, root: int = 0, *, dtype: str | None = None,
                  timeout: float | None = None) -> None:
        """Copies the root's `data` to all ranks."""
        buffer = _memory(data, dtype, True)
        self._run("broadcast", buffer, buffer, buffer.elements, root=root, timeout=timeout)

    def all_gather(self, data: Any, out: Any, *, dtype: str | None = None,
                   timeout: float | None = None) -> None:
        """Sets `out`, on every rank, to the `data` of all ranks, in rank order."""
        send, recv = _memory(data, dtype, False), _memory(out, dtype, True)
        self._parts("all_gather", recv, send)
        self._run("all_gather", send, recv, send.elements, timeout=timeout)

    def gather(self, data: Any, out: Any = None, root: int = 0, *, dtype: str | None = None,
               timeout: float | None = None) -> None:
        """Sets `out` on `root` to the `data` of all ranks, in rank order."""
        send = _memory(data, dtype, False)
        recv = None if out is None else _memory(out, dtype, True)
        if recv is not None:
            self._parts("gather", recv, send)
        self._run("gather", send, recv, send.elements, root=root, timeout=timeout)

    def scatter(self, data: Any, out: Any, root: int = 0, *, dtype: str | None = None,
                timeout: float | None = None) -> None:
        """Sets `out` to this rank's part of the root's `data`. Other ranks may pass None."""
        recv = _memory(out, dtype, True)
        send = None if data is None else _memory(data, dtype, False)
        if send is not None:
            self._parts("scatter", send, recv)
        self._run("scatter", send, recv, recv.elements, root=root, timeout=timeout)

    def reduce_scatter(self, data: Any, out: Any, op: str = "sum", *, dtype: str | None = None,
                       timeout: float | None = None) -> None:
        """Reduces `data` over all ranks, and sets `out` to this rank's part of the result."""
        send, recv = _memory(data, dtype, False), _memory(out, dtype, True)
        self._parts("reduce_scatter", send, recv)
        self._run("reduce_scatter", send, recv, recv.elements, reduce=op, timeout=timeout)

    def all_to_all(self, data: Any, out: Any, send_counts: Sequence[int] | None = None,
                   recv_counts: Sequence[int] | None = None, *, dtype: str | None = None,
                   timeout: float | None = None) -> None:
        """Sends part i of `data` to rank i, and receives part i of `out` from it. Without counts
        all parts have the same length."""
        send, recv = _memory(data, dtype, False), _memory(out, dtype, True)
        if send_counts is None or recv_counts is None:
            if send.elements != recv.elements or send.elements % self.size != 0:
                raise ValueError(f"all_to_all: {send.elements} and {recv.elements} elements are "
                                 f"not equal parts for {self.size} ranks; pass counts")
            self._run("all_to_all", send, recv, send.elements // self.size, timeout=timeout)
            return
        if sum(send_counts) != send.elements or sum(recv_counts) != recv.elements:
            raise ValueError("all_to_all: the counts do not sum up to the lengths of the buffers")
        sizes = c_size_t * self.size
        self._run("all_to_all_counts", send, recv, 0, send_counts=sizes(*send_counts),
                  recv_counts=sizes(*recv_counts), timeout=timeout)

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until every rank of the group has called it."""
        self._run("barrier", None, None, 0, timeout=timeout)

    def monitored_barrier(self, timeout: float | None = None) -> None:
        """A barrier through the store, whose failure names the absent ranks."""
        check(library().group_monitored_barrier(self._handle, milliseconds(timeout)))

    def send(self, data: Any, to: int, tag: int = 0, *, dtype: str | None = None,
             timeout: float | None = None) -> None:
        """Sends to one rank. The receiver must expect as many elements."""
        memory = _memory(data, dtype, False)
        self._run("send", memory, None, memory.elements, root=to, tag=tag, timeout=timeout)

    def recv(self, data: Any, source: int, tag: int = 0, *, dtype: str | None = None,
             timeout: float | None = None) -> None:
        """Receives from one rank into `data`."""
        memory = _memory(data, dtype, True)
        self._run("recv", None, memory, memory.elements, root=source, tag=tag, timeout=timeout)
