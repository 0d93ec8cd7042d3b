"""Recovery in place for torch.distributed: when a rank or a node dies, the other processes keep
their memory, regroup with the replacement, and go on from the last step.

    recovery = crunrt.recovery.Recovery(model, optimizer)    # instead of init_process_group()
    for step in recovery.steps(last):                        # and of DistributedDataParallel
        with recovery:
            loss = loss_of(recovery.model(images[step]), digits[step])
            loss.backward(); optimizer.step(); optimizer.zero_grad()

What happens after a death: crun's agents tell all workers at once that the round is over. A thread
of this module then ends all waits of Gloo (_gloo.py), because a rank that waits for another living
rank would otherwise wait until the group's timeout. The step fails on every rank, and each rank
calls Runtime.rejoin(). In the next round the ranks exchange handles through the job's store, torch
reconfigures its group, and the rank that has made most steps gives its state to the ranks that have
made fewer steps, such as the replacement.

With `fewest`, the survivors do not wait for the replacement: they go on with fewer ranks, and it
joins them after one of their steps. A step that is computed by shards() gives the same parameters,
bit for bit, whatever the number of ranks.

It needs crun, a torch that can reconfigure groups (torch.distributed._reconfigure, since 2.14) and
the backend gloo. Where one of these is missing, the script runs as before, a failure restarts all
workers, and one line says so.
"""
from __future__ import annotations

import datetime
import errno
import gc
import importlib
import json
import os
import sys
import threading
import time
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.distributed as dist

from . import steps
from ._gloo import Gloo
from ._meeting import Meetings
from .errors import ConnectionLost, Error, RoundOver, Timeout
from .runtime import Runtime
from .store import Store

_KEY = "crunrt.recovery"
_reconfiguring: Any = dist  # these functions of torch are not public yet
# A wait on the store looks this often whether the round is over; its server cannot tell.
_SLICE_S = 0.2
# Pause in seconds before Gloo's waits are ended for the second time. Each further pause is twice as
# long as the one before, up to 1 s.
_SWEEP_S = 0.02
# How long in seconds a step that has failed waits for the end of the round. The round ends if the
# step failed because another rank has died.
_END_OF_ROUND_S = 30.0


