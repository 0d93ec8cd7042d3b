#!/usr/bin/env python3
"""Runs the tests: unit programs and the scripts of the other kinds.

    tests/run.py [--build DIR] [--jobs N] [--filter REGEX] [KIND ...]

KIND is unit, integration, fault, interop, golden, sim or fuzz; without a KIND all of them run. A
test is a program build/tests/unit/test_* or an executable script tests/<kind>/test_*.{py,sh}. It
runs in the root of the tree, with BUILD in its environment.

Exit status 0 means that the test passed, 77 that it was skipped (its line "SKIP: reason" is
printed), and any other status that it failed. A test also fails if it leaves a process behind or
exceeds its time limit. The limit is 120 s, or N seconds if the script has a line "# timeout: N"
near its top, times CK_TIMEOUT_MULTIPLIER. A script with a line "# exclusive" near its top runs
alone, after the others.

The whole output of a failed test is printed, and of a passed test the lines that begin with
"known: ", which name expected failures. The last line is "N passed, N failed, N skipped".
"""
import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ["unit", "golden", "integration", "fault", "sim", "fuzz", "interop"]
SKIP = 77
TIMEOUT_S = 120
REAP_S = 5  # time between two looks for orphans that have ended
SCALE = float(os.environ.get("CK_TIMEOUT_MULTIPLIER", "1"))
LEAVE_S = 10 * SCALE  # time in which all processes of a test must have ended after it
# Every process that a test starts inherits this variable, by which leftover processes are found.
MARK = "CRUN_TEST_RUN"
STARTING = threading.Lock()
RUNNING = set()  # pids of running tests: subprocess reaps them, reap_orphans() must not


class Test:
    def __init__(self, kind, path):
        self.kind, self.path = kind, path
        self.name = f"{kind}/{path.stem}"
        head = "" if kind == "unit" else path.read_text(errors="replace")[:2000]
        stated = re.search(r"^# timeout: (\d+)", head, re.M)
        self.timeout = (int(stated.group(1)) if stated else TIMEOUT_S) * SCALE
        self.exclusive = bool(re.search(r"^# exclusive", head, re.M))


def find_tests(build, kinds, text):
    tests = []
    for kind in kinds:
        folder = build / "tests" / "unit" if kind == "unit" else ROOT / "tests" / kind
        for path in sorted(folder.glob("test_*")):
            if kind == "unit" and path.suffix:
                continue
            if kind != "unit" and path.suffix not in (".py", ".sh"):
                continue
            test = Test(kind, path)
            if kind != "unit" and not os.access(path, os.X_OK):
                sys.exit(f"tests/run.py: {path} is not executable, so it would never run: chmod +x")
            if os.access(path, os.X_OK) and re.search(text, test.name):
                tests.append(test)
    return tests


def processes_marked(mark):
    """Returns (pid, command line) of each process with this mark in its environment. The mark also
    finds descendants that have left the test's Unix session."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = pathlib.Path(entry.path, "environ").read_bytes().split(b"\0")
            if needle in environ:
                line = pathlib.Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ")
                found.append((int(entry.name), line.decode(errors="replace").strip()))
        except OSError:
            continue  # the process has ended, or belongs to another user
    return found


def reap_orphans():
    """Reaps the zombies among this process's children, except running tests. The kernel makes the
    orphans of tests our children, because this process is a subreaper."""
    with STARTING:
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) in RUNNING:
                continue
            try:
                state, parent = pathlib.Path(entry.path,
                                             "stat").read_text().rsplit(")", 1)[1].split()[:2]
                if int(parent) == os.getpid() and state == "Z":
                    os.waitpid(int(entry.name), os.WNOHANG)
            except (OSError, IndexError, ValueError):
                continue


def end_leftovers(mark, patience_s):
    """Waits up to `patience_s` for the processes with this mark to end, then kills the remaining
    ones. Returns their (pid, command line)."""
    deadline = time.monotonic() + patience_s
    left = processes_marked(mark)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = processes_marked(mark)
    for pid, _ in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return left


def wait_and_reap(child, timeout_s):
    """Waits for a test, and meanwhile reaps orphans. A test that starts hundreds of launchers
    leaves so many that reading /proc would take longer and longer."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return child.wait(max(0, min(left, REAP_S)))
        except subprocess.TimeoutExpired:
            if left <= REAP_S:
                raise
        reap_orphans()


