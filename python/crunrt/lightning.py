"""A callback for Lightning's Trainer: saves a checkpoint when a change is announced.

    notice = crunrt.lightning.NoticeCallback("checkpoints/notice.ckpt")
    trainer = Trainer(…, callbacks=[notice])
    trainer.fit(model, ckpt_path=notice.newest())
"""
from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]

from . import steps


class NoticeCallback(Callback):
    """Counts a step per batch. When a change is announced, the Trainer saves to `path` after the
    agreed step and stops; then the process ends with status 0, unless `leaves` is False."""

    def __init__(self, path: str, leaves: bool = True):
        self.path, self.leaves = path, leaves
        steps.answer_changes()

    def newest(self) -> str | None:
        """Returns `path` if there is a checkpoint, else None."""
        return self.path if os.path.exists(self.path) else None

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if steps.change() is None and steps.step() is not None:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True
            if self.leaves:
                steps.leave()
