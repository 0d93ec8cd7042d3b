"""A torch process of a group that shares one file store. argv: path, world size, rank. Rank r sets
rank/<r>, counts itself, waits for all the others, and swaps one key."""
import datetime
import sys

import torch.distributed as dist

path, size, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = dist.FileStore(path, size)
store.set_timeout(datetime.timedelta(seconds=60))
store.set(f"rank/{rank}", f"torch {rank}")
for _ in range(100):
    store.add("sum", 1)
values = [store.get(f"rank/{r}").decode() for r in range(size)]
if store.add("arrived", 1) == size:
    store.set("all", "here")
store.wait(["all"])
assert store.add("sum", 0) == 100 * size
assert store.compare_set("first", "", "torch") in (b"torch", b"c")
print(" ".join(values).replace(" ", "_"))
