#!/usr/bin/env python3
"""The job of train_digits.c in plain PyTorch: DistributedDataParallel on gloo, without crunrt.

    crun --nproc-per-node=4 --max-restarts=1 \\
        examples/train_digits.py --checkpoint digits.pt --crash-at 150

It runs on PyTorch 1.13 and later, under crun and torchrun. A crashed run resumes from the last
checkpoint. Its weights may differ in the last bits from those of a run without a crash, because DDP
chooses its buckets again in each process; train_digits.c has a fixed order and gives the same bits.
"""
import argparse
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HELD_OUT_EVERY = 6


def load_images(path):
    """Two pairs (pixels, digits): to train on, and held out."""
    with open(path) as f:
        rows = [[float(v) for v in line.split(",")] for line in f]
    held = torch.tensor([row for i, row in enumerate(rows) if i % HELD_OUT_EVERY == 0])
    train = torch.tensor([row for i, row in enumerate(rows) if i % HELD_OUT_EVERY != 0])
    return [(t[:, :64] / 16, t[:, 64].long()) for t in (train, held)]


def save_checkpoint(path, step, model):
    """Whole or not at all: written beside its place, flushed, renamed."""
    temp = path + ".new"
    with open(temp, "wb") as f:
        torch.save({"step": step, "world_size": dist.get_world_size(),
                    "model": model.module.state_dict()}, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temp, path)


def resume(path, model):
    """Steps done before: every rank reads the same file."""
    if not path or not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.module.load_state_dict(state["model"])
    return state["step"]


def crash_if_asked(args, step):
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if step == args.crash_at and dist.get_rank() == args.crash_rank and attempt == 0:
        print(f"rank {args.crash_rank}: crashing on purpose at step {step}", file=sys.stderr,
              flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def train(args, model, images, digits):
    rank, size = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate)
    loss_of = torch.nn.CrossEntropyLoss()
    steps_per_epoch = len(images) // args.batch
    first = resume(args.checkpoint, model)
    if first and rank == 0:
        print(f"resumed at step {first}", flush=True)
    for step in range(first, args.steps):
        epoch, place = divmod(step, steps_per_epoch)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        mine = order[place * args.batch:(place + 1) * args.batch][rank::size]
        crash_if_asked(args, step)
        optimizer.zero_grad()
        loss = loss_of(model(images[mine]), digits[mine])
        loss.backward()  # DDP averages the gradients over all ranks
        optimizer.step()
        done = step + 1
        if rank == 0 and (done % 100 == 0 or done == args.steps):
            print(f"step {done}  loss {loss.item():.4f}", flush=True)
        is_due = done % args.checkpoint_every == 0 or done == args.steps
        if rank == 0 and args.checkpoint and is_due:
            save_checkpoint(args.checkpoint, done, model)


def report(model, images, digits):
    with torch.no_grad():
        correct = int((model.module(images).argmax(1) == digits).sum())
    total = len(digits)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(f"held-out accuracy {100 * correct / total:.2f} % ({correct} of {total})")
    print(f"final weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64, help="images a step, over all ranks")
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument("--data", default=os.path.join(here, "data", "digits.csv"))
    parser.add_argument("--checkpoint")
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--crash-at", type=int, default=-1)
    parser.add_argument("--crash-rank", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, PyTorch {torch.__version__}", flush=True)
    training, held_out = load_images(args.data)
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10)))
    train(args, model, *training)
    if dist.get_rank() == 0:
        report(model, *held_out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
