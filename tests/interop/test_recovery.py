#!/usr/bin/env python3
# timeout: 1500
"""Recovery in place of stock PyTorch: examples/recover_digits.py while random ranks are killed.
Needs a torch that can reconfigure groups: `make interop-modern` makes one.

KILLS=1000 SEED=N choose how many ranks are killed, and which."""
import os
import pathlib
import random
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, ROOT, SCALE, alive, clean_env, read_text  # noqa: E402
from crun_test import python_that_reconfigures, run_tests, signal, wait_for  # noqa: E402
from netns import Net  # noqa: E402

PYTHON = python_that_reconfigures("interop-modern")
KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
PATIENCE = 120 * SCALE
RANKS = 4


class Job:
    """examples/recover_digits.py on one node, or on two hosts. What it prints goes to files."""

    def __init__(self, tmp, name, steps, net=None):
        self.tmp, self.name, self.steps, self.net = tmp, name, steps, net
        self.nodes = [self.start(i) for i in range(2 if net else 1)]
        self.killed = set()

    def start(self, index):
        options = [f"--nproc-per-node={RANKS}"]
        prefix = []
        if self.net:
            prefix = self.net.hosts[index].run
            options = [f"--nproc-per-node={RANKS // 2}", "--nnodes=2", "--rdzv-backend=c10d",
                       f"--rdzv-endpoint={self.net.hosts[0].addr}:29400", "--rdzv-id=job",
                       "--rdzv-conf=last_call_timeout=0.2"]
        env = clean_env(PYTHONPATH=ROOT / "python", PYTHON_EXEC=PYTHON, OMP_NUM_THREADS=1,
                        CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0",
                        CUDA_VISIBLE_DEVICES="",
                        GLOO_SOCKET_IFNAME="eth0" if self.net else None)
        with open(self.tmp / f"{self.name}.{index}", "a") as out:
            return subprocess.Popen([*prefix, CRUN, *options, "--max-restarts=2000",
                                     ROOT / "examples" / "recover_digits.py", "--steps",
                                     str(self.steps)], stdout=out, stderr=out, env=env)

    def text(self):
        return "".join(read_text(p) for p in sorted(self.tmp.glob(f"{self.name}.?")))

    def begun(self):
        return {int(p): int(r) for r, p in re.findall(r"rank (\d+) pid (\d+) begins", self.text())}

    def living(self):
        """The pids of the workers that train; a killed one is no longer among them."""
        return [pid for pid in self.begun() if pid not in self.killed]

    def recoveries(self):
        """{pid: [times of the first result, failed, met, ready]}"""
        found = {}
        for pid, *times in re.findall(r"pid (\d+) recovered \d+ times, step \d+ at ([\d.]+) "
                                      r"\(told [\d.]+, failed ([\d.]+), met ([\d.]+), "
                                      r"ready ([\d.]+)\)",
                                      self.text()):
            found.setdefault(int(pid), []).append([float(t) for t in times])
        return found

    def wait_for(self, condition, what):
        def check():
            assert all(n.poll() is None for n in self.nodes), self.text()
            return condition()
        try:
            return wait_for(check, what, PATIENCE)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.text()}") from None

    def kill(self, pid):
        """Kills a worker, and waits until the others have made their next step with its successor.
        Returns of each survivor the seconds from the death until its step failed, and from the
        moment at which all ranks had met until that step was made."""
        before = {p: len(r) for p, r in self.recoveries().items()}
        survivors = [p for p in self.living() if p != pid]
        self.killed.add(pid)
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self.wait_for(lambda: all(len(self.recoveries().get(p, ())) > before.get(p, 0)
                                  for p in survivors), "the survivors' next step")
        assert all(alive(p) for p in survivors), "a survivor's process has changed\n" + self.text()
        last = [self.recoveries()[p][-1] for p in survivors]
        return [(failed - at, first - met) for first, failed, met, _ in last]

    def end(self):
        """Waits for the end. Returns the weights of all ranks, which must be equal."""
        try:
            for node in self.nodes:
                assert node.wait(PATIENCE) == 0, self.text()
        finally:
            for node in self.nodes:
                node.kill()
                node.wait()
        # Workers write to one file, so that the lines of two may be glued together.
        ends = re.findall(r"rank (\d) pid \d+ ends after (\d+) steps, weights ([0-9a-f]{16})",
                          self.text())
        assert sorted(int(r) for r, _, _ in ends) == list(range(RANKS)), self.text()
        assert {int(s) for _, s, _ in ends} == {self.steps}, self.text()
        assert len({w for _, _, w in ends}) == 1, self.text()
        return ends[0][2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.kill()
            node.wait()


def test_a_node_dies_and_comes_back(tmp):
    """Kills the crun of the second host, and with it its two workers; then starts it again."""
    with Net(2) as net:
        with Job(tmp, "disturbed", 1500, net) as job:
            job.wait_for(lambda: len(job.living()) == RANKS, "all ranks")
            mine = set(map(int, re.findall(r"pid (\d+) begins", read_text(tmp / "disturbed.1"))))
            survivors = [p for p in job.living() if p not in mine]
            job.killed |= mine
            job.nodes[1].kill()
            job.nodes[1].wait()
            job.nodes[1] = job.start(1)
            job.wait_for(lambda: all(job.recoveries().get(p) for p in survivors),
                         "the survivors' next step")
            assert len(survivors) == 2 and all(alive(p) for p in survivors), job.text()
            weights = job.end()
    with Job(tmp, "undisturbed", 1500) as job:
        assert job.end() == weights, "other weights than those of an undisturbed run"


def kill_some(tmp, count, chance, net=None):
    """Returns the weights at the end, the times of Job.kill(), and the number of steps."""
    times = []
    with Job(tmp, "disturbed", 1500 + 500 * count, net) as job:
        job.wait_for(lambda: len(job.living()) == RANKS, "all ranks")
        for _ in range(count):
            try:
                job.nodes[0].wait(chance.random() * 0.3)  # a random moment
            except subprocess.TimeoutExpired:
                pass
            times += job.kill(chance.choice(job.living()))
            job.wait_for(lambda: len(job.living()) == RANKS, "the replacement")
        return job.end(), times, job.steps


def report(times, what):
    def line(values, part):
        ordered = sorted(values)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1e3
    for which, text in ((0, "from a death to the failure of a survivor's step"),
                        (1, "from the replacement's arrival to a survivor's next result")):
        values = [t[which] for t in times]
        print(f"{what}, {text}, {len(values)} samples: median {line(values, 0.5):.0f} ms, "
              f"p99 {line(values, 0.99):.0f} ms")
    assert max(t[0] for t in times) < 10 * SCALE, "told late; the group's timeout is 30 minutes"


def test_ranks_die_on_one_node(tmp):
    print(f"SEED={SEED}")
    weights, times, steps = kill_some(tmp, KILLS, random.Random(SEED))
    report(times, "one node")
    with Job(tmp, "undisturbed", steps) as job:
        assert job.end() == weights, "other weights than those of an undisturbed run"


def test_ranks_die_on_two_hosts(tmp):
    with Net(2) as net:
        weights, times, steps = kill_some(tmp, KILLS, random.Random(SEED + 1), net)
        report(times, "two hosts")
    with Job(tmp, "undisturbed", steps) as job:
        assert job.end() == weights, "other weights than those of an undisturbed run"


def test_a_script_alone_and_an_unfit_torch_say_so(tmp):
    text = ("import torch, torch.distributed as d, crunrt.recovery as r, sys\n"
            "if sys.argv[1] == 'old': del d._reconfigure\n"
            "rec = r.Recovery(torch.nn.Linear(1, 1))\n"
            "for step in rec.steps(2):\n"
            "    with rec: rec.model(torch.ones(1, 1)).sum().backward()\n"
            "print('made', rec.done)\n")
    path = tmp / "alone.py"
    path.write_text(text)
    env = clean_env(PYTHONPATH=ROOT / "python", PYTHON_EXEC=PYTHON, OMP_NUM_THREADS=1,
                    CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0")
    for argv, more, why in (
            ([PYTHON, path, "alone"], dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                                           MASTER_PORT="0"), "crun has not started"),
            ([CRUN, path, "old"], {}, "cannot reconfigure")):
        done = subprocess.run(argv, env=dict(env, **more), capture_output=True, text=True,
                              timeout=PATIENCE)
        assert "made 2" in done.stdout, done
        assert f"no recovery in place: {why}" in done.stderr or why in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
