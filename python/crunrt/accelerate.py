"""For loops with Hugging Face Accelerate: saves the accelerator's state when a change is announced.

    for batch in crunrt.accelerate.batches(accelerator, loader, "state"):
        …                                    # the loop as it was
"""
from __future__ import annotations

from typing import Any, Iterable, Iterator, TypeVar

from . import steps

T = TypeVar("T")


def batches(accelerator: Any, loader: Iterable[T], folder: str, leaves: bool = True
            ) -> Iterator[T]:
    """Iterates over the prepared loader, and counts a step per batch. When a change is announced,
    saves the accelerator's state to `folder` after the agreed step and stops; then the process ends
    with status 0, unless `leaves` is False."""
    steps.answer_changes()
    for batch in loader:
        yield batch
        if steps.step() is not None:
            accelerator.save_state(folder)
            if leaves:
                steps.leave()
            return
