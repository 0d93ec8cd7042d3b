#!/usr/bin/python3
# timeout: 300
"""Nothing polls: an idle crun with four sleeping workers, and its warden, make no system call for
20 seconds, shown with strace attached to every thread of both."""
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from processes import CRUN, Crun, until  # noqa: E402

SECONDS = 20
SCRIPT = "echo $$ >$PIDS/$LOCAL_RANK.pid; exec sleep 1000"


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def threads(pid):
    return [task.name for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


def sleeps(tids):
    """Returns each thread's count of voluntary context switches, or None if a thread is awake."""
    try:
        found = [pathlib.Path(f"/proc/{tid}/status").read_text() for tid in tids]
    except OSError:  # a thread of the start has ended
        return None
    if not all("State:\tS" in status for status in found):
        return None
    return [re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M)[1] for status in found]


def at_rest(tids):
    """Returns whether all threads sleep and none has woken up within half a second."""
    before = sleeps(tids)
    time.sleep(0.5)
    return before is not None and sleeps(tids) == before


def attach(pids, output):
    """Starts strace on the processes, and waits until it traces them. Because of -f it traces every
    thread of each process."""
    words = ["strace", "-f", "-o", str(output)]
    for pid in pids:
        words += ["-p", str(pid)]
    log = open(output.with_suffix(".err"), "w+")
    strace = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log)

    def attached():
        text = output.with_suffix(".err").read_text()
        if strace.poll() is not None:
            skip("strace may not attach here: " + text.strip().splitlines()[-1])
        return text.count(" attached") >= len(pids)

    until(attached, "strace to attach")
    return strace


def calls(output):
    """Returns strace's lines about system calls that ended, and signals that came, while strace was
    attached. It leaves out the unfinished call in which each thread has slept all the time."""
    lines = output.read_text().splitlines()
    return [line for line in lines if "resumed" in line or "=" in line or "---" in line]


def main():
    if shutil.which("strace") is None:
        skip("strace is not installed")
    if pathlib.Path(CRUN).parents[1].name == "tsan":
        skip("ThreadSanitizer's own thread wakes ten times a second")
    with Crun("--nproc-per-node=4", "--no-python", "/bin/sh", "-c", SCRIPT) as crun:
        for rank in range(4):
            crun.pid_of(f"{rank}.pid")
        warden = crun.warden()
        until(lambda: at_rest(threads(crun.pid) + threads(warden)), "crun to go to sleep")
        output = crun.path / "strace.out"
        strace = attach([crun.pid, crun.warden()], output)
        before = set(calls(output))
        try:
            crun.process.wait(timeout=SECONDS)
            raise AssertionError("crun ended")
        except subprocess.TimeoutExpired:
            pass
        strace.send_signal(signal.SIGINT)
        strace.wait()
        made = [line for line in calls(output) if line not in before and "detached" not in line]
        assert not made, "an idle crun made system calls:\n" + "\n".join(made[:40])
        assert crun.process.poll() is None


main()
