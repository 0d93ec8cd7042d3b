#!/usr/bin/env python3
"""One Gloo group of C ranks and Python torch ranks. torch 1.13 (Debian's, on the same libgloo): they
all-reduce, broadcast and exchange messages together."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BUILD, DEADLINE_S, Store, Worker, contract, expect, program, skip, wait_for

PYTHON = "/usr/bin/python3"
TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.arange(1000, dtype=torch.float32) + rank
dist.all_reduce(x)
assert torch.equal(x, torch.arange(1000) * size + size * (size - 1) / 2), x
word = torch.tensor([1234 if rank == 0 else 0])
dist.broadcast(word, 0)
assert word.item() == 1234
if rank == 0:
    for peer in range(2, size):
        ball = torch.tensor([peer * 10])
        dist.send(ball, peer, tag=5)
        dist.recv(ball, peer, tag=6)
        assert ball.item() == peer * 10 + 1
dist.barrier()
print("torch rank", rank, "of", size, "right")
"""

if not os.path.exists(f"{BUILD}/lib/crunrt/gloo.so"):
    skip("the gloo backend was not built (libgloo-dev)")
found = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
if found.returncode != 0 or not found.stdout.startswith("1.13"):
    skip("Debian's torch 1.13 is not installed (python3-torch)")

SIZE = 4
PREFIX = "/worker/attempt_0/default_pg/0/0"
BARRIER = "/worker/attempt_0/default_pg/store_based_barrier_key:1"
with Store() as store:
    env = [contract(store, r, SIZE, GLOO_SOCKET_IFNAME="lo") for r in range(SIZE)]
    workers = [Worker([PYTHON, "-c", TORCH], env[r]) for r in (0, 1)]
    workers += [Worker([program("join_torch"), PREFIX, BARRIER], env[r]) for r in (2, 3)]
    wait_for(workers)
    for r in (0, 1):
        expect(workers, r, 0, f"torch rank {r} of 4 right")
    for r in (2, 3):
        expect(workers, r, 0, f"C rank {r} of 4: sum right, word 1234, ball {r * 10 + 1}")
print("PASS")
