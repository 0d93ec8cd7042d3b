#!/usr/bin/env python3
"""Measures how fast crun relays the lines of its workers with a prefix on each line, without log
files and with log files. Compares it with a bare relay of one thread that copies bytes
(bare_relay.c), and with mpiexec.hydra (-prepend-rank) if that is installed. The programs run in
turn; a program that only counts lines reads their output.

    output.py [--rounds N] [--workers N] [--mib N] [--rules] [--json FILE]

With --rules it also measures crun with a --hang-rule that no line matches, with one that each line
matches, and with a --value-rule that reads a number from each line.

The last lines are the medians of the ratios to the bare relay of the same round. The log files are
in /dev/shm, because the disk is not what is measured."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
LINE = b"step 12345 loss 0.123456789 lr 0.0003 tokens 1048576 grad_norm 1.2345678 mem 71234 M\n"


def measure(command):
    """Returns the MiB a second of the workers' output (without prefixes) that arrive."""
    begin = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
    lines, size = 0, 1 << 20
    os.set_blocking(process.stdout.fileno(), True)
    while data := os.read(process.stdout.fileno(), size):
        lines += data.count(b"\n")
    took = time.monotonic() - begin
    if process.wait() != 0:
        raise SystemExit(f"output: {command} failed")
    return lines * len(LINE) / took / (1 << 20), lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--mib", type=int, default=100, help="output of each worker")
    parser.add_argument("--rules", action="store_true", help="also measure rules on output")
    parser.add_argument("--json", help="append the figures to this file, one object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="crun-relay-") as folder:
        text = pathlib.Path(folder) / "lines"
        count = options.mib * (1 << 20) // len(LINE)
        text.write_bytes(LINE * count)
        cat = [shutil.which("cat"), text]
        crun = [BUILD / "bin" / "crun", f"--nproc-per-node={options.workers}", "-t", "1"]
        commands = {
            "bare": [BUILD / "tests" / "bench" / "bare_relay", options.workers, *cat],
            "crun": [*crun, "--log-dir=/dev/null", "--no-python", *cat],
            "files": [*crun, f"--log-dir={folder}/logs", "--no-python", *cat]}
        hydra = shutil.which("mpiexec.hydra")
        if hydra:
            commands["hydra"] = [hydra, "-prepend-rank", "-n", options.workers, *cat]
        if options.rules:
            end = ["--log-dir=/dev/null", "--no-python", *cat]
            commands["no-match"] = [*crun, "--hang-rule=600:600:eval_loss [0-9.]+", *end]
            commands["match"] = [*crun, "--hang-rule=600:600: loss [0-9.]+", *end]
            commands["value"] = [*crun, "--value-rule=nan:3: loss ([^ ]+)", *end]
        rates = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                rate, lines = measure(command)
                if lines != count * options.workers:
                    raise SystemExit(f"output: {name} has lost lines: {lines}")
                rates[name].append(rate)
                shutil.rmtree(f"{folder}/logs", ignore_errors=True)
    for name, found in rates.items():
        print(f"{name:6} {statistics.median(found):8.0f} MiB/s ({min(found):.0f} to "
              f"{max(found):.0f})")
    ratios = {name: [c / b for c, b in zip(rates[name], rates["bare"])] for name in rates}
    for name, title in (("crun", "crun with prefixes"), ("files", "the same and log files")):
        found = ratios[name]
        print(f"{title} / bare relay: {statistics.median(found):.2f} ({min(found):.2f} to "
              f"{max(found):.2f})")
    if options.json:
        with open(options.json, "a") as out:
            out.write(json.dumps({"bench": "output", "rates": rates, "ratios": ratios}) + "\n")


if __name__ == "__main__":
    main()