class _RoundStore(dist.Store):  # type: ignore[misc,name-defined]
    """The store of the current round, for torch. torch keeps one store object per group, but each
    round of crun has a store of its own, so this object passes its calls on to the newest one."""

    def __init__(self, recovery: Recovery):
        super().__init__()
        self._recovery = recovery

    @property
    def _store(self) -> Store:
        return self._recovery.runtime.store

    def set(self, key: str, value: Any) -> None:
        self._recovery._gloo.note(key, value)
        self._store.set(f"{_KEY}/torch/{key}", value)

    def get(self, key: str) -> bytes:
        return self._recovery._get([f"{_KEY}/torch/{key}"])[0]

    def wait(self, keys: Iterable[str], timeout: Any = None) -> None:
        self._recovery._get([f"{_KEY}/torch/{key}" for key in keys])

    def add(self, key: str, value: int) -> int:
        return self._store.add(f"{_KEY}/torch/{key}", value)

    def check(self, keys: Iterable[str]) -> bool:
        return self._store.check([f"{_KEY}/torch/{key}" for key in keys])

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        return self._store.compare_set(f"{_KEY}/torch/{key}", expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._store.delete(f"{_KEY}/torch/{key}")


def _is_of_torch(error: BaseException) -> bool:
    """Returns whether a failed step failed in communication; any other error is the program's."""
    kinds = tuple(getattr(dist, name) for name in ("DistError",) if hasattr(dist, name))
    text = str(error).lower()
    return isinstance(error, (Error, *kinds)) or isinstance(error, RuntimeError) and (
        "gloo" in text or "connection" in text or "crunrt" in text)


def _why_not(runtime: Runtime | None, backend: str) -> str | None:
    """Returns why this process cannot recover in place, or None if it can."""
    if runtime is None:
        return "crun has not started this process"
    if not hasattr(dist, "_reconfigure"):
        return f"torch {torch.__version__} cannot reconfigure its groups"
    if backend != "gloo":
        return f"recovery on the backend {backend} has not been run yet"
    return None


class Recovery:
    """The default process group of torch, and a model on it, that survive the death of other ranks.

    It has `model` (wrapped; use this one in the step), `done` (steps made), `recoveries`, and
    `times` of the last recovery, on the clock of time.monotonic(): "told" (crun has said that the
    round is over), "failed" (the step has failed on this rank, or the round has ended after it),
    "round" (crun has begun the next round), "met" (it is known who regroups), "ready" (regrouped,
    all at one step).
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None,
                 done: int = 0, backend: str = "gloo",
                 wrap: Callable[[torch.nn.Module], Any] = torch.nn.parallel.DistributedDataParallel,
                 fewest: int | None = None,
                 timeout: datetime.timedelta = datetime.timedelta(minutes=30)):
        """Makes the default process group, and waits for all ranks.

        module, optimizer   their state goes to ranks that have made fewer steps
        done                steps that a checkpoint, if there is one, has made already
        wrap                makes the model that the step uses, each time ranks have regrouped
        fewest              the smallest number of ranks with which survivors go on before the
                            replacements have come; None: they always wait for all ranks. The
                            number of ranks is torch.distributed.get_world_size() in each step
        timeout             of torch's group
        """
        self.module, self.optimizer, self.done, self.recoveries = module, optimizer, done, 0
        self.model: Any = None
        self.times: dict[str, float] = {}
        self._wrap, self._backend, self._timeout = wrap, backend, timeout
        self._fewest = fewest
        self._generation, self._is_broken = 0, False
        self._before = 0  # members of the last meeting
        self._was_changed = False  # whether the last round was ended by an announced change
        self._saved: tuple[list[torch.Tensor], torch.Tensor] | None = None
        made = steps.runtime()
        why = _why_not(made, backend)
        self.in_place = why is None
        if made is None or why is not None:
            self._begin_without(str(why))
            return
        self.runtime = made
        self.runtime.can_rejoin()
        self._over: threading.Event    # set when the round is over
        self._is_out: threading.Event  # set when this rank has left the round
        self._watcher: threading.Thread | None = None
        self._gloo = Gloo()
        self._gloo.begin_round()
        self._watch()
        self._import_late_modules()
        self._forget_old_objects()
        self._store = _RoundStore(self)  # torch keeps only its C++ half alive
        dist.init_process_group(backend, store=self._store, rank=self.runtime.rank,
                                world_size=self.runtime.world_size, timeout=timeout,
                                enable_reconfigure=True)
        if not self._try_to_join():
            self._recover()

    def _begin_without(self, why: str) -> None:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"crunrt: no recovery in place: {why}; a failure restarts all workers",
                  file=sys.stderr, flush=True)
        dist.init_process_group(self._backend, timeout=self._timeout)
        self.model = self._wrap(self.module)

    @staticmethod
    def _import_late_modules() -> None:
        """Imports what torch's optimizers import when they are first used, which takes seconds: the
        survivors would wait for it in the first step of a replacement."""
        try:
            importlib.import_module("torch._dynamo")
        except Exception:  # it needs packages that a script without torch.compile does not need
            pass

    @staticmethod
    def _forget_old_objects() -> None:
        """Makes the collections of _recover() quick: they need not visit what exists already, such
        as the objects of torch, which live as long as the process."""
        gc.collect()
        gc.freeze()

    # ---- the end of a round ----

    def _watch(self) -> None:
        """Starts the thread that waits for the end of this round. Each round has events of its own,
        because the thread of a round that an announced change has ended may still wait."""
        self._over, self._is_out = threading.Event(), threading.Event()
        self._watcher = threading.Thread(target=self._wait_for_end, name="crunrt", daemon=True,
                                         args=(self._over, self._is_out))
        self._watcher.start()

    def _wait_for_end(self, over: threading.Event, is_out: threading.Event) -> None:
        try:
            self.runtime.wait_for_round_end()
        except Error:
            return  # the agent is gone; crun's warden ends this process
        if is_out.is_set():
            return  # this process has left the round of this thread already
        self.times["told"] = time.monotonic()
        over.set()
        self._gloo.end_waits()
        # A rank that regroups just now opens more connections, and would wait for ranks that have
        # gone already; so go on until this rank has come out of what it was doing.
        pause = _SWEEP_S
        while not is_out.wait(pause):
            self._gloo.end_waits()
            pause = min(2 * pause, 1.0)

    def _get(self, keys: list[str]) -> list[bytes]:
        """Waits for keys in the store until they exist or the round is over."""
        while True:
            try:
                return self.runtime.store.multi_get(keys, timeout=_SLICE_S)
            except Timeout:
                if self._over.is_set():
                    raise ConnectionLost(
                        errno.ECONNRESET, "crunrt: the round is over: a worker failed") from None

    # ---- regrouping ----

    def _recover(self) -> None:
        """Takes this process into the next round. If that one ends too before all ranks have met,
        takes it into the one after it."""
        self._drop_wrapper()
        while True:
            self._is_out.set()
            if self._watcher is not None:
                self._watcher.join()
            self.runtime.rejoin()
            self.times["round"] = time.monotonic()
            self._gloo.begin_round()
            self._watch()
            if self._try_to_join():
                self.recoveries += 1
                return

    def _drop_wrapper(self) -> None:
        """Drops the wrapper, and with it its hooks on the module's parameters."""
        if self.model is not self.module:
            self.model = None
            gc.collect()

    def _try_to_join(self) -> bool:
        """Calls _join(). Returns False if the round has ended before all ranks have met."""
        try:
            self._join()
            return True
        except (Error, RuntimeError) as error:
            if not self._is_broken_by(error):
                raise
            return False

    def _end_round(self) -> None:
        """Prepares rejoin() after an announced change, which ends no thread's wait."""
        self._watcher = None
        self._was_changed = True
        self._over.set()

    def _join(self) -> None:
        """Meets the other ranks of this round, or those that have come, and regroups with them."""
        size = self.runtime.world_size
        self._meetings = Meetings(self.runtime.store, self._get, _KEY, self.runtime.rank, size)
        goes_on_early = self._fewest is not None and self._generation > 0
        fewest = self._fewest or 1
        survivors = self._survivors() if goes_on_early else 0
        self._meetings.come(self._about(), self._generation > 0, survivors, fewest)
        if goes_on_early:
            self._meetings.call_when_quiet(fewest, self._over.is_set)
        self._regroup()

    def _survivors(self) -> int:
        """Returns how many ranks of the last meeting are kept in this round. If it is unknown,
        because an agent of an older build does not count its ranks, assumes that one rank has died;
        or none, if the last round was ended by an announced change."""
        most = self._before - (0 if self._was_changed else 1)
        kept = self.runtime.kept_ranks
        return most if kept < 0 else min(kept, self._before)

    def _about(self) -> dict[str, Any]:
        """Returns what the other ranks need to regroup with this one."""
        return {"handle": _reconfiguring._get_reconfigure_handle(), "done": self.done,
                "generation": self._generation, "is_new": self._generation == 0}

    def _exchange(self, members: list[int]) -> list[dict[str, Any]]:
        """Returns what the members of the meeting say about themselves now, by rank."""
        key, number = f"{_KEY}/about", self._meetings.number
        self.runtime.store.set(f"{key}/{number}/{self.runtime.rank}", json.dumps(self._about()))
        return [json.loads(v) for v in self._get([f"{key}/{number}/{r}" for r in members])]

    def _regroup(self) -> None:
        """Waits for the next meeting, regroups with its members, and brings all to one step."""
        all_ = self._meetings.attend()
        if self._meetings.number > 0:  # what they said when they came holds for meeting 0 only
            all_ = self._exchange(self._meetings.members)
        self.times["met"] = time.monotonic()
        self._generation, self._before = 1 + max(one["generation"] for one in all_), len(all_)
        self._was_changed = False
        self._gloo.connecting(len(all_))
        _reconfiguring._reconfigure(uuid=self._generation, timeout=self._timeout,
                                    handles=[one["handle"] for one in all_]).wait()
        dist.barrier()
        self._gloo.connected()
        self._level(all_)
        self.model = self._wrap(self.module)
        self._is_broken = False
        self.times["ready"] = time.monotonic()

    def _take_in(self, when_all: bool = False) -> None:
        """Regroups if ranks have come that the last meeting had to do without. With `when_all`,
        first waits until all ranks have come."""
        if self._meetings.is_complete:
            return
        has_called = torch.zeros(1)
        try:
            if dist.get_rank() == 0 and self._meetings.call_next(when_all):
                has_called += 1
            dist.broadcast(has_called, 0)
            if has_called.item() != 0:
                self._drop_wrapper()
                self._regroup()
        except (Error, RuntimeError) as error:
            if not self._is_broken_by(error):
                raise

    def _level(self, all_: list[dict[str, Any]]) -> None:
        """Copies the state of the rank that has made most steps, if another one lacks it."""
        source = max(range(len(all_)), key=lambda r: (all_[r]["done"], not all_[r]["is_new"], -r))
        most = all_[source]
        if all(one["done"] == most["done"] and one["is_new"] == most["is_new"] for one in all_):
            return
        with torch.no_grad():
            for tensor in self.module.state_dict().values():
                dist.broadcast(tensor, source)
        state: list[Any] = [self.optimizer.state_dict() if self.optimizer is not None else None]
        dist.broadcast_object_list(state, source)
        if dist.get_rank() != source and self.optimizer is not None:
            self.optimizer.load_state_dict(state[0])
        self.done = most["done"]

    # ---- what a training loop uses ----

    def steps(self, last: int | Callable[[], int]) -> Iterator[int]:
        """Yields the number of the next step until `last` steps are made on every rank. After a
        failure it regroups, and goes on with the step that all ranks have in common. `last` may be
        a function that returns the number, the same one on all ranks before they have made it."""
        while True:
            if self._is_broken:
                self._recover()
            if self.done < (last() if callable(last) else last):
                yield self.done
            elif not self.in_place:
                return
            elif not self._meetings.is_complete:
                self._take_in(when_all=True)  # so that all ranks end with the same parameters
            elif self._all_have_ended():
                return

    def shards(self, count: int) -> Iterator[int]:
        """Splits the batch of a step into `count` shards, and yields the numbers of those that this
        rank computes: forward and backward pass of `module`, not wrapped. Afterwards the gradients
        of the parameters are the means over all shards, summed in the order of the shards, so they
        do not depend on the number of ranks. All shards must have the same size."""
        rank, size = dist.get_rank(), dist.get_world_size()
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        mine = parameters[0].new_zeros(-(-count // size), sum(p.numel() for p in parameters))
        for place, shard in enumerate(range(rank, count, size)):
            self.module.zero_grad()
            yield shard
            mine[place] = torch.cat([torch.zeros_like(p).flatten() if p.grad is None
                                     else p.grad.flatten() for p in parameters])
        all_ = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(all_, mine)
        total = all_[0][0].clone()
        for shard in range(1, count):
            total += all_[shard % size][shard // size]
        total /= count
        for p, part in zip(parameters, total.split([p.numel() for p in parameters])):
            p.grad = part.view_as(p).clone()

    def _all_have_ended(self) -> bool:
        """Waits for all ranks. Returns False if one of them has died, so that its last steps must
        be made again."""
        try:
            dist.barrier()
        except RuntimeError as error:
            if not self._is_broken_by(error):
                raise
            return False
        return True

    def _is_broken_by(self, error: BaseException) -> bool:
        """Returns whether a failed operation means that the round is over."""
        if not _is_of_torch(error) or not self._over.wait(_END_OF_ROUND_S):
            return False
        self._is_broken = True
        self.times["failed"] = time.monotonic()
        return True

    def _keep(self) -> None:
        """Keeps what a failed step may change although no parameter does: buffers (the running
        means of BatchNorm) and the state of the random numbers."""
        self._saved = ([b.clone() for b in self.module.buffers()], torch.get_rng_state())

    def _restore(self) -> None:
        if self._saved is None:
            return
        buffers, state = self._saved
        with torch.no_grad():
            for buffer, saved in zip(self.module.buffers(), buffers):
                buffer.copy_(saved)
        torch.set_rng_state(state)
        if self.optimizer is not None:
            self.optimizer.zero_grad()

    def __enter__(self) -> Recovery:
        if self.in_place:
            self._keep()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _trace: Any) -> bool:
        if not self.in_place:
            if error is None:
                self.done += 1
                steps.step()
            return False
        if error is not None:
            if not self._is_broken_by(error):
                return False
            self._restore()
            return True
        self.done += 1
        try:
            changed = steps.step() is not None
            self._is_broken = changed
        except RoundOver:
            changed, self._is_broken = False, True
        if changed:
            self._end_round()
        if self._is_broken:
            self.times["failed"] = time.monotonic()
        else:
            self._take_in()
        return False


__all__ = ["Recovery"]
