#!/usr/bin/env python3
"""Starting a job on K hosts, which are network namespaces of this machine: crun --hosts, beside it
mpiexec.hydra with the same stand-in for ssh, and crun --on through a daemon on each host.

    tests/bench/hosts.py [K…]       default 2 16 64; needs root

For each K, one worker per host: from the start of the command to the first instruction of the last
worker. The floor is K of the stand-ins for ssh, all started at once, each of which runs a program
that only notes the time. All take turns; milliseconds, median of RUNS, and the largest value.

Then the end: the time from SIGKILL of the starter, whose workers sleep, until the last process on
the hosts is gone; beside it K of the stand-ins, each of which runs a cat whose input ends. At the
end, what an idle daemon costs: its memory (PSS), and how often it woke up in IDLE_S seconds; and
one command on loopback through a daemon, beside a real ssh if there is one.
"""
import ctypes
import os
import pathlib
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))
from crun_test import BUILD, CRUN, clean_env, read_text, wait_for
from hosts import Sshd, namespace_rsh
from job_daemon import Cluster
from netns import Net

RUNS = 7
IDLE_S = 10
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


def on(cluster, hosts, log):
    subprocess.run([CRUN, "--on", ",".join(h.addr for h in hosts), "--no-python", STAMP, log],
                   check=True, stdin=subprocess.DEVNULL, env=cluster.first.env())


def measure(start, rsh, hosts, log):
    log.write_text("")
    began = time.time()
    start(rsh, hosts, log)
    stamps = [float(line) for line in log.read_text().split()]
    assert len(stamps) == len(hosts), f"{start.__name__}: {len(stamps)} of {len(hosts)} workers"
    return 1000 * (max(stamps) - began)


def processes_on(hosts, but=()):
    """Returns pidfds of all processes in the hosts' network namespaces, except those of `but`."""
    inodes = {f"net:[{os.stat(f'/run/netns/{h.name}').st_ino}]" for h in hosts}
    found = []
    for pid in (int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()):
        try:
            if pid not in but and os.readlink(f"/proc/{pid}/ns/net") in inodes:
                found.append(os.pidfd_open(pid))
        except OSError:
            continue  # it has ended
    return found


def until_gone(hosts, but, kill):
    """Calls kill(), and returns the milliseconds until the last process on the hosts has ended."""
    waiting = select.poll()
    for fd in (fds := processes_on(hosts, but)):
        waiting.register(fd, select.POLLIN)
    left = len(fds)
    assert left >= len(hosts), f"{left} processes on {len(hosts)} hosts"
    began = time.time()
    kill()
    while left > 0:
        for fd, _ in waiting.poll():
            waiting.unregister(fd)
            left -= 1
    took = 1000 * (time.time() - began)
    for fd in fds:
        os.close(fd)
    assert not processes_on(hosts, but), "a process is left"
    return took


def end_of_crun(rsh, hosts, but, log):
    log.write_text("")
    p = subprocess.Popen([CRUN, "--rsh", rsh, "--hosts", ",".join(h.addr for h in hosts),
                          "--no-python", "sh", "-c", f"echo up >> {log}; exec sleep 1000"],
                         stdin=subprocess.DEVNULL, env=clean_env())
    wait_for(lambda: log.read_text().count("up") == len(hosts), "the workers")
    took = until_gone(hosts, but, p.kill)
    p.wait()
    return took


def end_of_cats(rsh, hosts, but, log):
    log.write_text("")
    ends = os.pipe()
    processes = [subprocess.Popen([rsh, h.addr, f"echo up >> {log}; exec cat"], stdin=ends[0])
                 for h in hosts]
    os.close(ends[0])
    wait_for(lambda: log.read_text().count("up") == len(hosts), "the cats")
    took = until_gone(hosts, but, lambda: os.close(ends[1]))
    for p in processes:
        p.wait()
    return took


def enter(name):
    """Moves this process into the network namespace. mpiexec must be there, because its proxies
    connect to it."""
    with open(f"/run/netns/{name}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
            sys.exit(f"cannot enter the network namespace {name}")


def memory_kib(pid):
    return int(re.search(r"^Pss: *(\d+)", read_text(f"/proc/{pid}/smaps_rollup"), re.M).group(1))


def switches(pid):
    """How often the kernel has taken the processor away from the process, or it has waited."""
    return sum(int(n) for n in re.findall(r"ctxt_switches:\s*(\d+)",
                                          read_text(f"/proc/{pid}/status")))


def idle(tmp):
    with Cluster(tmp) as cluster:
        pid = cluster.first.p.pid
        before = switches(pid)
        time.sleep(IDLE_S)
        print(f"an idle daemon: {memory_kib(pid)} KiB, woke up {switches(pid) - before} times in "
              f"{IDLE_S} s")


def calls(tmp):
    """One command that does nothing, through the daemon and by OpenSSH, in turn."""
    with Cluster(tmp) as cluster, Sshd(tmp) as sshd:
        ways = {"crun --call": ([CRUN, "--call", "127.0.0.1", "true"], cluster.first.env()),
                "ssh": ([*sshd.rsh.split(), "127.0.0.1", "true"], clean_env())}
        times = {way: [] for way in ways}
        for _ in range(3 * RUNS):
            for way, (command, env) in ways.items():
                began = time.time()
                subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=True)
                times[way].append(1000 * (time.time() - began))
    for way, t in times.items():
        print(f"one command by {way}: {statistics.median(t):.1f} ({max(t):.1f}) ms")


def row(k, tmp):
    ways = [floor, crun, on]
    if shutil.which("mpiexec.hydra"):
        ways.append(hydra)
    with Net(k + 1) as net:
        *hosts, front = net.hosts
        enter(front.name)
        rsh = namespace_rsh(tmp, hosts)
        times = {way: [] for way in ways}
        with Cluster(tmp, hosts) as cluster:
            for _ in range(RUNS):
                for way in ways:
                    means = cluster if way is on else rsh
                    times[way].append(measure(way, means, hosts, tmp / "log"))
            daemons = {daemon.p.pid for daemon in cluster.daemons}
            for way in (end_of_crun, end_of_cats):
                times[way] = [way(rsh, hosts, daemons, tmp / "log") for _ in range(RUNS)]
        return {way.__name__: (statistics.median(t), max(t)) for way, t in times.items()}


def main():
    print(f"{'K':>4} {'floor':>14} {'crun':>14} {'crun --on':>14} {'hydra':>14} "
          f"{'crun - floor':>13} {'end of crun':>14} {'of cats':>14}   "
          f"ms, median (largest) of {RUNS}")
    for k in [int(a) for a in sys.argv[1:]] or [2, 16, 64]:
        with tempfile.TemporaryDirectory() as tmp:
            got = row(k, pathlib.Path(tmp))
        cells = [f"{got[w][0]:.0f} ({got[w][1]:.0f})" if w in got else "-"
                 for w in ("floor", "crun", "on", "hydra", "end_of_crun", "end_of_cats")]
        over = got["crun"][0] - got["floor"][0]
        print(f"{k:>4} " + " ".join(f"{c:>14}" for c in cells[:4]) + f" {over:>13.0f} " +
              " ".join(f"{c:>14}" for c in cells[4:]), flush=True)
    with tempfile.TemporaryDirectory() as tmp:
        idle(pathlib.Path(tmp))
        calls(pathlib.Path(tmp))


main()
