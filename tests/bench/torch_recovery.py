#!/usr/bin/env python3
"""Measures how long stock PyTorch needs after the SIGKILL of one of two ranks, recovered in place
by crun, restarted by crun and by torchrun, and recovered by torchft; and the start of 8 x true by
crun, by the hook (CRUN_TORCHRUN=1) and by torchrun. All in one run, in turn.

    tests/bench/torch_recovery.py PYTHON [DEATHS]

PYTHON must have torch 2.14 or later; torchft is measured if it is installed there."""
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
CRUN = str(BUILD / "bin" / "crun")
PYTHON = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
DEATHS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
WORKER = str(ROOT / "tests" / "bench" / "torch_worker.py")
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
LONGEST_S = 90
MOST_HANGS = 3
PRELOAD = "--preload=torch._dynamo,crunrt.recovery"
RANKS = ["--nproc-per-node=2", "--max-restarts=1000"]
# name, argument of the worker, launcher
WAYS = (("in place, survivors go on at once (--preload)", "at-once", [CRUN, PRELOAD, *RANKS]),
        ("in place, all wait for the replacement (--preload)", "in-place", [CRUN, PRELOAD, *RANKS]),
        ("torchft, a crun for each replica", "torchft", None),
        ("restart by crun --preload=torch", "restart", [CRUN, "--preload=torch._dynamo", *RANKS]),
        ("restart by crun", "restart", [CRUN, *RANKS]),
        ("restart by torchrun", "restart", [*TORCHRUN, *RANKS]))


def environment(**more):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("CRUN", "TORCH", "PET_"))}
    return dict(keep, PYTHONPATH=str(ROOT / "python"), PYTHON_EXEC=PYTHON, OMP_NUM_THREADS="1",
                CRUNRT_LIBRARY=str(BUILD / "lib" / "libcrunrt.so.0"), CUDA_VISIBLE_DEVICES="",
                GLOO_SOCKET_IFNAME="lo", RUST_LOG="error", **more)


class NoStep(Exception):
    """The wanted step did not come in LONGEST_S seconds."""


class Job:
    """The processes of one way, and the steps that their ranks have reported."""

    def __init__(self, folder, how, launcher):
        self.out, self.processes = folder / "out", []
        if how == "torchft":
            self.start([pathlib.Path(PYTHON).parent / "torchft_lighthouse", "--bind", "[::]:29510",
                        "--min_replicas", "1", "--join_timeout_ms", "1000"])
            for replica in "01":
                self.start([CRUN, "--nproc-per-node=1", "--max-restarts=1000",
                            "--preload=torch._dynamo,torchft", WORKER, how], REPLICA=replica,
                           TORCHFT_LIGHTHOUSE="http://localhost:29510")
        else:
            self.start([*launcher, WORKER, how])

    def start(self, argv, **more):
        with open(self.out, "a") as out:
            self.processes.append(subprocess.Popen(argv, stdout=out, stderr=out, cwd=ROOT,
                                                   env=environment(**more)))

    def steps(self):
        """All reported steps, as [pid, rank, size, time]."""
        lines = re.findall(r"^(\d+) (\d+) (\d+) \d+ ([\d.]+)$", self.out.read_text(), re.M)
        return [[int(pid), int(rank), int(size), float(at)] for pid, rank, size, at in lines]

    def wait_for_step(self, is_wanted):
        """Returns the first step, [pid, rank, size, time], for which is_wanted(step) is true."""
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline:
            for step in self.steps():
                if is_wanted(step):
                    return step
            time.sleep(0.02)
        raise NoStep

    def death(self):
        """Kills rank 1 once both ranks train. Returns the seconds until the first new step, and
        until the first step of both ranks."""
        begin = time.monotonic()
        pids = {r: self.wait_for_step(lambda s, r=r: s[1] == r and s[2] == 2 and s[3] > begin)[0]
                for r in (0, 1)}
        old = {s[0] for s in self.steps() if s[0] != pids[0]}
        at = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        both = self.wait_for_step(lambda s: s[1] == 1 and s[0] not in old and s[2] == 2)[3]
        # The first new step is a step of one rank alone, or a step of a new process. If there is no
        # such step before the first step of both ranks, it is that step.
        steps = [s[3] for s in self.steps()
                 if s[3] > at and s[0] not in old and (s[2] == 1 or s[0] != pids[0])]
        return min([both, *steps]) - at, both - at

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()


def measure(how, launcher):
    """Returns the times of DEATHS deaths, fewer after MOST_HANGS hangs; and the number of hangs. A
    job that hangs is ended, and the next deaths are those of a new job."""
    times, hangs = [], 0
    while len(times) < DEATHS and hangs < MOST_HANGS:
        with tempfile.TemporaryDirectory(prefix="crun-bench-") as folder:
            job = Job(pathlib.Path(folder), how, launcher)
            try:
                while len(times) < DEATHS:
                    times.append(job.death())
            except NoStep:
                hangs += 1
            finally:
                job.end()
    return times, hangs


def start_of(argv, **more):
    """Returns the seconds that a launcher takes for 8 x true, and its largest memory in MiB."""
    begin = time.monotonic()
    process = subprocess.Popen(argv, env=environment(**more), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        sys.exit(f"{argv} has failed")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def starts():
    rest = ["--nproc-per-node=8", "--no-python", "true"]
    hook = ("import site, sys; site.addsitedir(sys.argv.pop(1)); "
            "from torch.distributed.run import main; main(sys.argv[1:])")
    ways = (("crun", [CRUN, *rest], {}),
            ("hook", [PYTHON, "-c", hook, str(ROOT / "python"), *rest],
             {"CRUN_TORCHRUN": "1", "CRUN": CRUN}),
            ("torchrun", [*TORCHRUN, *rest], {}))
    best = {}
    for _ in range(3):  # in turn
        for name, argv, more in ways:
            best[name] = min(best.get(name, (1e9, 0)), start_of(argv, **more))
    for name, (took, memory) in best.items():
        print(f"start of 8 x true, {name}: best of 3 {took:.3f} s, {memory:.0f} MiB, "
              f"torchrun / this: {best['torchrun'][0] / took:.1f}", flush=True)


def main():
    starts()
    has_torchft = subprocess.run([PYTHON, "-c", "import torchft"], env=environment(),
                                 capture_output=True).returncode == 0
    base = None
    for name, how, launcher in WAYS:
        if how == "torchft" and not has_torchft:
            print("torchft is not installed in this Python (pip install torchft-nightly)")
            continue
        times, hangs = measure(how, launcher)
        if hangs:
            print(f"{name}: {hangs} times no step came for {LONGEST_S} s", flush=True)
        if not times:
            continue
        first, both = (statistics.median(t[i] for t in times) for i in (0, 1))
        base = base or (first, both)
        print(f"{name}: {len(times)} deaths, median {first:.3f} s to a next step "
              f"({first / base[0]:.1f} x), {both:.3f} s to one of both ranks "
              f"({both / base[1]:.1f} x)", flush=True)


if __name__ == "__main__":
    main()
