#!/usr/bin/python3
"""After kill -9 of the warden the workers run on, and crun starts another warden, which ends them
when crun is killed later. If crun and the warden are killed together, as pkill -9 crun does, the
deputy ends the workers and all that they have started. If the deputy is killed, too, the next crun
ends what is left in the cgroup, and removes it, however deep it is nested; but it does not touch
the cgroup of a crun that lives in another pid namespace."""
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from free_port import free_port  # noqa: E402
from processes import (CRUN, Crun, assert_gone, cgroup_delegated, cgroups_of,  # noqa: E402
                       children, environment, is_alive, name, start_hostile, stat, until)

DEEP = 300  # levels of cgroups


def another_takes_its_place():
    crun, pids = start_hostile(env={"CRUN_CGROUP": "0"})
    with crun:
        for _ in range(3):
            first = crun.warden()
            os.kill(first, signal.SIGKILL)
            until(lambda: not is_alive(first) and crun.warden() != first, "another warden")
            assert all(is_alive(pid) for pid in pids)
            assert crun.process.poll() is None
        last = crun.warden()
        os.kill(crun.pid, signal.SIGKILL)
        assert_gone(pids, "worker or descendant")
        assert_gone([last], "the last warden")


def many_deaths_are_reported():
    with Crun("--no-python", "/bin/sh", "-c", "echo $$ >$PIDS/0.pid; exec sleep 1000") as crun:
        worker = crun.pid_of("0.pid")

        def no_warden_is_left():
            for child in children(crun.pid):
                if name(child) == "crun-warden" and is_alive(child):
                    os.kill(child, signal.SIGKILL)
            return "the warden died 16 times and is not started again" in crun.said()

        until(no_warden_is_left, "the warning")
        assert is_alive(worker)


def command_line(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def deputy_of(warden):
    return until(lambda: next((c for c in children(warden) if name(c) == "nursery-deputy"), None),
                 "the deputy")


def kill_together(crun, *others):
    os.kill(crun.pid, signal.SIGSTOP)  # a stopped crun cannot start another warden
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    os.kill(crun.pid, signal.SIGKILL)
    assert crun.wait() == -signal.SIGKILL


def all_that_are_called_crun(cgroup):
    """What pkill -9 crun kills, also with -f: crun and the warden, but not the deputy."""
    crun, pids = start_hostile(cleared=cgroup == "1", env={"CRUN_CGROUP": cgroup})
    with crun:
        warden = crun.warden()
        deputy = deputy_of(warden)
        until(lambda: b"crun" not in command_line(deputy), "another command line")
        kill_together(crun, warden)
        assert_gone(pids, "worker or descendant")
        assert_gone([deputy], "the deputy")
        until(lambda: not cgroups_of(crun.pid), "the removal of the cgroup")


def a_deputy_does_not_stay():
    crun, pids = start_hostile("--shutdown-timeout=0.1")
    with crun:
        first = crun.warden()
        old = deputy_of(first)
        os.kill(first, signal.SIGKILL)
        until(lambda: not is_alive(first) and crun.warden() != first, "another warden")
        assert_gone([old], "the deputy of the dead warden")
        new = deputy_of(crun.warden())
        crun.process.terminate()
        assert crun.wait() == 1
        assert_gone([*pids, new], "process")


def nest(folder, levels):
    for _ in range(levels):
        os.mkdir("x", dir_fd=folder)
        deeper = os.open("x", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)


def the_next_crun_tidies():
    """All three are dead, and processes are left that only the cgroup finds."""
    crun, pids = start_hostile(cleared=True)
    with crun:
        group = until(lambda: cgroups_of(crun.pid), "the cgroup")[0]
        warden = crun.warden()
        nest(os.open(group, os.O_RDONLY), DEEP)
        kill_together(crun, deputy_of(warden), warden)
        left = [pid for pid in pids if is_alive(pid)]
        assert left, "nothing is left to tidy"
        with Crun("--no-python", "/bin/true") as another:
            assert another.wait() == 0
        assert_gone(left, "what was left")
        until(lambda: not cgroups_of(crun.pid), "the removal of the cgroup")


def a_crun_of_another_pid_namespace_is_left_alone():
    """It waits for a second node, so its cgroup has no process."""
    outer = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", str(CRUN), "--nnodes=2",
         "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--no-python",
         "/bin/true"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment())
    namespace = "none yet"

    def groups():
        return [group for group in cgroups_of(1) if f"-{namespace}-" in group]

    try:
        inner = until(lambda: next((c for c in children(outer.pid) if name(c) == "crun"), None),
                      "the inner crun")
        namespace = os.stat(f"/proc/{inner}/ns/pid").st_ino
        until(groups, "the cgroup of the crun that waits")
        with Crun("--no-python", "/bin/true") as another:
            assert another.wait() == 0
            until(lambda: not cgroups_of(another.pid), "the removal of its own cgroup")
        # The deputy of `another` sweeps before it exits. Its parent is then init, or tests/run.py.
        parents = "1", str(os.getppid())
        until(lambda: not any(name(pid) == "nursery-deputy" and (stat(pid) or "??")[1] in parents
                              for pid in map(int, filter(str.isdigit, os.listdir("/proc")))),
              "the end of the sweep")
        assert groups(), "the cgroup of a live crun was removed"
    finally:
        outer.kill()
        outer.wait()
    with Crun("--no-python", "/bin/true") as another:
        assert another.wait() == 0
    until(lambda: not groups(), "the removal of the cgroup of the dead crun")


another_takes_its_place()
many_deaths_are_reported()
a_deputy_does_not_stay()
all_that_are_called_crun("0")
if cgroup_delegated():
    all_that_are_called_crun("1")
    the_next_crun_tidies()
    a_crun_of_another_pid_namespace_is_left_alone()
else:
    print("note: no cgroup v2 is delegated here; tried without one only")
