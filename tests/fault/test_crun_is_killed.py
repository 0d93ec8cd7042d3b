#!/usr/bin/python3
"""After kill -9 of crun, or of its whole Unix process group, every worker and every descendant must
end, also in another Unix session; with a cgroup even a descendant that has cleared its environment.
The warden ends last and removes the cgroup. The same must be true for a crun that is a worker of
another crun, whether the outer crun is killed or only the inner one."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from processes import (CRUN, HOSTILE, HOSTILE_KINDS, Crun, assert_gone,
                       cgroup_delegated,  # noqa: E402
                       cgroups_of, children, name, start_hostile, until)


def check(kill, cgroup):
    crun, pids = start_hostile(cleared=cgroup, env={"CRUN_CGROUP": "1" if cgroup else "0"})
    with crun:
        warden = crun.warden()
        assert bool(cgroups_of(crun.pid)) == cgroup
        kill(crun.pid, signal.SIGKILL)
        assert crun.wait() == -signal.SIGKILL
        assert_gone(pids, "worker or descendant")
        assert_gone([warden], "the warden")
        until(lambda: not cgroups_of(crun.pid), "the removal of the cgroup")


def inner_of(crun):
    return until(lambda: next((c for c in children(crun.pid) if name(c) == "crun"), None),
                 "the inner crun")


def nested(kill_outer, cgroup):
    script = HOSTILE.replace("$$", "$$$$")  # outer and inner crun each replace $$ by $
    inner = [str(CRUN), "--no-python", "/bin/sh", "-c", script]
    with Crun("--no-python", *inner, env={"CRUN_CGROUP": cgroup}) as crun:
        pids = [crun.pid_of(f"0.{kind}.pid") for kind in HOSTILE_KINDS]
        inside = inner_of(crun)
        os.kill(crun.pid if kill_outer else inside, signal.SIGKILL)
        assert_gone(pids, "worker or descendant")
        assert_gone([inside], "the inner crun")
        assert crun.wait() == (-signal.SIGKILL if kill_outer else 1)
        until(lambda: not cgroups_of(crun.pid) and not cgroups_of(inside),
              "the removal of the cgroups")


for kill in (os.kill, os.killpg):
    check(kill, cgroup=False)
    if cgroup_delegated():
        check(kill, cgroup=True)
    else:
        print("note: no cgroup v2 is delegated here; tried without one only")

for outer in (True, False):
    for delegated in ("0", "1"):
        nested(outer, delegated)
