"""One rank of a torch job: it calls init_process_group("gloo") with its environment and does an
all-reduce. With argv[1] "ddp", it also trains a few steps with DDP; after them all ranks must have
equal weights."""
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
one = torch.full((4,), float(rank + 1))
dist.all_reduce(one)
assert one.tolist() == [size * (size + 1) / 2] * 4, one
if "ddp" in sys.argv:
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    seen = [torch.zeros_like(flat) for _ in range(size)]
    dist.all_gather(seen, flat)
    assert all(torch.equal(flat, other) for other in seen)
dist.barrier()
dist.destroy_process_group()
print("rank", rank, "of", size, "attempt", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
      "done")
