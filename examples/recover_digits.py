#!/usr/bin/env python3
"""The job of train_digits.py, with recovery in place: kill a rank, and watch the others go on.

    crun --nproc-per-node=4 --max-restarts=100 examples/recover_digits.py --steps 3000
    kill -9 PID          # any of the pids that it prints

With --fewest 1 the others do not wait for the replacement: they go on with fewer ranks, and take it
in when it has come. Each step then has SHARDS shards, so the weights stay those of four ranks.

The script differs from one with DistributedDataParallel in the two lines that use `recovery`. It
needs torch 2.14 or later; with an older one it runs, and a failure restarts all workers.
"""
import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist

import crunrt.recovery

HELD_OUT_EVERY = 6
SHARDS = 4


def load_images(path):
    with open(path) as f:
        rows = torch.tensor([[float(v) for v in line.split(",")] for line in f])
    train = rows[torch.arange(len(rows)) % HELD_OUT_EVERY != 0]
    return train[:, :64] / 16, train[:, 64].long()


def batch_of(step, count, size):
    """The images of one step: a new order in each epoch, the same on every rank."""
    epoch, place = divmod(step, count // size)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    return order[place * size:(place + 1) * size]


def with_fixed_buckets(model):
    """As a rule DDP chooses its buckets again after its first step, and with them the order of the
    sums. With this option it keeps them, so that the weights are bit for bit those of a run without
    a death."""
    return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64, help="images a step, over all ranks")
    parser.add_argument("--fewest", type=int, help="go on with so many ranks, without waiting")
    parser.add_argument("--data", default=os.path.join(here, "data", "digits.csv"))
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, digits = load_images(args.data)
    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    loss_of = torch.nn.CrossEntropyLoss()

    wrap = with_fixed_buckets if args.fewest is None else lambda module: module
    recovery = crunrt.recovery.Recovery(model, optimizer, wrap=wrap, fewest=args.fewest)
    seen = 0
    print(f"rank {dist.get_rank()} pid {os.getpid()} begins at step {recovery.done}", flush=True)
    for step in recovery.steps(args.steps):
        with recovery:
            batch = batch_of(step, len(images), args.batch)
            if args.fewest is None:
                mine = batch[dist.get_rank()::dist.get_world_size()]
                loss_of(recovery.model(images[mine]), digits[mine]).backward()
            else:
                for shard in recovery.shards(SHARDS):
                    mine = batch[shard::SHARDS]
                    loss_of(model(images[mine]), digits[mine]).backward()
            optimizer.step()
            optimizer.zero_grad()
        if recovery.recoveries > seen and recovery.done > step:
            seen, times = recovery.recoveries, recovery.times
            print(f"rank {dist.get_rank()} pid {os.getpid()} recovered {seen} times, step {step} "
                  f"at {time.monotonic():.4f} (told {times['told']:.4f}, failed "
                  f"{times['failed']:.4f}, met {times['met']:.4f}, ready {times['ready']:.4f})",
                  flush=True)

    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(f"rank {dist.get_rank()} pid {os.getpid()} ends after {recovery.done} steps, weights "
          f"{hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
