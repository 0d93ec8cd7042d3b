"""Finds and loads libcrunrt, and declares its functions to ctypes.

The library is looked for in this order: the file that CRUNRT_LIBRARY names; the folder lib/ of this
package, which the wheel fills; the folder build/lib/ of the source tree that this package is in;
the places of the dynamic loader, where `make install` or a distribution's package puts it.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Sequence

_HERE = pathlib.Path(__file__).resolve().parent
_SONAME = "libcrunrt.so.0"

TIMEOUT_DEFAULT = -1
FOREVER = 2**63 - 1


class InitOptions(ctypes.Structure):
    """crunrt_init_options of crunrt.h."""
    _fields_ = [("size", c_size_t), ("method", c_char_p), ("rank", c_int), ("world_size", c_int),
                ("timeout_ms", c_int64)]


class RejoinOptions(ctypes.Structure):
    """crunrt_rejoin_options of crunrt.h."""
    _fields_ = [("size", c_size_t), ("timeout_ms", c_int64)]


class ChangeStruct(ctypes.Structure):
    """crunrt_change of crunrt.h."""
    _fields_ = [("size", c_size_t), ("kind", c_int), ("left_ms", c_int64), ("step", c_uint64),
                ("reason", ctypes.c_char * 256)]


class GroupOptions(ctypes.Structure):
    """crunrt_group_options of crunrt.h."""
    _fields_ = [("size", c_size_t), ("backend", c_char_p), ("name", c_char_p),
                ("ranks", POINTER(c_int)), ("rank_count", c_size_t), ("timeout_ms", c_int64),
                ("device", c_int), ("stream", c_void_p), ("foreign_prefix", c_char_p)]


class Op(ctypes.Structure):
    """crunrt_op of crunrt.h."""
    _fields_ = [("size", c_size_t), ("kind", c_int), ("dtype", c_int), ("reduce", c_int),
                ("root", c_int), ("tag", c_uint32), ("send", c_void_p), ("recv", c_void_p),
                ("count", c_size_t), ("send_counts", POINTER(c_size_t)),
                ("recv_counts", POINTER(c_size_t)), ("timeout_ms", c_int64), ("stream", c_void_p)]


_KEYS = POINTER(c_char_p)
_OUT = POINTER(c_void_p)
_SIZE_OUT = POINTER(c_size_t)

# Name without "crunrt_": result, arguments. Functions that are not listed return int.
_SIGNATURES: dict[str, Sequence[Any]] = {
    "version": (c_char_p,),
    "last_error": (c_char_p,),
    "init": (c_int, POINTER(InitOptions), _OUT),
    "destroy": (None, c_void_p),
    "rank": (c_int, c_void_p),
    "world_size": (c_int, c_void_p),
    "local_rank": (c_int, c_void_p),
    "local_world_size": (c_int, c_void_p),
    "restart_count": (c_int, c_void_p),
    "kept_ranks": (c_int, c_void_p),
    "rejoin": (c_int, c_void_p, POINTER(RejoinOptions)),
    "step_count": (c_int, c_void_p),
    "step_settle": (c_int, c_void_p, POINTER(ChangeStruct)),
    "wait_for_round_end": (c_int, c_void_p, c_int64),
    "answer_changes": (c_int, c_void_p, c_int, c_int64),
    "change_done": (c_int, c_void_p),
    "watch_steps": (c_int, c_void_p, c_int64),
    "can_rejoin": (c_int, c_void_p, c_int),
    "job_store": (c_void_p, c_void_p),
    "store_open": (c_int, c_char_p, c_int, c_int64, _OUT),
    "store_close": (None, c_void_p),
    "store_prefix": (c_int, c_void_p, c_char_p, _OUT),
    "store_set": (c_int, c_void_p, c_char_p, c_void_p, c_size_t),
    "store_get": (c_int, c_void_p, c_char_p, c_int64, _OUT, _SIZE_OUT),
    "store_add": (c_int, c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "store_compare_set": (c_int, c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, _OUT,
                          _SIZE_OUT),
    "store_wait": (c_int, c_void_p, _KEYS, c_size_t, c_int64),
    "store_check": (c_int, c_void_p, _KEYS, c_size_t, POINTER(c_int)),
    "store_delete": (c_int, c_void_p, c_char_p, POINTER(c_int)),
    "store_num_keys": (c_int, c_void_p, POINTER(c_int64)),
    "store_append": (c_int, c_void_p, c_char_p, c_void_p, c_size_t),
    "store_multi_get": (c_int, c_void_p, _KEYS, c_size_t, c_int64, _OUT, _SIZE_OUT),
    "store_multi_set": (c_int, c_void_p, _KEYS, _OUT, _SIZE_OUT, c_size_t),
    "store_list_keys": (c_int, c_void_p, POINTER(_KEYS), _SIZE_OUT),
    "store_barrier": (c_int, c_void_p, c_char_p, c_int, c_int64),
    "store_queue_push": (c_int, c_void_p, c_char_p, c_void_p, c_size_t),
    "store_queue_pop": (c_int, c_void_p, c_char_p, c_int64, _OUT, _SIZE_OUT),
    "store_queue_len": (c_int, c_void_p, c_char_p, POINTER(c_int64)),
    "free": (None, c_void_p),
    "group_new": (c_int, c_void_p, POINTER(GroupOptions), _OUT),
    "group_destroy": (None, c_void_p),
    "group_rank": (c_int, c_void_p),
    "group_size": (c_int, c_void_p),
    "group_backend": (c_char_p, c_void_p),
    "group_run": (c_int, c_void_p, POINTER(Op)),
    "group_monitored_barrier": (c_int, c_void_p, c_int64),
    "report_error": (c_int, c_char_p, c_char_p),
    "report_fatal_signals": (c_int,),
    "flight_dump": (c_int, c_char_p),
}


class Library:
    """libcrunrt with declared signatures: library.rank(handle) calls crunrt_rank(). `step_count` is
    called without releasing Python's lock, because it takes some ten nanoseconds and never waits.
    """

    def __init__(self, path: str):
        released, held = ctypes.CDLL(path), ctypes.PyDLL(path)
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(held if name == "step_count" else released, "crunrt_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.path = path

    def __getattr__(self, name: str) -> Any:  # for type checkers: __init__ sets the functions
        raise AttributeError(f"{self.path} has no function crunrt_{name}")


def _candidates() -> list[str]:
    named = os.environ.get("CRUNRT_LIBRARY")
    if named:
        return [named]
    beside = [_HERE / "lib" / _SONAME, _HERE.parent.parent / "build" / "lib" / _SONAME]
    return [str(p) for p in beside if p.exists()] + [_SONAME]


_loaded: Library | None = None


def library() -> Library:
    """Returns the library, and loads it at the first call. Raises ImportError if it is not found or
    is older than this package."""
    global _loaded
    if _loaded is None:
        reasons = []
        for path in _candidates():
            try:
                _loaded = Library(path)
                return _loaded
            except (OSError, AttributeError) as error:
                reasons.append(str(error))
        raise ImportError("load libcrunrt: " + "; ".join(reasons) + "; install the wheel "
                          "crun-launcher, or set CRUNRT_LIBRARY to the path of libcrunrt.so.0")
    return _loaded
