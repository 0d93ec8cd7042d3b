#!/usr/bin/env python3
"""What the leftovers of a dead launcher cost the next launches: a cgroup with LEVELS nested ones,
and a living process in the lowest, as a crun leaves it that was killed together with its warden and
its deputy.

    tests/bench/leftovers.py [LEVELS [ROUNDS]]      default 300 21; needs a delegated cgroup v2

For 1 and for 4 workers that run /bin/true, the time from the start of crun to its exit: "alone",
with no leftover; "beside", with one that is there when crun starts, and is made anew for each
launch; "next", started when "beside" has ended, while the leftover is still being removed; and
"stays", beside such cgroups of a launcher that lives, which are not removed. All take turns. The
table has medians in ms, and in brackets the median of the rounds' ratios to "alone". "Gone" is the
time from the start of "beside" until the leftover is removed.

All of it is in a cgroup of its own, so that other launches on this machine do not remove the
leftovers."""
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from crun_test import CRUN, clean_env  # noqa: E402
from processes import cgroup_delegated, cgroup_root, name, stat, until  # noqa: E402

LEVELS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 21
CASES = ("alone", "beside", "next", "stays", "gone")
QUIET = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]
ENVIRONMENT = clean_env(OMP_NUM_THREADS="1")


def own_cgroup():
    path = next(line[4:].strip() for line in open("/proc/self/cgroup") if line.startswith("0::/"))
    return cgroup_root() / path.lstrip("/")


def move_to(folder):
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def launch(workers):
    """Returns the time of one launch in ms."""
    words = [str(CRUN), f"--nproc-per-node={workers}", "--no-python", "/bin/true"]
    began = time.monotonic()
    pid = os.posix_spawn(CRUN, words, ENVIRONMENT, file_actions=QUIET)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
    return 1000 * (time.monotonic() - began)


def name_of_a_cgroup(pid, start):
    """The name of the cgroup of a launcher of this pid namespace."""
    spaces = [os.stat(f"/proc/self/ns/{space}").st_ino for space in ("pid", "cgroup")]
    return f"crun-{pid}-{start}-{spaces[0]}-{spaces[1]}-leftover"


def start_sleeper():
    left = subprocess.Popen(["sleep", "1000"])
    until(lambda: name(left.pid) == "sleep" and stat(left.pid)[0] == "S", "sleep to sleep")
    return left


def make_cgroups(is_left):
    """Makes the cgroups of a launcher that is dead, or of this process if is_left is false. Returns
    the folder and the process in it."""
    start = 1 if is_left else stat(os.getpid())[19]
    top = OWN / name_of_a_cgroup(os.getpid(), start)
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("x", dir_fd=at)
        deeper = os.open("x", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    left = start_sleeper()
    procs = os.open("cgroup.procs", os.O_WRONLY, dir_fd=at)
    os.write(procs, str(left.pid).encode())
    os.close(procs)
    os.close(at)
    return top, left


def settle():
    """Waits until nothing of an earlier launch runs or is there."""
    only = f"{os.getpid()}\n"
    until(lambda: (OWN / "cgroup.procs").read_text() == only and not list(OWN.glob("crun-*")),
          "the end of the last launch's deputy")


def measure_alone(workers, times):
    """The processor is as busy before as it is before "beside": an idle one takes longer to start
    something."""
    settle()
    until_s = time.monotonic() + times["making"]
    other = start_sleeper()
    while time.monotonic() < until_s:
        pass
    times["alone"].append(launch(workers))
    other.kill()
    other.wait()


def measure_beside(workers, times):
    settle()
    began = time.monotonic()
    top, left = make_cgroups(is_left=True)
    times["making"] = time.monotonic() - began
    began = time.monotonic()
    times["beside"].append(launch(workers))
    times["next"].append(launch(workers))
    until(lambda: not top.exists(), "the removal of the leftover")
    times["gone"].append(1000 * (time.monotonic() - began))
    assert left.wait() == -signal.SIGKILL, left.returncode


def measure_stays(workers, times):
    settle()
    top, inside = make_cgroups(is_left=False)
    times["stays"].append(launch(workers))
    inside.kill()
    inside.wait()
    for depth in range(LEVELS, -1, -1):
        os.rmdir(str(top) + "/x" * depth)


def cell(times, case):
    ratios = [t / alone for t, alone in zip(times[case], times["alone"])]
    return f"{statistics.median(times[case]):9.2f} ({statistics.median(ratios):.2f}x)"


def main():
    print(f"leftover: {LEVELS} nested cgroups and a process; medians of {ROUNDS}, in ms\n"
          f"{'workers':>7} {'alone':>9} {'beside':>17} {'next':>17} {'stays':>17} {'gone':>9}")
    for workers in (1, 4):
        times = {"making": 0, **{case: [] for case in CASES}}
        for i in range(ROUNDS + 1):
            for turn in (measure_alone, measure_beside, measure_stays)[::1 if i % 2 else -1]:
                turn(workers, times)
        for case in CASES:
            times[case].pop(0)  # the first round warms up
        print(f"{workers:7} {statistics.median(times['alone']):9.2f} {cell(times, 'beside'):>17} "
              f"{cell(times, 'next'):>17} {cell(times, 'stays'):>17} "
              f"{statistics.median(times['gone']):9.1f}", flush=True)


if not cgroup_delegated():
    sys.exit("this needs a cgroup v2 below which cgroups can be made")
parent = own_cgroup()
OWN = parent / f"bench-{os.getpid()}"
OWN.mkdir()
try:
    move_to(OWN)
    main()
    settle()
finally:
    move_to(parent)
    OWN.rmdir()
