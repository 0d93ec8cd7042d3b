#!/usr/bin/env python3
"""Starting a job on K hosts, which are network namespaces of this machine: crun --hosts, and beside
it mpiexec.hydra with the same stand-in for ssh.

    tests/bench/hosts.py [K…]       default 2 16 64; needs root

For each K, one worker per host: from the start of the command to the first instruction of the last
worker. The floor is K of the stand-ins for ssh, all started at once, each of which runs a program
that only notes the time. All take turns; milliseconds, median of RUNS, and the largest value.
"""
import ctypes
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))
from crun_test import BUILD, CRUN, clean_env
from hosts import namespace_rsh
from netns import Net

RUNS = 7
CLONE_NEWNET = 0x40000000
STAMP = str(BUILD / "tests" / "bench" / "stamp")


def floor(rsh, hosts, log):
    processes = [subprocess.Popen([rsh, h.addr, f"{STAMP} {log}"], stdin=subprocess.DEVNULL)
                 for h in hosts]
    for p in processes:
        p.wait()


def crun(rsh, hosts, log):
    subprocess.run([CRUN, "--rsh", rsh, "--hosts", ",".join(h.addr for h in hosts), "--no-python",
                    STAMP, log], check=True, stdin=subprocess.DEVNULL, env=clean_env())


def hydra(rsh, hosts, log):
    subprocess.run(["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", rsh, "-iface", "eth0",
                    "-hosts", ",".join(h.addr for h in hosts), "-n", str(len(hosts)), STAMP, log],
                   check=True, stdin=subprocess.DEVNULL, env=clean_env(),
                   stdout=subprocess.DEVNULL)


def measure(start, rsh, hosts, log):
    log.write_text("")
    began = time.time()
    start(rsh, hosts, log)
    stamps = [float(line) for line in log.read_text().split()]
    assert len(stamps) == len(hosts), f"{start.__name__}: {len(stamps)} of {len(hosts)} workers"
    return 1000 * (max(stamps) - began)


def enter(name):
    """Moves this process into the network namespace. mpiexec must be there, because its proxies
    connect to it."""
    with open(f"/run/netns/{name}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
            sys.exit(f"cannot enter the network namespace {name}")


def row(k, tmp):
    ways = [floor, crun]
    if shutil.which("mpiexec.hydra"):
        ways.append(hydra)
    with Net(k + 1) as net:
        *hosts, front = net.hosts
        enter(front.name)
        rsh = namespace_rsh(tmp, hosts)
        times = {way: [] for way in ways}
        for _ in range(RUNS):
            for way in ways:
                times[way].append(measure(way, rsh, hosts, tmp / "log"))
        return {way.__name__: (statistics.median(t), max(t)) for way, t in times.items()}


def main():
    print(f"{'K':>4} {'floor':>14} {'crun':>14} {'hydra':>14} {'crun - floor':>13}   ms, median "
          f"(largest) of {RUNS}")
    for k in [int(a) for a in sys.argv[1:]] or [2, 16, 64]:
        with tempfile.TemporaryDirectory() as tmp:
            got = row(k, pathlib.Path(tmp))
        cells = [f"{got[w][0]:.0f} ({got[w][1]:.0f})" if w in got else "-"
                 for w in ("floor", "crun", "hydra")]
        over = got["crun"][0] - got["floor"][0]
        print(f"{k:>4} " + " ".join(f"{c:>14}" for c in cells) + f" {over:>13.0f}", flush=True)


main()
