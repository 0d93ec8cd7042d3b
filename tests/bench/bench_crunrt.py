#!/usr/bin/env python3
"""Benchmarks libcrunrt (`make bench-crunrt`): all-reduce on Gloo, in alternating runs with torch's
Gloo on the same machine; the cost of libcrunrt's own layer per call; the time from init to the
first result; and the cost of crunrt_step() with and without an agent.

    tests/bench/bench_crunrt.py [--ranks 2] [--rounds 3] [--steps-only | --first-only]
"""
import argparse
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import torch_python
from fake_agent import FakeAgent
from workers import BUILD, Store, contract

SIZES = [1 << 10, 1 << 16, 1 << 20, 16 << 20, 64 << 20]
ROUNDS = dict(zip(SIZES, [1000, 300, 100, 15, 7]))

TORCH = f"""
import os, statistics, sys, time
start = time.monotonic()
import torch, torch.distributed as dist
torch.set_num_threads(1)
imported = time.monotonic()
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
first = time.monotonic() - imported
for size, rounds in [] if "first" in sys.argv else {list(ROUNDS.items())}:
    data = torch.zeros(size // 4)
    took = []
    for i in range(rounds + 2):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(data)
        took.append((time.perf_counter() - begin) * 1e6)
    if dist.get_rank() == 0: print(size, statistics.median(took[2:]))
if dist.get_rank() == 0: print("first", first * 1e6)
dist.barrier()
"""


def run(argv, ranks):
    with Store() as store:
        workers = [subprocess.Popen(argv, env=contract(store, r, ranks, GLOO_SOCKET_IFNAME="lo"),
                                    stdout=subprocess.PIPE, text=True) for r in range(ranks)]
        outs = [w.communicate(timeout=600)[0] for w in workers]
    if any(w.returncode for w in workers):
        sys.exit(f"bench: {argv[0]} failed: {[w.returncode for w in workers]}")
    return {k: float(v) for k, v in (line.split() for line in outs[0].splitlines())}


def run_steps(linked):
    """Returns {"step": ns per crunrt_step(), "clock": ns per clock_gettime()}. If `linked`, the
    worker has a channel to an agent, and the agent's count of its steps is checked."""
    with Store() as store, FakeAgent() as agent:
        worker = subprocess.Popen([f"{BUILD}/tests/bench/step"], stdout=subprocess.PIPE, text=True,
                                  env=contract(store, 0, 1, CRUN_AGENT=agent.variable if linked
                                               else None))
        link = agent.accept() if linked else None
        out = worker.communicate(timeout=600)[0]
        if worker.returncode or (link and link.step != 10000000):
            sys.exit(f"bench: step failed: {worker.returncode}")
    return {k: float(v) for k, v in (line.split() for line in out.splitlines())}


def print_steps(rounds):
    for linked, name in ((True, "with an agent"), (False, "without")):
        runs = [run_steps(linked) for _ in range(rounds)]
        step, clock = (sorted(r[k] for r in runs) for k in ("step", "clock"))
        print(f"crunrt_step() {name}: {statistics.median(step):.1f} "
              f"[{step[0]:.1f}-{step[-1]:.1f}] ns a call; "
              f"clock_gettime() alone: {statistics.median(clock):.1f} ns")


def print_first(ranks, rounds, python):
    """Prints the time from init to the result of the first all-reduce, for libcrunrt and torch."""
    ours = [f"{BUILD}/tests/bench/all_reduce", "first"]
    took = {"libcrunrt": [], "torch": []}
    for _ in range(rounds):
        took["libcrunrt"].append(run(ours, ranks)["first"] / 1e3)
        if python:
            took["torch"].append(run([python, "-c", TORCH, "first"], ranks)["first"] / 1e3)
    text = "; ".join(f"{name} {statistics.median(t):.1f} [{min(t):.1f}-{max(t):.1f}] ms"
                     for name, t in took.items() if t)
    print(f"init to the first result, {ranks} ranks, {rounds} starts: {text} "
          "(torch: after its import)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps-only", action="store_true")
    parser.add_argument("--first-only", action="store_true")
    args = parser.parse_args()
    if args.steps_only:
        return print_steps(args.rounds)
    python = torch_python()
    if args.first_only:
        return print_first(4, 9, python)
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(run([f"{BUILD}/tests/bench/all_reduce"], args.ranks))
        if python:
            theirs.append(run([python, "-c", TORCH], args.ranks))

    def cell(runs, key):
        values = sorted(r[key] for r in runs)
        median = statistics.median(values)
        return median, f"{median:.0f} [{values[0]:.0f}-{values[-1]:.0f}]"

    def row(name, key, note=""):
        a, ours_text = cell(ours, key)
        b, theirs_text = cell(theirs, key) if theirs else (None, "-")
        ratio = f"{a / b:.2f}" if b else "-"
        print(f"{name:>10} {ours_text:>26} {theirs_text:>26} {ratio:>7}{note}")

    print(f"{args.ranks} ranks, loopback, all-reduce of float32, us: "
          f"median [lowest-highest] of {args.rounds} rounds")
    print(f"{'bytes':>10} {'libcrunrt':>26} {'torch gloo':>26} {'ratio':>7}")
    for size in SIZES:
        row(size, str(size))
    row("first", "first", "   init to the first result (torch: after its import)")
    print_first(4, 9, python)
    print(f"our layer: {statistics.median(o['layer'] for o in ours):.2f} us a call")
    print_steps(args.rounds)


if __name__ == "__main__":
    main()
