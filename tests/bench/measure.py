#!/usr/bin/env python3
"""Runs the benchmarks of launch, recovery, store and rendezvous, and writes their figures as JSON.

    tests/bench/measure.py FOLDER [--python PYTHON]      writes FOLDER/benchmarks.json

PYTHON has the torch whose torchrun and TCPStore are the peers. Without it the script takes
CRUN_TEST_TORCH_PYTHON, Debian's python3, or the first python3 of PATH that can import torch. Each
benchmark prints a table, which this script prints, too, and reads. The JSON also names the machine,
its load, the commit, the versions of the peers, and each peer that was left out. A line that a
benchmark prints and no reader below knows is not in the JSON; a benchmark without any known line
is an error. tests/bench/figures.py draws the JSON."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))
from crun_test import torch_python  # noqa: E402  (its folder is known only now)

BUILD = os.environ.get("BUILD", "build")
NUMBER = r"([\d.]+)"

# ---- one reader for each kind of line; the groups of the pattern are the fields, in order ----

LAUNCH = (re.compile(rf"\s*(\d+)  (\w+)\s+{NUMBER} ms  \[\s*{NUMBER} … \s*{NUMBER}\]"
                     rf"\s+{NUMBER}x floor\s+{NUMBER} MiB  \((\d+) runs, (\d+) hung\)"),
          "workers who median_ms lowest_ms highest_ms ratio_to_floor memory_mib runs hung")
RESTART = (re.compile(rf"\s*(\d+) workers  (\w+)\s+replacement\s+{NUMBER} ms   last of all\s+"
                      rf"{NUMBER} ms  \[{NUMBER} … {NUMBER}\]  \((\d+) runs\)"),
           "workers who replacement_ms last_ms lowest_last_ms highest_last_ms runs")
IN_PLACE = (re.compile(rf"(\d+) ranks, (in place|all anew): median\s+{NUMBER} ms, fastest\s+"
                       rf"{NUMBER}, slowest\s+{NUMBER}"),
            "workers how median_ms lowest_ms highest_ms")
STORE = (re.compile(rf"(\d+) (?:outstanding|deep), (\d+) conn\s+(\S+)\s+{NUMBER} op/s\s+{NUMBER} us"
                    rf" server cpu/op  ours/it\s+{NUMBER} \({NUMBER} to {NUMBER}\)"),
         "depth connections who per_second cpu_us crun_to_it lowest_ratio highest_ratio")
STORE_TIME = (re.compile(rf"(storm 2000, 1000 at once|join of\s+\d+ clients|multi-get of \d+ keys|"
                         rf"wake\s+\d+ waiters)\s+(\S+)\s+{NUMBER} ms"), "what who ms")
MEMBERS = (re.compile(rf"\s*(\d+)\s+no\s+{NUMBER}\s+(-?[\d.]+)\s+{NUMBER}\s+{NUMBER}\s"),
           "members join_ms late_ms push_ms next_round_ms")
NODES = (re.compile(rf"\s*(\d+)\s+(\d+)\s+(\d+|-)\s+{NUMBER}\s+(\d+)\s+{NUMBER}\s+(\d+)$"),
         "launchers start_ms torchrun_start_ms worker_dies_stopped_ms worker_dies_again_ms "
         "launcher_dies_stopped_ms launcher_dies_again_ms")


def value_of(text):
    """Returns a number if the text is one, None for "-", and the text with single spaces else."""
    if text == "-":
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return " ".join(text.split())


def rows_of(reader, lines):
    pattern, fields = reader
    found = [pattern.match(line) for line in lines]
    return [dict(zip(fields.split(), map(value_of, m.groups()))) for m in found if m]


def left_out(lines):
    """Returns the lines that say which peer was not measured, and failed runs."""
    known = ("left out", "is not installed", "a run failed", "skipped")
    return [" ".join(line.split()) for line in lines if any(text in line for text in known)]


class Run:
    """Runs the benchmarks one after the other and collects what they print."""

    def __init__(self, python):
        self.environment = dict(os.environ, BUILD=BUILD)
        if python:
            self.environment["CRUN_TEST_TORCH_PYTHON"] = python
            self.environment["TORCHRUN"] = f"{python} {ROOT}/tests/lib/torchrun.py"
        self.left_out = []

    def lines(self, *command):
        print("+", *command, flush=True)
        lines = []
        with subprocess.Popen(command, cwd=ROOT, env=self.environment, text=True,
                              stdout=subprocess.PIPE) as process:
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip())
        if process.returncode != 0:
            sys.exit(f"measure.py: {command[0]} ended with status {process.returncode}; "
                     "nothing was written")
        self.left_out = list(dict.fromkeys(self.left_out + left_out(lines)))
        return lines

    def read(self, readers, *command):
        """Returns the rows of each reader. It is an error if a reader finds none."""
        lines = self.lines(*command)
        tables = [rows_of(reader, lines) for reader in readers]
        if not all(tables):
            sys.exit(f"measure.py: no known line in the output of {command[0]}; was its format "
                     "changed? See the patterns in tests/bench/measure.py")
        return tables


def measured(run):
    bench = f"{BUILD}/tests/bench"
    store, times = run.read([STORE, STORE_TIME], f"{bench}/store", "loop", "pipeline", "storm",
                            "join", "multiget", "wake")
    launch, = run.read([LAUNCH], f"{bench}/launch")
    restart, = run.read([RESTART], f"{bench}/restart")
    in_place, = run.read([IN_PLACE], "tests/bench/in_place.py")
    members, = run.read([MEMBERS], f"{bench}/rendezvous", "--plain")
    nodes, = run.read([NODES], "tests/bench/nodes.py", "2", "8")
    return {"launch": with_ratio(launch, ["workers"], "median_ms"),
            "recovery": {"restart": with_ratio(restart, ["workers"], "replacement_ms"),
                         "in_place": in_place},
            "rendezvous": {"launchers": nodes, "members": members},
            "store": {"speed": store, "times": times}}


def with_ratio(rows, same, field):
    """Adds to each row its figure divided by that of crun in the row with the same key fields."""
    ours = {tuple(row[key] for key in same): row[field] for row in rows if row["who"] == "crun"}
    for row in rows:
        base = ours.get(tuple(row[key] for key in same))
        row["ratio_to_crun"] = round(row[field] / base, 2) if base else None
    return rows


# ---- where and when ----


def first_number(*command):
    """Returns the first version number that the command prints, or None if it cannot be run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError:
        return None
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return found.group(0) if found and done.returncode == 0 else None


def peers(python):
    torch = first_number(python, "-c", "import torch; print(torch.__version__)") if python else None
    return {"torch": torch, "mpiexec.hydra": first_number("mpiexec.hydra", "--version"),
            "mpirun": first_number("mpirun", "--version"),
            "redis": first_number("redis-server", "--version")}


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    kib = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    kernel = ".".join(platform.release().split(".")[:2])
    return {"cpu": cpu.group(1) if cpu else platform.machine(), "cores": os.cpu_count(),
            "memory_gib": round(int(kib.group(1)) / 2**20), "kernel": f"Linux {kernel}"}


def commit():
    done = subprocess.run(["git", "describe", "--always", "--abbrev=8", "--exclude=*"], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip() or None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--python")
    args = parser.parse_args()
    python = args.python or torch_python()
    run = Run(python)
    data = {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine(),
            "nice": os.nice(0), "load_before": round(os.getloadavg()[0], 1), "peers": peers(python)}
    data |= measured(run)
    data |= {"load_after": round(os.getloadavg()[0], 1), "left_out": run.left_out}
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / "benchmarks.json"
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
