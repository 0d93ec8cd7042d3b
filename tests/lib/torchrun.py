#!/usr/bin/python3
"""Starts Debian's torchrun (torch 1.13.1), which does not start by itself under Python 3.11.

Its parser of --redirects and --tee looks the mask up by walking an enum of flags; since Python 3.11
that walk skips the zero member, so the default mask "0" becomes None and every launch fails. Only
that look-up is replaced; all else is torch's own."""
import sys

from torch.distributed.elastic.multiprocessing import api


def masks_by_rank(_cls, text):
    if ":" not in text:
        return api.Std(int(text))
    pairs = (item.split(":", 1) for item in text.split(","))
    return {int(rank): api.Std(int(mask)) for rank, mask in pairs}


api.Std.from_str = classmethod(masks_by_rank)

if __name__ == "__main__":
    from torch.distributed.run import main

    sys.exit(main())
