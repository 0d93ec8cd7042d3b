"""The runtime: this process's place in the job, the job's store, and groups."""
from __future__ import annotations

import ctypes
import errno
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Sequence

from ._library import ChangeStruct, InitOptions, RejoinOptions, library
from .errors import Error, RoundOver, check, milliseconds
from .group import Group
from .store import Store

_ANSWERS = {"after step": 0, "now": 1, "needs": 2}
_KINDS = {1: "join", 2: "leave", 3: "preemption", 4: "maintenance"}
_CHANGE = 1  # CRUNRT_CHANGE


@dataclass(frozen=True)
class Change:
    """An announced end of the round that is nobody's failure."""
    kind: str    # "join", "leave", "preemption" or "maintenance"
    left: float  # seconds until crun stops this process in any case
    step: int    # steps made in this round; the same on every rank
    reason: str  # why the change happens, in one line


class Runtime:
    """This process's place in the job. crunrt.init() makes one.

    It must be closed after its groups. A child that was forked after it was made must not use it.
    """

    def __init__(self, method: str | None = None, rank: int = -1, world_size: int = -1,
                 timeout: float | None = None):
        """See crunrt.init()."""
        options = InitOptions(size=ctypes.sizeof(InitOptions), rank=rank, world_size=world_size)
        options.method = method.encode() if method else None
        options.timeout_ms = 0 if timeout is None else milliseconds(timeout)
        out = c_void_p()
        self._handle = 0
        check(library().init(byref(options), byref(out)))
        self._handle = out.value or 0
        self._store = Store(library().job_store(self._handle) or 0, owner=self)

    def close(self) -> None:
        """Closes the connections to the store and to the agent."""
        from . import steps
        steps.forget(self)
        handle, self._handle = self._handle, 0
        if handle:
            library().destroy(handle)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """This process's number in the job: 0 … world_size - 1."""
        return int(library().rank(self._handle))

    @property
    def world_size(self) -> int:
        """The number of processes in the job."""
        return int(library().world_size(self._handle))

    @property
    def local_rank(self) -> int:
        """This process's number on its node; -1 if it is not known."""
        return int(library().local_rank(self._handle))

    @property
    def local_world_size(self) -> int:
        """The number of processes on this node; -1 if it is not known."""
        return int(library().local_world_size(self._handle))

    @property
    def restart_count(self) -> int:
        """The number of restarts of the job so far."""
        return int(library().restart_count(self._handle))

    @property
    def kept_ranks(self) -> int:
        """After rejoin(): the number of ranks of this round that have gone on in their processes,
        this one included; the others are new processes. -1 if it is not known."""
        return int(library().kept_ranks(self._handle))

    @property
    def store(self) -> Store:
        """The job's store. After rejoin() the same object is connected to the new round's store."""
        return self._store

    def group(self, backend: str | None = None, name: str | None = None,
              ranks: Sequence[int] | None = None, timeout: float | None = None) -> Group:
        """Makes a process group. All ranks of the job make their groups in the same order.

        backend   "gloo" (host memory), "mpi"; None: $CRUNRT_BACKEND, or else "gloo"
        name      the group's name in messages
        ranks     ranks of the job, each once; None: all ranks. A rank that is not in the list must
                  call this, too
        timeout   of every operation, in seconds; None: 600
        """
        return Group(self, backend, name, ranks, timeout)

    def step(self) -> Change | None:
        """Counts one step; see crunrt.step()."""
        if library().step_count(self._handle) == 0:
            return None
        return self._settle()

    def _settle(self) -> Change | None:
        change = ChangeStruct(size=ctypes.sizeof(ChangeStruct))
        result = library().step_settle(self._handle, byref(change))
        if result != _CHANGE:
            check(result, RoundOver if result == -errno.ECONNRESET else None)
            return None
        return Change(_KINDS.get(change.kind, "change"), change.left_ms / 1000, change.step,
                      change.reason.decode(errors="replace"))

    def wait_for_round_end(self, timeout: float = float("inf")) -> bool:
        """Waits until the round has ended because a worker failed; may be called in a thread of its
        own. Returns False if the round goes on after `timeout` seconds. Raises ConnectionLost if
        there is no agent."""
        result = library().wait_for_round_end(self._handle, milliseconds(timeout))
        return result != -errno.ETIMEDOUT and check(result) == 1

    def answer_changes(self, how: str = "after step", needs: float = 0) -> None:
        """Sets how crun stops this worker for changes: "after step" (the default), "now" (it has
        nothing to save), or "needs": `needs` seconds after the agreed step."""
        if how not in _ANSWERS:
            raise ValueError(f"'{how}' is not an answer; use one of {', '.join(_ANSWERS)}")
        check(library().answer_changes(self._handle, _ANSWERS[how], milliseconds(needs)))

    def change_done(self) -> None:
        """Reports that this worker has saved what it needs, so that crun may stop it."""
        check(library().change_done(self._handle))

    def watch_steps(self, limit: float) -> None:
        """Makes crun end this worker if it makes no step for `limit` seconds; 0: no own limit."""
        check(library().watch_steps(self._handle, milliseconds(limit)))

    def can_rejoin(self, yes: bool = True) -> None:
        """Sets whether crun keeps this process when another worker fails. Such a process must call
        rejoin() within the grace of stopped workers."""
        check(library().can_rejoin(self._handle, int(yes)))

    def rejoin(self, timeout: float | None = None) -> None:
        """Takes this process into the next round; close all groups before. Afterwards rank, world
        size and store are those of the new round. Raises Timeout after `timeout` seconds; the call
        may then be repeated."""
        options = RejoinOptions(size=ctypes.sizeof(RejoinOptions))
        options.timeout_ms = 0 if timeout is None else milliseconds(timeout)
        check(library().rejoin(self._handle, byref(options)))
        from . import steps
        steps.began_round()


def version() -> str:
    """Returns the version of the loaded libcrunrt, e.g. "0.1.0"."""
    return bytes(library().version()).decode()


def report_error(message: str | None = None, detail: str | None = None) -> bool:
    """Writes the error file, which crun and torchrun show in their failure report. Returns False if
    no launcher wants one. `detail` may have many lines, such as a traceback."""
    result = library().report_error(message.encode() if message else None,
                                    detail.encode() if detail else None)
    return result != -errno.ENOENT and check(result) == 0


def dump_flight_record(path: str | None = None) -> None:
    """Writes the last operations of this process's groups as JSON; see docs/worker-runtime.md."""
    check(library().flight_dump(path.encode() if path else None))


__all__ = ["Change", "Error", "Runtime", "dump_flight_record", "report_error", "version"]
