#!/usr/bin/env python3
# timeout: 14400
"""Recovery in place without waiting for the replacement: four ranks of stock PyTorch on two hosts,
while random ranks, and the crun of the second host with its ranks, are killed. `make
interop-recovery` runs it; KILLS=1000 SEED=N choose how many are killed, and which; MINUTES=30 ends
the killing after that time.

Every survivor must keep its pid; the weights at the end must be those of one process that has
computed the same steps alone. The times of all deaths are printed."""
import json
import os
import pathlib
import random
import select
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, ROOT, SCALE, alive, clean_env, read_text  # noqa: E402
from crun_test import python_that_reconfigures, run_tests, signal, wait_for  # noqa: E402
from netns import Net  # noqa: E402

PYTHON = python_that_reconfigures("interop-recovery")
KILLS = int(os.environ.get("KILLS", "3"))
AGENTS = float(os.environ.get("AGENTS", "0.1"))  # part of the kills that kill an agent
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
MINUTES = float(os.environ.get("MINUTES", "1e9"))
PATIENCE = 120 * SCALE
RANKS = 4
WORKER = ROOT / "tests" / "interop" / "recover_until_told.py"
DATA = ROOT / "examples" / "data" / "digits.csv"


def environment(**more):
    return clean_env(PYTHONPATH=ROOT / "python", PYTHON_EXEC=PYTHON, OMP_NUM_THREADS=1,
                     CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0", CUDA_VISIBLE_DEVICES="",
                     **more)


class Process:
    """What a worker has written to its file, read as it grows."""

    def __init__(self, path):
        self.pid, self.path, self.read = int(path.name.split("-")[0]), path, 0
        self.recoveries, self.size, self.begins, self.end, self.step = [], 0, None, None, 0

    def update(self):
        with open(self.path) as file:
            file.seek(self.read)
            data = file.read()
        whole = data[:data.rfind("\n") + 1]
        self.read += len(whole.encode())
        for line in whole.splitlines():
            what = json.loads(line)
            self.step = what.get("step", self.step)
            self.size = what.get("size", self.size)
            if "recovered" in what:
                self.recoveries.append(what)
            if "begins" in what:
                self.begins = what["begins"]
            if "ends" in what:
                self.end = what["ends"], what["weights"]


