"""Decides which ranks of a round regroup together: all of them; or first those that have come soon,
and the others when they come.

Each rank of a round appends a line to the key "roll" of the round's store, with what the others
need to regroup with it, and then counts itself. The members of a meeting, with their lines, are the
value of the key "meeting/<number>", which is written once: whoever writes it first decides.
Meeting 0 is called by the rank that completes the roll, so it has all ranks; or, if the program
goes on with fewer ranks, by the survivor whose coming completes the survivors, at once: the agents
have counted the ranks that are kept. If a survivor is slow, or its number is unknown, the survivor
that came first calls the meeting when no other one has come for a while. The first member of a
meeting calls the next one as soon as other ranks have come.
"""
from __future__ import annotations

import json
from typing import Any, Callable

from .errors import Timeout
from .store import Store

# When survivors are missing: the survivor that came first calls meeting 0 when no survivor has come
# for so many seconds. A survivor that comes later is taken in after one step of the others.
_QUIET_S = 0.02
# The key "count" holds the number of ranks that have come, plus _SURVIVOR for each survivor.
_SURVIVOR = 1 << 32


class Meetings:
    """The meetings of one round, as one of its ranks sees them."""

    def __init__(self, store: Store, wait: Callable[[list[str]], list[bytes]], key: str, rank: int,
                 size: int):
        """wait(keys) waits for keys of the store and raises an error when the round is over; `size`
        is the number of ranks of the round."""
        self._store, self._wait, self._key = store, wait, key
        self._rank, self._size = rank, size
        self._is_first = False
        self.members: list[int] = []
        self.number = -1

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of the round are members of the last meeting."""
        return len(self.members) == self._size

    def come(self, about: dict[str, Any], is_survivor: bool, survivors: int, fewest: int) -> None:
        """Puts this rank on the roll. The last rank to come calls a meeting of all ranks.

        about       what the other members need to regroup with this one, for JSON
        survivors   if so many survivors have come and this rank is the last of them, it calls a
                    meeting of those that have come, if they are at least `fewest`. 0: it does not
        """
        line = json.dumps([self._rank, is_survivor, about])
        self._store.append(f"{self._key}/roll", line + "\n")
        count = self._store.add(f"{self._key}/count", 1 + _SURVIVOR * is_survivor)
        if count % _SURVIVOR == self._size:
            self._call(0)
            self._store.set(f"{self._key}/all", "1")
        elif is_survivor and survivors > 0:
            self._is_first = count // _SURVIVOR == 1
            if count // _SURVIVOR == survivors >= fewest:
                self._call(0)

    def _roll(self) -> list[Any]:
        """Returns [rank, whether it is a survivor, about] of the ranks that have come, by rank."""
        lines = self._wait([f"{self._key}/roll"])[0].decode().splitlines()
        return sorted((json.loads(line) for line in lines), key=lambda one: one[0])

    def _call(self, number: int, roll: list[Any] | None = None) -> None:
        """Makes all ranks that have come the members of a meeting, unless it has members."""
        self._store.compare_set(f"{self._key}/meeting/{number}", "",
                                json.dumps(self._roll() if roll is None else roll))

    def call_when_quiet(self, fewest: int, is_over: Callable[[], bool]) -> None:
        """Call this on all survivors after come(). The one that came first calls meeting 0 when no
        other survivor has come for a while and they are at least `fewest`. Returns without calling
        it if they are fewer, or if it is called."""
        come = 0
        while self._is_first and not is_over():
            try:
                self._store.wait([f"{self._key}/meeting/0"], timeout=_QUIET_S)
                return
            except Timeout:
                roll = self._roll()
            survivors = sum(is_survivor for _, is_survivor, _ in roll)
            if survivors == come:
                if come >= fewest:
                    self._call(0, roll)
                return
            come = survivors

    def call_next(self, when_all: bool) -> bool:
        """Calls the next meeting if other ranks have come. With `when_all`, first waits until all
        ranks of the round have come. Only the first member may call this."""
        if when_all:
            self._wait([f"{self._key}/all"])
        roll = self._roll()
        if len(roll) == len(self.members):
            return False
        self._call(self.number + 1, roll)
        return True

    def attend(self) -> list[Any]:
        """Waits for the next meeting to which this rank belongs. Returns what each member has said
        about itself in come(), by rank; `members` are their ranks."""
        while True:
            self.number += 1
            found = json.loads(self._wait([f"{self._key}/meeting/{self.number}"])[0])
            if self._rank in (rank for rank, _, _ in found):
                self.members = [rank for rank, _, _ in found]
                return [about for _, _, about in found]
