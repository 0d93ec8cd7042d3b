#!/usr/bin/python3
"""The failure report names the kernel's out-of-memory killer: in crun's own memory cgroup, in one
below it into which a wrapper has put the worker, and in a container with the host's cgroup
namespace, where /proc/self/cgroup has another path than the mount."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from crun_test import CRUN, DEBIAN_PYTHON, clean_env, run, run_tests, skip, wait_for  # noqa: E402

V1 = pathlib.Path("/sys/fs/cgroup/memory")
LIMIT = 64 << 20  # bytes
# Allocates more than the limit, in a cgroup of its own if $OWN is given.
WORKER = """
import os
if "OWN" in os.environ:
    open(os.environ["OWN"] + "/cgroup.procs", "w").write("0")
held = []
while True:
    held.append(bytearray(os.urandom(1 << 20)))
"""
# Moves this shell into the cgroup $GROUP, and executes its arguments.
ENTER = ["sh", "-c", 'echo $$ >"$GROUP/cgroup.procs" && exec "$@"', "enter"]


def own_folder():
    """Returns the folder of our memory cgroup of version 1."""
    for line in open("/proc/self/cgroup"):
        _, controllers, path = line.rstrip("\n").split(":", 2)
        if controllers == "memory":
            return V1 / path.lstrip("/")
    return None


if os.geteuid() != 0 or own_folder() is None or not (own_folder() / "tasks").exists():
    skip("no memory cgroup of version 1 in which this user may make cgroups")


class Group:
    def __init__(self, name):
        self.path = own_folder() / f"crun-test-{os.getpid()}-{name}"
        self.below = self.path / "below"

    def __enter__(self):
        self.below.mkdir(parents=True)
        for folder in (self.path, self.below):
            (folder / "memory.limit_in_bytes").write_text(str(LIMIT))
            swap = folder / "memory.memsw.limit_in_bytes"
            if swap.exists():
                swap.write_text(str(LIMIT))
        return self

    def __exit__(self, *_):
        for folder in (self.below, self.path):
            wait_for(lambda f=folder: not (f / "cgroup.procs").read_text(), "an empty cgroup")
            folder.rmdir()


def check(group, *prefix, **env):
    done = run([*prefix, CRUN, "--no-python", DEBIAN_PYTHON, "-c", WORKER],
               env=clean_env(GROUP=group.path, CRUN_CGROUP="0", **env))
    assert done.returncode == 1, done
    assert "consistent with out of memory" in done.stderr, done


def test_own_cgroup(tmp):
    with Group("own") as group:
        check(group, *ENTER)


def test_cgroup_of_the_worker(tmp):
    with Group("worker") as group:
        check(group, *ENTER, OWN=group.below)


def test_container_with_the_cgroup_namespace_of_the_host(tmp):
    mount = 'mount --bind "$GROUP" /sys/fs/cgroup/memory && exec "$@"'
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        skip("this user may not make a mount namespace")
    with Group("view") as group:
        check(group, *ENTER, "unshare", "--mount", "sh", "-c", mount, "mount")


if __name__ == "__main__":
    run_tests(globals())