class Job:
    """Two hosts with two ranks each, and a crun on the second host that waits for a place."""

    def __init__(self, tmp, net):
        self.tmp, self.net = tmp, net
        self.known, self.dead = {}, set()  # Process by the name of its file; names of files
        self.folder = tmp / "workers"
        self.folder.mkdir()
        self.nodes = [self.start(0), self.start(1)]
        self.wait_for(self.is_whole, "all ranks")
        self.spare = self.start(1)

    def start(self, host):
        options = [f"--nproc-per-node={RANKS // 2}", "--nnodes=2", "--rdzv-backend=c10d",
                   f"--rdzv-endpoint={self.net.hosts[0].addr}:29400", "--rdzv-id=job",
                   "--max-restarts=100000", "--rdzv-conf=flap_limit=0,aside_after=0",
                   "--preload=torch._dynamo,crunrt.recovery",
                   f"--log-dir={self.tmp}/logs"]
        with open(self.tmp / "out", "a") as out:
            return subprocess.Popen([*self.net.hosts[host].run, CRUN, *options, WORKER,
                                     self.folder, f"--data={DATA}", "--pause=0.01"],
                                    stdout=out, stderr=out,
                                    env=environment(GLOO_SOCKET_IFNAME="eth0"))

    def living(self):
        """{pid: Process} of the workers that train."""
        for path in self.folder.iterdir():
            if "-" in path.name and path.name not in self.dead:
                self.known.setdefault(path.name, Process(path)).update()
        return {p.pid: p for name, p in self.known.items()
                if name not in self.dead and p.begins is not None}

    def is_whole(self):
        living = self.living().values()
        return len(living) == RANKS and all(p.size == RANKS for p in living)

    def wait_for(self, condition, what):
        def check():
            assert all(n.poll() is None for n in self.nodes), self.text()
            return condition()
        try:
            return wait_for(check, what, PATIENCE)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.text()}") from None

    def text(self):
        return read_text(self.tmp / "out")[-6000:] + str(
            {p.pid: (p.begins, p.size, len(p.recoveries)) for p in self.known.values()})

    def workers_of(self, crun):
        """The living workers whose parent is this crun."""
        return {pid for pid in self.living()
                if int(read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1]) == crun}

    def kill(self, victims, target):
        """Kills `target`, by which `victims` die. Returns for each survivor the seconds from the
        SIGKILL, and from the moment at which the kernel reports the target's death, to its first
        new result; and its other times. Between the two moments the kernel frees the target's
        memory, for which it needs longer the more a process has mapped."""
        living = self.living()
        before = {p: len(p.recoveries) for pid, p in living.items() if pid not in victims}
        ends, pidfd = select.poll(), os.pidfd_open(target)
        ends.register(pidfd, select.POLLIN)
        self.dead |= {living[pid].path.name for pid in victims}
        killed = time.monotonic()
        os.kill(target, signal.SIGKILL)
        assert ends.poll(PATIENCE * 1000), "the target has not died"
        os.close(pidfd)
        died = time.monotonic()

        def go_on():
            assert all(alive(p.pid) for p in before), "a survivor has died\n" + self.text()
            self.living()
            return all(len(p.recoveries) > n for p, n in before.items())
        self.wait_for(go_on, "the survivors' next step")
        last = [p.recoveries[n] for p, n in before.items()]
        return [{"killed": r["result"] - killed, "died": r["result"] - died,
                 "told": r["told"] - died, "failed": r["failed"] - r["told"],
                 "round": r["round"] - r["failed"], "met": r["met"] - r["round"],
                 "ready": r["ready"] - r["met"],
                 "first": r["result"] - r["ready"]} for r in last]

    def kill_something(self, chance):
        """Returns what died, and the times of the survivors."""
        if chance.random() >= AGENTS:
            victim = chance.choice(sorted(self.living()))
            return "rank", self.kill({victim}, victim)
        node, self.nodes[1] = self.nodes[1], self.spare
        crun = self.crun_of(node)
        times = self.kill(self.workers_of(crun), crun)
        node.wait()
        self.spare = self.start(1)
        return "agent", times

    def crun_of(self, node):
        return node.pid  # ip netns exec becomes the program

    def end(self):
        """Lets the ranks end. Returns the number of steps and the weights, equal on all ranks."""
        last = max(p.step for p in self.living().values())
        last += 1000
        self.wait_for(self.is_whole, "all ranks")
        (self.folder / "last").write_text(str(last))
        for node in self.nodes:
            assert node.wait(PATIENCE) == 0, self.text()
        ends = [p.end for p in self.living().values()]
        assert len(ends) == RANKS and len(set(ends)) == 1, ends
        return ends[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in [*self.nodes, self.spare]:
            node.kill()
            node.wait()


def weights_of_one_process(tmp, steps):
    folder = tmp / "alone"
    folder.mkdir()
    (folder / "last").write_text(str(steps))
    subprocess.run([CRUN, WORKER, folder, f"--data={DATA}"], check=True, env=environment(),
                   stderr=subprocess.DEVNULL, timeout=PATIENCE * 20)
    alone, = (Process(p) for p in folder.iterdir() if "-" in p.name)
    alone.update()
    return alone.end


def line(times, which):
    ordered = sorted(t[which] * 1e3 for t in times)
    part = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.5, 0.99)]
    return f"{which} {part[0]:.0f} / {part[1]:.0f} / {ordered[-1]:.0f}"


def report(kind, times):
    print(f"{kind}: {len(times)} results of survivors, ms (median / p99 / largest): "
          f"{', '.join(line(times, which) for which in times[0])}", flush=True)


def test_ranks_and_agents_die_on_two_hosts(tmp):
    print(f"KILLS={KILLS} SEED={SEED} AGENTS={AGENTS}")
    chance, times, begun = random.Random(SEED), {}, time.monotonic()
    with Net(2) as net, Job(tmp, net) as job:
        for number in range(1, KILLS + 1):
            until = time.monotonic() + chance.random() * 0.1
            job.wait_for(lambda: time.monotonic() >= until, "a random moment")
            what, new = job.kill_something(chance)
            times.setdefault(what, []).extend(new)
            job.wait_for(job.is_whole, "the replacement")
            took = time.monotonic() - begun
            if number % 10 == 0 or took > MINUTES * 60:
                print(f"{number} kills, {took:.0f} s", flush=True)
                for kind, some in times.items():
                    report(f"so far, {kind}", some)
            if took > MINUTES * 60:
                break
        steps, weights = job.end()
    for what, some in times.items():
        report(what, some)
    assert weights_of_one_process(tmp, steps) == (steps, weights), "other weights than alone"
    print(f"{number} kills, {steps} steps: the weights are those of one process, bit for bit")


if __name__ == "__main__":
    run_tests(globals())
