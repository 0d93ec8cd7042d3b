"""A callback for transformers.Trainer: saves a checkpoint when a change is announced.

    trainer = Trainer(…, callbacks=[crunrt.huggingface.NoticeCallback()])
    trainer.train(resume_from_checkpoint=crunrt.huggingface.newest_checkpoint(args.output_dir))
"""
from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback
from transformers import trainer_utils

from . import steps


def newest_checkpoint(folder: str) -> str | None:
    """Returns the newest checkpoint in the Trainer's output folder, or None before the first."""
    if not os.path.isdir(folder):
        return None
    found: str | None = trainer_utils.get_last_checkpoint(folder)  # type: ignore[no-untyped-call]
    return found


class NoticeCallback(TrainerCallback):
    """Counts a step per optimizer step. When a change is announced, the Trainer saves after the
    agreed step and stops; then the process ends with status 0, unless `leaves` is False."""

    def __init__(self, leaves: bool = True):
        self.leaves = leaves
        steps.answer_changes()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if steps.step() is not None:
            control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.leaves and steps.change() is not None:
            steps.leave()
