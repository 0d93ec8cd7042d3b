#!/usr/bin/env python3
"""Runs millions of simulated schedules in chunks, on several processors (`make sim-long`).

    long.py SIMULATOR FOLDER [--first N] [--schedules N] [--chunk N] [--jobs N] [--states N]

Each chunk leaves two files in a folder below FOLDER: the simulator's output, and a record of the
states that it has seen. The name of the folder follows from the contents of the simulator. So a
run can be stopped and continued later, and only a changed simulator begins again. At the end this
prints the number of clean schedules, and an estimate of the number of distinct states in the first
N schedules (--states N; these schedules take two thirds more time). Ends with status 1 if a
schedule has failed.
"""
import argparse
import concurrent.futures
import hashlib
import math
import os
import pathlib
import re
import subprocess
import sys


def run_chunk(simulator, folder, counts_states, first, count):
    """Runs the schedules with the seeds first to first + count - 1, unless that is done already.
    Returns (number of schedules, number of failed ones, output)."""
    done = folder / f"{first}-{count}.txt"
    if not done.exists():
        unfinished = done.with_suffix(".part")
        command = [simulator, "--first", str(first), "--schedules", str(count),
                   "--seconds-max", "1000000"]
        if counts_states:
            command += ["--states", done.with_suffix(".states")]
        with open(unfinished, "w") as out:
            subprocess.run(command, stdout=out, check=False)
        unfinished.rename(done)
    text = done.read_text()
    totals = re.search(r"^(\d+) schedules, .*; (\d+) failed, \d+ ms$", text, re.M)
    if totals is None:
        done.unlink()  # the simulator was killed or has crashed
        return 0, 1, f"{simulator} --first {first} --schedules {count} ended early: {text[-300:]}"
    return int(totals.group(1)), int(totals.group(2)), text


def count_states(folder):
    """Returns the estimated number of distinct states of all chunks (states.c)."""
    kept = bytearray(1 << 16)
    for path in folder.glob("*.states"):
        some = path.read_bytes()
        if len(some) == len(kept):
            kept = bytearray(map(max, kept, some))
    size = len(kept)
    estimate = 0.7213 / (1 + 1.079 / size) * size * size / sum(2.0 ** -k for k in kept)
    empty = kept.count(0)
    if estimate <= 2.5 * size and empty > 0:
        estimate = size * math.log(size / empty)
    return int(estimate)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("simulator")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--schedules", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=50_000)
    parser.add_argument("--states", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    name = hashlib.sha256(pathlib.Path(args.simulator).read_bytes()).hexdigest()[:16]
    folder = args.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    simulator = str(folder / "simulator")  # a copy: a build in the meantime changes nothing
    if not os.path.exists(simulator):
        subprocess.run(["cp", args.simulator, simulator], check=True)
    end = args.first + args.schedules
    chunks = [(first, min(args.chunk, end - first)) for first in range(args.first, end, args.chunk)]
    total = failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        def run(c):
            return run_chunk(simulator, folder, c[0] - args.first < args.states, *c)

        results = pool.map(run, chunks)
        for some, bad, text in results:
            total += some
            failed += bad
            if bad:
                print(text, end="", flush=True)
            elif total % (10 * args.chunk) == 0:
                print(f"{total} schedules, {failed} failed", flush=True)
    print(f"{total} schedules, {failed} failed; about {count_states(folder)} distinct states in "
          f"the first {min(args.states, total)}")
    sys.exit(1 if failed or total == 0 else 0)


if __name__ == "__main__":
    main()