def run_one(test, build, serial):
    mark = f"{os.getpid()}-{serial}"
    env = dict(os.environ, BUILD=os.path.relpath(build, ROOT), PYTHONDONTWRITEBYTECODE="1",
               PYTHONPATH=os.pathsep.join([str(ROOT / "tests" / "lib"),
                                           os.environ.get("PYTHONPATH", "")]),
               CK_FORK="yes", **{MARK: mark})
    # libcheck's own limit of a unit test, 4 s, is less than a busy machine may take for some.
    env.setdefault("CK_DEFAULT_TIMEOUT", "30")
    if build.name == "tsan":
        suppressions = ROOT / "make" / "tsan.supp"
        env["TSAN_OPTIONS"] = f"{env.get('TSAN_OPTIONS', '')} suppressions={suppressions}"
    begin = time.monotonic()
    timed_out = False
    with tempfile.TemporaryFile() as output:
        try:
            with STARTING:
                child = subprocess.Popen([str(test.path)], cwd=ROOT, env=env,
                                         stdin=subprocess.DEVNULL,
                                         stdout=output, stderr=subprocess.STDOUT,
                                         start_new_session=True)
                RUNNING.add(child.pid)
            status = wait_and_reap(child, test.timeout)
        except subprocess.TimeoutExpired:
            timed_out, status = True, None
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        except OSError as error:
            return "failed", f"cannot start: {error}", "", 0.0
        RUNNING.discard(child.pid)
        left = end_leftovers(mark, 0 if timed_out else LEAVE_S)
        reap_orphans()
        output.seek(0)
        text = output.read().decode(errors="replace")
    seconds = time.monotonic() - begin
    if timed_out:
        return "failed", f"timed out after {test.timeout:.0f} s", text, seconds
    if left:
        return "failed", f"left processes behind: {left}", text, seconds
    if status == SKIP:
        reason = re.search(r"^SKIP: *(.*)", text, re.M)
        return "skipped", reason.group(1) if reason else "no reason given", text, seconds
    if status != 0:
        how = f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        return "failed", how, text, seconds
    return "passed", "", text, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.environ.get("BUILD", "build"))
    # one more than there are processors, because many tests wait for time to pass
    parser.add_argument("--jobs", type=int, default=min(4, (os.cpu_count() or 1) + 1))
    parser.add_argument("--filter", default="",
                        help="only tests whose name this regular expression finds")
    parser.add_argument("--repeat", type=int, default=1, help="run each test so many times")
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=[])
    args = parser.parse_args()
    unknown = [k for k in args.kinds if k not in KINDS]
    if unknown:
        parser.error(f"unknown kind '{unknown[0]}', known: {', '.join(KINDS)}")
    build = (ROOT / args.build).resolve()
    tests = find_tests(build, args.kinds or KINDS, args.filter) * args.repeat

    # As a subreaper (36 is PR_SET_CHILD_SUBREAPER) this process, not init, becomes the parent of
    # the orphans of tests, so it can reap them.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []

    def report(test, result):
        outcome, why, text, seconds = result
        counts[outcome] += 1
        word = {"passed": "ok", "failed": "FAILED", "skipped": "SKIP"}[outcome]
        print(f"{word:6} {test.name} ({seconds:.1f} s){': ' if why else ''}{why}", flush=True)
        if outcome == "passed":
            known = [line for line in text.splitlines() if line.startswith("known: ")]
            print("".join(f"       {line}\n" for line in known), end="", flush=True)
        if outcome == "failed":
            failures.append(f"{test.name}: {why}")
            print("".join(f"    | {line}\n" for line in text.splitlines()), end="", flush=True)

    together = [t for t in tests if not t.exclusive]
    alone = [t for t in tests if t.exclusive]
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, args.jobs)) as pool:
        running = {pool.submit(run_one, t, build, n): t for n, t in enumerate(together)}
        for done in concurrent.futures.as_completed(running):
            report(running[done], done.result())
    for n, test in enumerate(alone):
        report(test, run_one(test, build, len(together) + n))

    for line in failures:
        print(f"failed: {line}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
