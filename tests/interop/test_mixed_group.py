#!/usr/bin/env python3
"""One Gloo group of C ranks and Python torch ranks. torch 1.13 (Debian's, on the same libgloo):
they all-reduce, broadcast and exchange messages together. CRUN_TEST_MODERN_PYTHON's torch, whose
Gloo is a later one: the C ranks say so at once and send it nothing."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from workers import BUILD, Store, Worker, contract, expect, program, skip, wait_for

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
print(f"torch rank {rank} of {size} right")
"""

if not os.path.exists(f"{BUILD}/lib/crunrt/gloo.so"):
    skip("the gloo backend was not built (libgloo-dev)")


def torch_version(python):
    found = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                           capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else ""


SIZE = 4


def start(store, python, prefix, barrier):
    env = [contract(store, r, SIZE, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
           for r in range(SIZE)]
    workers = [Worker([python, "-c", TORCH], env[r]) for r in (0, 1)]
    return workers + [Worker([program("join_torch"), prefix, barrier], env[r]) for r in (2, 3)]


def same_gloo():
    with Store() as store:
        attempt = "/worker/attempt_0/default_pg/"
        workers = wait_for(start(store, PYTHON, attempt + "0/0", attempt
                                 + "store_based_barrier_key:1"))
        for r in (0, 1):
            expect(workers, r, 0, f"torch rank {r} of 4 right")
        for r in (2, 3):
            expect(workers, r, 0, f"C rank {r} of 4: sum right, word 1234, ball {r * 10 + 1}")


def later_gloo(python):
    with Store() as store:
        workers = start(store, python, "default_pg/0//cpu//0", "")
        wait_for(workers, among=[2, 3])  # then the torch ranks, which wait for them, are killed
        for r in (2, 3):
            expect(workers, r, 1, "FAILED: join:", "rank 0 has a later Gloo than this module")


seen = []
if torch_version(PYTHON).startswith("1.13"):
    same_gloo()
    seen.append("together with torch 1.13")
MODERN = os.environ.get("CRUN_TEST_MODERN_PYTHON")
if MODERN:
    later_gloo(MODERN)
    seen.append(f"refused by name with torch {torch_version(MODERN)}")
if not seen:
    skip("Debian's torch 1.13 is not installed (python3-torch)")
print("PASS:", ", ".join(seen))
