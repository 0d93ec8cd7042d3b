#!/usr/bin/env python3
"""Tests --numa-binding on this machine's own topology. A library in place of the GPU driver's
reports two of the machine's PCI devices as GPUs; their NUMA nodes come from the kernel."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, crun, run_tests, skip  # noqa: E402

SYS = pathlib.Path("/sys")
NVML = """
static const struct { unsigned domain, bus, device; } at[] = {%s};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = sizeof at / sizeof at[0]; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *) (long) (i + 1); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, void *out) {
    struct { char old[16]; unsigned domain, bus, device; } *p = out;
    long i = (long) d - 1;
    p->domain = at[i].domain; p->bus = at[i].bus; p->device = at[i].device;
    return 0;
}
"""
SHOW = "echo $LOCAL_RANK $(grep Cpus_allowed_list /proc/self/status)"


def cpus(text):
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def siblings(cpu):
    return cpus((SYS / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())


if not (SYS / "devices/system/node/node0/cpulist").exists():
    skip("this kernel tells of no NUMA nodes")
DEVICES = sorted(p.name for p in (SYS / "bus/pci/devices").glob("*.0"))[:2]
if len(DEVICES) < 2:
    skip("this machine has fewer than two PCI devices")
COMPILER = shutil.which("cc") or skip("no C compiler for a library in the place of NVML")
NODES = {int(p.name[4:]): cpus((p / "cpulist").read_text())
         for p in SYS.glob("devices/system/node/node[0-9]*")}
NODES = {n: c for n, c in NODES.items() if c}
OURS = os.sched_getaffinity(0)
if not (SYS / f"devices/system/cpu/cpu{min(OURS)}/topology/thread_siblings_list").exists():
    skip("this kernel tells of no cores")


def node_of(device):
    told = int((SYS / f"bus/pci/devices/{device}/numa_node").read_text())
    return told if len(NODES) > 1 else min(NODES)


def run(tmp, *options, **env):
    where = [re.fullmatch(r"(\w+):(\w+):(\w+)\.0", d).groups() for d in DEVICES]
    source = tmp / "nvml.c"
    source.write_text(NVML % ", ".join("{0x%s, 0x%s, 0x%s}" % w for w in where))
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", tmp / "libnvidia-ml.so.1", source],
                   check=True)
    env = clean_env(LD_LIBRARY_PATH=tmp, LOGLEVEL="info", OMP_NUM_THREADS=1, **env)
    done = crun("--standalone", *options, "sh", "-c", SHOW, env=env)
    return done, {int(r): cpus(c) for r,
                  c in re.findall(r"^(\d+) Cpus_allowed_list: (\S+)$", done.stdout, re.M)}


def test_the_cpus_of_the_node(tmp):
    done, bound = run(tmp, "--numa-binding=node", "--nproc-per-node=gpu")
    assert done.returncode == 0, done
    for rank, device in enumerate(DEVICES):
        node = node_of(device)
        assert bound[rank] == (NODES[node] & OURS if node >= 0 else OURS), (done, bound)
        if node >= 0:
            assert f"local rank {rank} is bound to CPUs" in done.stderr, done
            assert device in done.stderr, done
        else:
            assert f"local rank {rank} is not bound" in done.stderr, done


def test_cores_of_their_own(tmp):
    nodes = [node_of(d) for d in DEVICES]
    cores = {min(siblings(cpu)) for cpu in NODES.get(nodes[0], set()) & OURS}
    done, bound = run(tmp, "--numa-binding", "exclusive", "--nproc-per-node=2")
    if nodes[0] < 0 or nodes[0] != nodes[1]:
        print("the two devices are not on one known node: nothing to share out")
    elif len(cores) < 2:
        assert done.returncode == 2 and f"{len(cores)} physical core(s)" in done.stderr, done
    else:
        assert done.returncode == 0 and not bound[0] & bound[1], (done, bound)
        assert bound[0] | bound[1] == NODES[nodes[0]] & OURS, (done, bound)


def test_the_gpu_that_is_meant(tmp):
    done, _ = run(tmp, "--numa-binding=socket", "--nproc-per-node=1", CUDA_VISIBLE_DEVICES="1")
    assert done.returncode == 0, done
    assert DEVICES[1] in done.stderr and DEVICES[0] not in done.stderr, done


def test_more_workers_than_gpus(tmp):
    done, _ = run(tmp, "--numa-binding=core-complex", "--nproc-per-node=2",
                  CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 2, done
    assert "cannot bind 2 worker(s), each near a GPU of its own: this node shows 1 GPU(s) " \
           "(CUDA_VISIBLE_DEVICES='0')" in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
