"""Decides which ranks of a round regroup together: all of them; or first those that have come soon,
and the others when they come.

Each rank of a round appends a line to the key "roll" of the round's store. The members of a meeting
are the value of the key "meeting/<number>", which is written once: whoever writes it first decides.
Meeting 0 is called by the rank that completes the roll, so it has all ranks; or, if the program
goes on with fewer ranks, by a survivor of the round before, which waits only for other survivors.
The first member of a meeting calls the next one as soon as other ranks have come.
"""
from __future__ import annotations

import json
import time
from typing import Callable

from .store import Store

# A survivor that calls meeting 0 looks at the roll this often, in seconds.
_LOOK_S = 0.001
# It calls the meeting so many seconds after the last survivor has come: _ONE_MISSING_S if just one
# is missing, which is probably the one that died, and _MANY_MISSING_S if several are missing. A
# survivor that comes later is taken in by the next meeting, after one step of the others.
_ONE_MISSING_S, _MANY_MISSING_S = 0.010, 0.025


class Meetings:
    """The meetings of one round, as one of its ranks sees them."""

    def __init__(self, store: Store, wait: Callable[[list[str]], list[bytes]], key: str, rank: int,
                 size: int):
        """wait(keys) waits for keys of the store and raises an error when the round is over; `size`
        is the number of ranks of the round."""
        self._store, self._wait, self._key = store, wait, key
        self._rank, self._size = rank, size
        self.members: list[int] = []
        self.number = -1

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of the round are members of the last meeting."""
        return len(self.members) == self._size

    def come(self, is_survivor: bool) -> None:
        """Puts this rank on the roll. The last rank to come calls a meeting of all ranks."""
        self._store.append(f"{self._key}/roll", f"{self._rank} {int(is_survivor)}\n")
        if self._store.add(f"{self._key}/count", 1) == self._size:
            self._call(0)
            self._store.set(f"{self._key}/all", "1")

    def _roll(self) -> dict[int, bool]:
        """Returns {rank: whether it is a survivor} of the ranks that have come."""
        lines = self._wait([f"{self._key}/roll"])[0].decode().splitlines()
        return {int(rank): kind == "1" for rank, kind in (line.split() for line in lines)}

    def _call(self, number: int) -> None:
        """Makes all ranks that have come the members of a meeting, unless it has members."""
        self._store.compare_set(f"{self._key}/meeting/{number}", "",
                                json.dumps(sorted(self._roll())))

    def call_survivors(self, before: int, fewest: int, is_over: Callable[[], bool]) -> None:
        """Calls meeting 0 when the survivors have come, of `before` ranks that had met in the round
        before. Returns without calling it if fewer than `fewest` come."""
        mine = str(self._rank).encode()
        if self._store.compare_set(f"{self._key}/caller", "", mine) != mine:
            return
        come, since = 0, time.monotonic()
        while not is_over() and not self._store.check([f"{self._key}/meeting/0"]):
            now, survivors = time.monotonic(), sum(self._roll().values())
            if survivors > come:
                come, since = survivors, now
            patience = _ONE_MISSING_S if come == before - 1 else _MANY_MISSING_S
            if come >= before or now - since > patience:
                if come >= fewest:
                    self._call(0)
                return
            time.sleep(_LOOK_S)

    def call_next(self, when_all: bool) -> bool:
        """Calls the next meeting if other ranks have come. With `when_all`, first waits until all
        ranks of the round have come. Only the first member may call this."""
        if when_all:
            self._wait([f"{self._key}/all"])
        if len(self._roll()) == len(self.members):
            return False
        self._call(self.number + 1)
        return True

    def attend(self) -> list[int]:
        """Waits for the next meeting to which this rank belongs. Returns its members."""
        while True:
            self.number += 1
            found = json.loads(self._wait([f"{self._key}/meeting/{self.number}"])[0])
            if self._rank in found:
                self.members = found
                return self.members
