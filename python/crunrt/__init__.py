"""crunrt: the worker runtime of crun for Python. It needs no torch, and no compiler.

For any training script, under crun, torchrun or alone:

    import crunrt

    with crunrt.save_on_notice(save):               # save(change): when a node is taken away
        for batch in crunrt.batches(loader):        # or call crunrt.step() after each step
            train(batch)

For programs without torch:

    rt = crunrt.init()                              # rank, world size, store
    group = rt.group()                              # collectives on arrays
    group.all_reduce(gradients)

docs/pytorch.md has the whole story; docs/worker-runtime.md describes the library below.
"""
from __future__ import annotations

from .errors import ConnectionLost, Error, RoundOver, Timeout
from .group import Group
from .runtime import Change, Runtime, dump_flight_record, report_error, version
from .steps import (answer_changes, batches, change, change_done, connect_at_import, leave, runtime,
                    save_on_notice, step, watch_steps)
from .store import Store


def init(method: str | None = None, rank: int = -1, world_size: int = -1,
         timeout: float | None = None) -> Runtime:
    """Makes a runtime: finds this process's rank, the world size and the job's store, and connects
    to the store. The first runtime of a process is also the one that step() uses. In a process that
    crun has started, `import crunrt` has made it, and init() without arguments returns it.

    method       None or "env://": from the environment that crun, torchrun, MPI or Slurm has set;
                 "tcp://HOST:PORT?rank=R&world_size=N"; "file:///PATH?rank=R&world_size=N"
    rank, world_size   -1: from the method or the environment
    timeout      to connect, and the default of calls on the store, in seconds; None: 300

    Raises Error, Timeout or ConnectionLost; the text names the variables that were looked for.
    """
    from . import steps
    shared = steps.runtime()
    if shared is not None and (method, rank, world_size) in ((None, -1, -1), ("env://", -1, -1)):
        return shared
    made = Runtime(method, rank, world_size, timeout)
    steps.use(made)
    return made


connect_at_import()

__version__ = "0.1.0"
__all__ = ["Change", "ConnectionLost", "Error", "Group", "RoundOver", "Runtime", "Store", "Timeout",
           "answer_changes", "batches", "change", "change_done", "dump_flight_record", "init",
           "leave", "report_error", "runtime", "save_on_notice", "step", "version", "watch_steps"]
