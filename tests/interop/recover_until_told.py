#!/usr/bin/env python3
"""The worker of test_recovery_at_once.py: trains on the digits of the examples, in shards, until
the file `last` in its folder names the last step. Each process writes what happens to it to a file
of the folder, <pid>-<time of its start>, one JSON object a line. The time is there because the
kernel uses the numbers of processes again."""
import argparse
import hashlib
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

import crunrt.recovery

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from recover_digits import SHARDS, batch_of, load_images  # noqa: E402

BATCH = 64
NEVER = 1 << 60


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pause", type=float, default=0, help="seconds that a step takes longer")
    args = parser.parse_args()

    file = open(args.folder / f"{os.getpid()}-{time.monotonic_ns()}", "w", buffering=1)

    def say(**what):
        file.write(json.dumps(what) + "\n")

    def last():
        try:
            return int((args.folder / "last").read_text() or NEVER)
        except FileNotFoundError:
            return NEVER

    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, digits = load_images(args.data)
    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    loss_of = torch.nn.CrossEntropyLoss()
    recovery = crunrt.recovery.Recovery(model, optimizer, wrap=lambda m: m, fewest=1)
    say(begins=recovery.done)
    seen = size = 0
    for step in recovery.steps(last):
        with recovery:
            batch = batch_of(step, len(images), BATCH)
            for shard in recovery.shards(SHARDS):
                mine = batch[shard::SHARDS]
                loss_of(model(images[mine]), digits[mine]).backward()
            optimizer.step()
        result = time.monotonic()
        if recovery.done > step and recovery.recoveries > seen:
            seen = recovery.recoveries
            say(recovered=seen, step=step, result=result, **recovery.times)
        if size != dist.get_world_size():
            size = dist.get_world_size()
            say(size=size, step=step)
        if args.pause:
            time.sleep(args.pause)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    say(ends=recovery.done, weights=hashlib.sha256(weights).hexdigest())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
