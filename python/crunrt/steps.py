"""Steps and notices for any training script: step(), batches(), save_on_notice().

These functions share one runtime of the process, which they make at their first call, and only if
crun has started this process. Under torchrun, Slurm or alone they do nothing: step() returns None.
"""
from __future__ import annotations

import multiprocessing
import os
import sys
from contextlib import contextmanager
from typing import Callable, Iterable, Iterator, NoReturn, TypeVar

from ._library import library
from .errors import Error
from .runtime import Change, Runtime

T = TypeVar("T")

# The pid of the worker that has connected to the agent, for processes that this worker starts.
_OWNER = "CRUNRT_WORKER_PID"

_runtime: Runtime | None = None
_is_ready = False  # whether _runtime has its final value
_change: Change | None = None


def _nothing_to_count(_handle: int) -> int:
    return 0


# What step() calls: a C function once there is a runtime.
_count: Callable[[int], int]
_handle = 0


def _first_step(_unused: int) -> int:
    runtime()
    return _count(_handle)


_count = _first_step


def use(made: Runtime) -> None:
    """Makes step() and the other functions of this module use a runtime that exists already. The
    first runtime of a process has the channel to crun's agent, so crunrt.init() calls this."""
    global _runtime, _is_ready, _count, _handle
    if _runtime is None:
        _runtime, _is_ready = made, True
        _handle, _count = made._handle, library().step_count


def forget(closed: Runtime) -> None:
    """Ends the use of a runtime that is being closed; step() then does nothing."""
    global _runtime, _count, _handle
    if _runtime is closed:
        _runtime, _handle, _count = None, 0, _nothing_to_count


def _is_worker() -> bool:
    """Returns whether crun has started this very process. Processes that a worker starts inherit
    its environment; if they connected to the agent, the worker would lose its connection."""
    owner = os.environ.get(_OWNER)
    return bool(os.environ.get("CRUN_AGENT")) and owner in (None, str(os.getpid()))


def runtime() -> Runtime | None:
    """Returns the runtime that step() uses, and makes it if crun has started this process; else
    None."""
    global _is_ready, _count
    if not _is_ready:
        _is_ready = True
        if _is_worker():
            os.environ[_OWNER] = str(os.getpid())
            use(Runtime())
        else:
            _count = _nothing_to_count
    return _runtime


def connect_at_import() -> None:
    """Makes the runtime when the package is imported, because crun can freeze only a worker that is
    connected: no rank may have made its first step while another one is not connected yet. If the
    agent cannot be reached, the first call of step() says so."""
    global _is_ready
    if not _is_worker() or multiprocessing.parent_process() is not None:
        return
    try:
        runtime()
    except (Error, ImportError):
        _is_ready = False


def step() -> Change | None:
    """Counts one step. Every rank calls this after each of its training steps, always from the
    same thread. It takes about 0.2 us.

    Returns None: go on. Or the Change for which all ranks stop after this same step: save, and then
    call leave(), change_done() or rejoin(). Further calls return the change again. While crun
    agrees with all ranks on their last step, the call waits for some milliseconds.

    Raises RoundOver if the round has ended because another worker failed; that happens only in
    processes that have called can_rejoin().
    """
    global _change
    if _count(_handle) == 0:
        return None
    made = _runtime
    _change = made._settle() if made is not None else None
    return _change


def change() -> Change | None:
    """Returns the change that step() has returned, or None."""
    return _change


def began_round() -> None:
    """Forgets the change of the round before; rejoin() calls this."""
    global _change
    _change = None


def batches(loader: Iterable[T]) -> Iterator[T]:
    """Iterates over a data loader, and counts a step after the loop body has used each batch. Ends
    early when a change is announced: change() then returns it."""
    for batch in loader:
        yield batch
        if step() is not None:
            return


def answer_changes(how: str = "after step", needs: float = 0) -> None:
    """Sets how crun stops this worker for changes; see Runtime.answer_changes()."""
    made = runtime()
    if made is not None:
        made.answer_changes(how, needs)


def watch_steps(limit: float) -> None:
    """Makes crun end this worker if it makes no step for `limit` seconds; 0: no own limit."""
    made = runtime()
    if made is not None:
        made.watch_steps(limit)


def change_done() -> None:
    """Reports that this worker has saved what it needs, so that crun may stop it."""
    if _runtime is not None:
        _runtime.change_done()


def _end_torch_groups() -> None:
    """Destroys torch's process groups, if there are any. A process that ends with them may abort,
    and crun would count that as a failure."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def leave() -> NoReturn:
    """Ends this process with status 0, after it has saved for a change. crun starts a new process
    for it in the next round, if this node goes on."""
    _end_torch_groups()
    sys.stdout.flush()
    sys.exit(0)


@contextmanager
def save_on_notice(save: Callable[[Change], object], needs: float = 0, leaves: bool = True
                   ) -> Iterator[None]:
    """Calls save(change) at the end of its block if a change was announced in it, and then ends
    this process by leave().

        with crunrt.save_on_notice(save):
            for batch in crunrt.batches(loader):
                train(batch)

    save     called on every rank, all after the same step
    needs    seconds that save() takes; where crun can choose the moment of a change, it announces
             the change at least this long before
    leaves   False: the program goes on after the block, and must itself end or rejoin
    """
    answer_changes("needs" if needs > 0 else "after step", needs)
    yield
    announced = _change
    if announced is not None:
        save(announced)
        if leaves:
            leave()
