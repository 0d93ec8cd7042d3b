#!/usr/bin/env python3
# timeout: 600
"""Unmodified PyTorch scripts under crun, with the torch that is installed: nothing here knows
crun."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_job import Job  # noqa: E402
from crun_test import skip, torch_python  # noqa: E402

PYTHON = torch_python() or skip("no Python here has torch (Debian: python3-torch)")

ENV_INIT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(t)
dist.barrier()
print(f"sum {t.item():g} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
"""

DDP = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())            # DDP must make the start equal
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(100 + dist.get_rank())
x = torch.randn(64, 4)
y = x @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])
for step in range(60):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
gathered = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, flat)
assert all(torch.equal(g, flat) for g in gathered), "ranks differ"
assert loss.item() < 0.1, loss.item()
if dist.get_rank() == 0:
    print("trained", flush=True)
dist.destroy_process_group()
os._exit(0) # torch 2.15 aborts now and then while a DDP process with Gloo ends, under torchrun, too
"""

RECORD = """
import os, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("the data is bad")
    time.sleep(600)
main()
"""

# Rank 1 dies after the group has met; the next attempt must not see the first one's keys.
RESTART = """
import os, sys, torch, torch.distributed as dist
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
assert store.add("mine", 1) <= dist.get_world_size(), "an old key"
t = torch.ones(1)
dist.all_reduce(t)
if attempt == 0 and dist.get_rank() == 1:
    os._exit(9)
if attempt == 0:
    dist.all_reduce(t)                        # waits for the dead one, or fails
    import time; time.sleep(600)
print(f"attempt {attempt} sum {t.item():g}", flush=True)
dist.destroy_process_group()
"""

STORE = """
import os, datetime, torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                      timeout=datetime.timedelta(seconds=60))
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store.set(f"key{rank}", f"value{rank}")
store.wait([f"key{r}" for r in range(size)])
assert store.get(f"key{(rank + 1) % size}") == f"value{(rank + 1) % size}".encode()
store.add("done", 1)
while store.add("done", 0) < size:
    pass
print("met", flush=True)
"""

OBJECTS = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
box = [{"from": 0}] if dist.get_rank() == 0 else [None]
dist.broadcast_object_list(box, src=0)
group = dist.new_group([0, 2])
if dist.get_rank() in (0, 2):
    dist.barrier(group)
assert box[0] == {"from": 0}
dist.barrier()
print("shared", flush=True)
"""


class Scripts(unittest.TestCase):
    def run_script(self, text, *options, status=0):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(text)
            job = Job(*options, script, env={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                                                "PYTHON_EXEC": PYTHON})
        self.assertEqual(job.status, status, f"{job.out}\n{job.err}")
        return job

    def said(self, job, text, times):
        """Python -u writes a line and its end apart, so lines of different ranks may touch."""
        self.assertEqual(job.out.count(text), times, job.out)

    def test_init_process_group(self):
        self.said(self.run_script(ENV_INIT, "--nproc-per-node=3"), "sum 6 of 3", 3)

    def test_init_process_group_static(self):
        self.said(self.run_script(ENV_INIT, "--nproc-per-node=2", "--master-port=0"), "sum 3 of 2",
                  2)

    def test_distributed_data_parallel(self):
        self.assertEqual(self.run_script(DDP, "--nproc-per-node=2").out, "trained\n")

    def test_objects_and_groups(self):
        self.said(self.run_script(OBJECTS, "--nproc-per-node=3"), "shared", 3)

    def test_store(self):
        self.said(self.run_script(STORE, "--nproc-per-node=3"), "met", 3)

    def test_restart(self):
        job = self.run_script(RESTART, "--nproc-per-node=2", "--max-restarts=2")
        self.said(job, "attempt 1 sum 2", 2)
        self.assertNotIn("attempt 0", job.out)

    def test_record(self):
        job = self.run_script(RECORD, "--nproc-per-node=2", status=1)
        self.assertIn("ValueError: the data is bad", job.err)
        self.assertRegex(job.err, r"rank +: 1 \(local_rank: 1\)")

    def test_record_goes_to_our_own_error_file(self):
        with tempfile.TemporaryDirectory() as folder:
            script, own = pathlib.Path(folder, "script.py"), pathlib.Path(folder, "own.json")
            script.write_text(RECORD)
            job = Job("--nproc-per-node=2", script, env={"TORCHELASTIC_ERROR_FILE": str(own),
                                                                "PYTHON_EXEC": PYTHON})
            self.assertEqual(job.status, 1)
            message = json.loads(own.read_text())["message"]
        self.assertEqual(message["message"], "ValueError: the data is bad")
        self.assertEqual(message["errorCode"], 1)


if __name__ == "__main__":
    unittest.main()
