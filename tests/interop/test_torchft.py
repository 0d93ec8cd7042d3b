#!/usr/bin/env python3
# timeout: 600
"""The real torchft on two hosts (network namespaces): one replica of one rank, under one crun, on
each host. `make interop-torchft` installs torchft from PyPI and runs this test."""
import os
import re
import signal
import subprocess
import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, CRUN_STORE, ROOT, SCALE, clean_env, kill, python_that_reconfigures
from crun_test import read_text, run, run_tests, skip, start, wait_for
from netns import Net

PYTHON = python_that_reconfigures("interop-torchft")
if subprocess.run([PYTHON, "-c", "import torchft"], capture_output=True).returncode:
    skip("torchft is not installed in this Python; make interop-torchft installs it")
WORKER = ROOT / "tests" / "bench" / "torch_worker.py"
NAMES = ["head", "n2"]
TRAINS_S = 180 * SCALE


class Job:
    """torchft's lighthouse on the first host, and one replica on each host of `net`."""

    def __init__(self, tmp, net, options):
        self.tmp, self.net, self.processes = tmp, net, []
        self.lighthouse_log = tmp / "lighthouse"
        lighthouse = pathlib.Path(PYTHON).parent / "torchft_lighthouse"
        self.start(net.hosts[0], self.lighthouse_log, [lighthouse, "--bind", "[::]:29510",
                   "--min_replicas", 1, "--join_timeout_ms", 1000], RUST_LOG="info")
        for i, host in enumerate(net.hosts):
            self.start(host, self.out(i), [CRUN, "--nproc-per-node=1", "--max-restarts=10",
                       *options[i], WORKER, "torchft"], REPLICA=i, RUST_LOG="warn",
                       GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS=1, PYTHON_EXEC=PYTHON,
                       CUDA_VISIBLE_DEVICES="", TORCHFT_LIGHTHOUSE="http://head:29510")

    def start(self, host, log, argv, **more):
        with open(log, "w") as out:
            self.processes.append(start([*host.run, *argv], env=clean_env(**more), stdout=out,
                                        stderr=out, cwd=self.tmp))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes[1:]:
            process.send_signal(signal.SIGTERM)
        for process in self.processes[1:]:
            try:
                process.wait(60 * SCALE)
            except subprocess.TimeoutExpired:
                kill(process)
        kill(self.processes[0])

    def out(self, i):
        return self.tmp / f"replica{i}"

    def steps(self, i):
        """Returns (pid, number of replicas, step) of each step of a replica so far."""
        found = re.findall(rf"^(\d+) {i} (\d+) (\d+) [\d.]+$", read_text(self.out(i)), re.M)
        return [tuple(map(int, step)) for step in found]

    def wait_for_steps(self, i, what, is_wanted):
        wait_for(lambda: any(map(is_wanted, self.steps(i))),
                 f"{what}:\n{read_text(self.out(i))[-3000:]}", TRAINS_S)

    def wait_for_both(self):
        for i in (0, 1):
            self.wait_for_steps(i, f"steps of replica {i} with 2 replicas", lambda s: s[1] == 2)

    def stores(self):
        """Returns the addresses of the replicas' stores that torchft has told the lighthouse."""
        found = re.findall(r'store_address: "([^"]*)"', read_text(self.lighthouse_log))
        return list(dict.fromkeys(found))


def stores_are_reached_from_the_other_host(net, job, addresses):
    """Each replica's store is at its host's address, and the other host reads torchft's key."""
    stores = job.stores()
    assert sorted(s.rsplit(":", 1)[0] for s in stores) == addresses, stores
    for store in stores:
        for host in net.hosts:
            done = run([*host.run, CRUN_STORE, "get", store, "manager_addr"])
            assert done.returncode == 0 and "http://" in done.stdout, (store, host.addr, done)


def kill_replica(job, net):
    """Kills the worker of the second host. Its replacement must train together with the first
    host's worker, which keeps its pid and loses no step."""
    survivor, killed = job.steps(0)[-1][0], job.steps(1)[-1][0]
    last = max(step for _, _, step in job.steps(0))
    os.kill(killed, signal.SIGKILL)
    job.wait_for_steps(1, "the replacement to train with 2 replicas",
                       lambda s: s[0] != killed and s[1] == 2)
    replaced = [s for s in job.steps(1) if s[0] != killed]
    assert replaced[0][2] >= last, (last, replaced[0])  # it got the survivor's state
    job.wait_for_steps(0, "the survivor to train with the replacement",
                       lambda s: s[1] == 2 and s[2] >= replaced[0][2])
    assert {pid for pid, _, _ in job.steps(0)} == {survivor}, job.steps(0)[-5:]


def test_a_crun_on_each_host_without_any_address(tmp):
    with Net(2, names=NAMES) as net:
        for host in net.hosts:
            host.etc_hosts("10.77.0.1 head", "10.77.0.2 n2")
        with Job(tmp, net, [[], []]) as job:
            job.wait_for_both()
            stores_are_reached_from_the_other_host(net, job, ["10.77.0.1", "10.77.0.2"])
            kill_replica(job, net)


def test_local_addr_is_where_the_store_is(tmp):
    """Each host has two addresses; torchft's lighthouse hears of the one of --local-addr."""
    with Net(2, names=NAMES) as net:
        for i, host in enumerate(net.hosts, 1):
            host.etc_hosts("10.77.0.1 head", "10.77.0.2 n2")
            subprocess.run([*host.run, "ip", "addr", "add", f"10.77.0.{i + 10}/24", "dev", "eth0"],
                           check=True)
        options = [["--local-addr=10.77.0.11"], ["--local-addr=10.77.0.12"]]
        with Job(tmp, net, options) as job:
            job.wait_for_both()
            stores_are_reached_from_the_other_host(net, job, ["10.77.0.11", "10.77.0.12"])


if __name__ == "__main__":
    run_tests(globals())
