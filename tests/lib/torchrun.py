#!/usr/bin/python3
"""Starts the installed torch's torchrun. torch 1.13 looks an output mask up by iterating over its
flag enum; since Python 3.11 that skips the zero member and the combined one, so the defaults do not
parse. Where that is so, the look-up is replaced by the constructor, and nothing else."""
import re
import sys

from torch.distributed.elastic.multiprocessing.api import Std


def parse_masks(cls, text):
    if not re.fullmatch(r"[0-3]|\d:[0-3](,\d:[0-3])*", text):
        raise ValueError(f"{text} is neither a mask nor a map of masks")
    if ":" not in text:
        return cls(int(text))
    pairs = (item.split(":") for item in text.split(","))
    return {int(rank): cls(int(mask)) for rank, mask in pairs}


if Std.from_str("0") is None:
    Std.from_str = classmethod(parse_masks)

from torch.distributed.run import main  # noqa: E402  (binds the look-up above)

if __name__ == "__main__":
    sys.exit(main())
