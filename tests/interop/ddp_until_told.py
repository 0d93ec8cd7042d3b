"""Trains with DDP on gloo until the file given as second argument exists; the checkpoint is the
first. Writes "<step> <ranks>" beside the checkpoint after every step; at the end all ranks compare
weights."""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

checkpoint, told = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists(checkpoint):
    state = torch.load(checkpoint)
    model.module.load_state_dict(state["model"])
    step = state["step"]
while True:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + rank))
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
    step += 1
    if rank == 0:
        with open(checkpoint + ".log", "a") as f:
            f.write(f"{step} {size}\n")
        torch.save({"step": step, "model": model.module.state_dict()}, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
    over = torch.tensor([int(os.path.exists(told))])
    dist.broadcast(over, 0)
    if over.item():
        break
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
theirs = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(theirs, weights)
assert all(torch.equal(t, weights) for t in theirs), "the ranks have different weights"
dist.barrier()
dist.destroy_process_group()
# torch 2.15 sometimes aborts while a DDP process with Gloo exits, under torchrun, too. So the
# process exits without the exit handlers and destructors.
os._exit(0)
