"""The job's store: small values that all processes of a job share, also with
torch.distributed.TCPStore."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Iterable, Mapping, Union

from ._library import library
from .errors import check, milliseconds

Value = Union[str, bytes, bytearray, memoryview]


def _bytes(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _take(memory: c_void_p, length: int) -> bytes:
    """Copies a value that the library allocated, and frees it."""
    try:
        return ctypes.string_at(memory, length)
    finally:
        library().free(memory)


def _names(keys: Iterable[str]) -> tuple[ctypes.Array[c_char_p], int]:
    names = [key.encode() for key in keys]
    return (c_char_p * len(names))(*names), len(names)


class Store:
    """A connection to a store. Values are bytes; a str is stored as UTF-8. Timeouts are in seconds;
    None is the timeout with which the store was opened, float("inf") is no limit.

    Runtime.store is the job's store. Store.connect() reaches any server that speaks TCPStore's
    protocol. Threads may share a store; their calls run one after the other.
    """

    def __init__(self, handle: int, owner: object = None, close: bool = False):
        """For use by this package: call Store.connect() or Runtime.store instead."""
        self._handle, self._owner, self._close = handle, owner, close

    @classmethod
    def connect(cls, host: str, port: int, timeout: float = 300) -> Store:
        """Connects to the server at host:port."""
        out = c_void_p()
        check(library().store_open(host.encode(), port, milliseconds(timeout), byref(out)))
        return cls(out.value or 0, close=True)

    def close(self) -> None:
        """Closes the connection. A store that belongs to a runtime is closed with the runtime."""
        if self._close and self._handle:
            library().store_close(self._handle)
        self._handle = 0

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prefix(self, text: str) -> Store:
        """Returns a view of this store that puts "<text>/" in front of every key, as torch's
        PrefixStore does."""
        out = c_void_p()
        check(library().store_prefix(self._handle, text.encode(), byref(out)))
        return Store(out.value or 0, owner=self, close=True)

    def set(self, key: str, value: Value) -> None:
        """Sets a key. The server does not acknowledge it."""
        data = _bytes(value)
        check(library().store_set(self._handle, key.encode(), data, len(data)))

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Waits until the key exists, and returns its value."""
        out, length = c_void_p(), c_size_t()
        check(library().store_get(self._handle, key.encode(), milliseconds(timeout), byref(out),
                                  byref(length)))
        return _take(out, length.value)

    def add(self, key: str, delta: int = 1) -> int:
        """Adds to the decimal number that the key holds, atomically, and returns the sum. An absent
        key counts as 0."""
        total = c_int64()
        check(library().store_add(self._handle, key.encode(), delta, byref(total)))
        return total.value

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Sets the key to `desired` if it holds `expected`, or if it is absent and `expected` is
        empty; atomically. Returns what the key holds afterwards."""
        old, new = _bytes(expected), _bytes(desired)
        out, length = c_void_p(), c_size_t()
        check(library().store_compare_set(self._handle, key.encode(), old, len(old), new, len(new),
                                          byref(out), byref(length)))
        return _take(out, length.value)

    def wait(self, keys: Iterable[str], timeout: float | None = None) -> None:
        """Waits until all keys exist."""
        names, count = _names(keys)
        check(library().store_wait(self._handle, names, count, milliseconds(timeout)))

    def check(self, keys: Iterable[str]) -> bool:
        """Returns whether all keys exist now."""
        names, count = _names(keys)
        present = c_int()
        check(library().store_check(self._handle, names, count, byref(present)))
        return present.value == 1

    def delete(self, key: str) -> bool:
        """Deletes a key, and returns whether it existed."""
        deleted = c_int()
        check(library().store_delete(self._handle, key.encode(), byref(deleted)))
        return deleted.value == 1

    def num_keys(self) -> int:
        """Returns the number of keys in the whole store; a view's prefix does not limit it."""
        count = c_int64()
        check(library().store_num_keys(self._handle, byref(count)))
        return count.value

    def append(self, key: str, value: Value) -> None:
        """Appends to the key's value, or creates the key. The server does not acknowledge it."""
        data = _bytes(value)
        check(library().store_append(self._handle, key.encode(), data, len(data)))

    def multi_get(self, keys: Iterable[str], timeout: float | None = None) -> list[bytes]:
        """Waits until all keys exist, and returns their values; one request for all."""
        names, count = _names(keys)
        values, lengths = (c_void_p * count)(), (c_size_t * count)()
        check(library().store_multi_get(self._handle, names, count, milliseconds(timeout), values,
                                        lengths))
        return [_take(c_void_p(v), n) for v, n in zip(values, lengths)]

    def multi_set(self, values: Mapping[str, Value]) -> None:
        """Sets all keys, in order, in one request, which the server does not acknowledge."""
        names, count = _names(values)
        data = [_bytes(v) for v in values.values()]
        pointers = (c_void_p * count)(*(ctypes.cast(c_char_p(d), c_void_p) for d in data))
        lengths = (c_size_t * count)(*(len(d) for d in data))
        check(library().store_multi_set(self._handle, names, pointers, lengths, count))

    def keys(self) -> list[str]:
        """Returns all keys, in no order; of a view, only those with its prefix, without it."""
        out, count = ctypes.POINTER(c_char_p)(), c_size_t()
        check(library().store_list_keys(self._handle, byref(out), byref(count)))
        try:
            return [(out[i] or b"").decode(errors="replace") for i in range(count.value)]
        finally:
            library().free(out)

    def barrier(self, name: str, world_size: int, timeout: float | None = None) -> None:
        """Waits until world_size callers have come. A name can be used once."""
        check(library().store_barrier(self._handle, name.encode(), world_size,
                                      milliseconds(timeout)))

    def push(self, queue: str, value: Value) -> None:
        """Adds an element to the end of a queue. The server does not acknowledge it."""
        data = _bytes(value)
        check(library().store_queue_push(self._handle, queue.encode(), data, len(data)))

    def pop(self, queue: str, timeout: float | None = None) -> bytes:
        """Waits for an element of the queue and takes it out."""
        out, length = c_void_p(), c_size_t()
        check(library().store_queue_pop(self._handle, queue.encode(), milliseconds(timeout),
                                        byref(out), byref(length)))
        return _take(out, length.value)

    def queue_len(self, queue: str) -> int:
        """Returns the number of elements in the queue."""
        count = c_int64()
        check(library().store_queue_len(self._handle, queue.encode(), byref(count)))
        return count.value
