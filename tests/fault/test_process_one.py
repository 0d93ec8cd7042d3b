#!/usr/bin/python3
"""As process 1 of a pid namespace, like that of a container, crun becomes the parent of every
orphan of the namespace. It reaps strangers' orphans, but does not signal them when it ends its
workers; it ends its workers' orphans, also those in another session."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from crun_test import CRUN, TIMEOUT_S, alive, clean_env, run_tests, skip, wait_for  # noqa: E402
from processes import cgroup_delegated, children, name, stat  # noqa: E402

# Fails when $DIR/fail is there, in the first attempt; in the second attempt when $DIR/end is there.
# It leaves an orphan in another session.
WORKER = """
setsid sh -c '(exec sleep 2222) &'
echo $TORCHELASTIC_RESTART_COUNT >$DIR/attempt.$TORCHELASTIC_RESTART_COUNT
while [ ! -e $DIR/fail.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.05; done
exit 3
"""
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]

if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
    skip("this user may not make a pid namespace")


def sleepers(seconds):
    """Returns the pids of the processes `sleep SECONDS`."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def run(tmp, cgroup):
    stranger = 100000 + os.getpid()  # this number of seconds marks the process
    outer = subprocess.Popen(
        [*UNSHARE, CRUN, "--max-restarts=1", "--no-python", "/bin/sh", "-c",
         WORKER.replace("2222", str(200000 + os.getpid()))],
        env=clean_env(DIR=tmp, CRUN_CGROUP=cgroup), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for((tmp / "attempt.0").exists, "the first attempt")
        crun = wait_for(lambda: [c for c in children(outer.pid) if name(c) == "crun"], "crun")[0]
        orphans = wait_for(lambda: sleepers(200000 + os.getpid()), "the worker's orphan")
        enter = ["nsenter", f"--target={crun}", "--pid", "--mount"]
        subprocess.run([*enter, "setsid", "--fork", "sleep", str(stranger)], check=True)
        subprocess.run([*enter, "setsid", "--fork", "true"], check=True)
        theirs = wait_for(lambda: sleepers(stranger), "the stranger")
        wait_for(lambda: stat(theirs[0])[1] == str(crun), "the stranger's new parent")
        wait_for(lambda: all(stat(c) is None or stat(c)[0] != "Z" for c in children(crun)),
                 "the end of zombies")
        (tmp / "fail.0").touch()
        wait_for((tmp / "attempt.1").exists, "the second attempt")
        assert not any(map(alive, orphans)), "an orphan of the first attempt is left"
        assert alive(theirs[0]), "crun has killed a process that it did not start"
        (tmp / "fail.1").touch()
        assert outer.wait(TIMEOUT_S) == 1
    finally:
        outer.kill()
        outer.wait()


def test_without_a_cgroup(tmp):
    run(tmp, "0")


def test_with_a_cgroup(tmp):
    if not cgroup_delegated():
        skip("no cgroup v2 is delegated here")
    run(tmp, "1")


if __name__ == "__main__":
    run_tests(globals())
