#!/usr/bin/env python3
"""Compares this build with the build of an older commit: launch, restart, store and rendezvous.

    compare.py [--old COMMIT] [--rounds N]

The older commit is built in $BUILD/compare/COMMIT, once. After that both builds take turns, so load
of the machine that comes and goes hits both. Each round measures everything once with each build;
the order of the two changes from round to round. For each figure, the table shows the medians of
both builds, and the median and the range of the ratio new/old of each round. A run of five rounds
takes about four minutes on two calm processors.

Launch, restart and store are measured by the programs of this tree, which start the programs of
either build. The benchmark of the rendezvous is linked with the code that it measures, so each
build has its own."""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
BENCH = ROOT / BUILD / "tests" / "bench"
FIRST = "d36ac76"  # the last commit before the rooms were divided into chambers
STORE_EVERY = 3    # the store's benchmark takes 20 s, so it runs only in every third round


def build_old(commit):
    """Builds the commit, unless that was done before. Returns its build folder."""
    source = ROOT / BUILD / "compare" / commit
    programs = ["bin/crun", "bin/crun-store", "tests/bench/rendezvous", "tests/bench/spawn_floor"]
    if not all((source / "build" / p).exists() for p in programs):
        print(f"building {commit}", flush=True)
        source.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", commit],
                                   stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            sys.exit(f"compare: there is no commit '{commit}'")
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "BUILD")}
        subprocess.run(["make", "-C", str(source), "-s", "-j2", *(f"build/{p}" for p in programs)],
                       env=env, check=True, stdout=subprocess.DEVNULL)
    return source / "build"


def output_of(build, *command):
    """Runs a benchmark on a build. PATH is empty, so that other launchers and stores are left
    out."""
    env = dict(os.environ, BUILD=str(build), PATH="/nonexistent", OMP_NUM_THREADS="1")
    done = subprocess.run([str(c) for c in command], env=env, cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    if done.returncode != 0:
        sys.exit(f"compare: {' '.join(map(str, command))} fails with BUILD={build}:\n{done.stdout}")
    return done.stdout


def numbers(pattern, text, what):
    found = re.search(pattern, text, re.M)
    if not found:
        sys.exit(f"compare: no figure for {what} in:\n{text}")
    return [float(n) for n in found.groups()]


def measure_launch(build):
    text = output_of(build, BENCH / "launch", "--rounds", "5", "--sizes", "1,32,128",
                     "--skip-torchrun")
    return {f"launch of {n} worker{'s' if n > 1 else ''}, ms":
            numbers(rf"^ *{n}  crun +([\d.]+) ms", text, "launch")[0] for n in (1, 32, 128)}


def measure_restart(build):
    text = output_of(build, BENCH / "restart", "--rounds", "11", "--skip-torchrun")
    first, last = numbers(r"crun +replacement +([\d.]+) ms +last of all +([\d.]+) ms", text,
                          "restart")
    return {"restart of 4 workers: replacement, ms": first,
            "restart of 4 workers: last of all, ms": last}


def measure_rendezvous(build):
    text = output_of(build, build / "tests" / "bench" / "rendezvous", "1024")
    join, push, again = numbers(
        r"^ *1024 +(?:no +)?([\d.]+) +-?[\d.]+ +([\d.]+) +([\d.]+)", text, "rendezvous")
    return {"rendezvous of 1,024 nodes: join, ms": join,
            "rendezvous of 1,024 nodes: push of a stop, ms": push,
            "rendezvous of 1,024 nodes: next round, ms": again}


def measure_store(build):
    text = output_of(build, BENCH / "store", "pipeline")
    rate, cpu_us = numbers(r"crun-store +(\d+) op/s +([\d.]+) us server cpu/op", text, "store")
    return {"store, 64 connections, 16 deep: us for one request": 1e6 / rate,
            "store: processor time of the server for one request, us": cpu_us}


def measure(build, with_store):
    figures = {**measure_launch(build), **measure_restart(build), **measure_rendezvous(build)}
    if with_store:
        figures.update(measure_store(build))
    return figures


def table(old, new):
    """`old` and `new`: figure -> list of values, one for each round."""
    yield "| what (less is better) | before | after | after / before |"
    yield "| --- | ---: | ---: | ---: |"
    for what, before in old.items():
        ratios = [n / o for o, n in zip(before, new[what]) if o > 0]
        yield (f"| {what} | {statistics.median(before):.4g} | {statistics.median(new[what]):.4g} | "
               f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", default=FIRST, help=f"the older commit (default: {FIRST})")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    builds = {"old": build_old(options.old), "new": ROOT / BUILD}
    found = {"old": {}, "new": {}}
    for i in range(options.rounds):
        for which in ("old", "new") if i % 2 == 0 else ("new", "old"):
            for what, value in measure(builds[which], i % STORE_EVERY == 0).items():
                found[which].setdefault(what, []).append(value)
        print(f"round {i + 1} of {options.rounds} is done", file=sys.stderr, flush=True)
    print(f"before: {options.old}; {options.rounds} rounds; load {os.getloadavg()[0]:.1f}\n")
    print("\n".join(table(found["old"], found["new"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
