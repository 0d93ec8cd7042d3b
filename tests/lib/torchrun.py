#!/usr/bin/python3
"""Starts the installed torch's torchrun. torch 1.13 parses an output mask by iterating over
its flag enum. Since Python 3.11 this iteration skips the members 0 and 3, so torchrun cannot parse
its own defaults. In this case, and only then, this file replaces the parser of masks."""
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

from torch.distributed.run import main  # noqa: E402  (must come after the parser is replaced)

if __name__ == "__main__":
    sys.exit(main())
