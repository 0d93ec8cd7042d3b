"""Runs crun in the background of a test, and checks which of its processes are left.

A test must not sleep for a fixed time: `until` waits for a condition, with a deadline."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from crun_job import CRUN, environment
from crun_test import SCALE

PATIENCE = 120 * SCALE  # seconds; the machine may be busy


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"waited {PATIENCE} s in vain for {what}")


def stat(pid):
    """Returns the fields of /proc/PID/stat from the state on, or None if there is no process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def is_alive(pid):
    fields = stat(pid)
    return fields is not None and fields[0] not in "ZX"


def children(pid):
    """Returns the children that the threads of the process have now; a thread may end meanwhile."""
    found = []
    try:
        tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found
    for task in tasks:
        with contextlib.suppress(OSError):
            found += [int(p) for p in (task / "children").read_text().split()]
    return found


def name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def cgroup_root():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return pathlib.Path(line.split()[4])
    return None


def cgroups_of(pid):
    """Returns the folders of the cgroups that the nurseries of the crun `pid` made."""
    root = cgroup_root()
    # os.walk skips a folder that another test removes meanwhile; Path.rglob would raise an error.
    return [os.path.join(folder, name) for folder, names, _ in os.walk(root or "")
            for name in names if name.startswith(f"crun-{pid}-")]


def cgroup_delegated():
    """Returns whether we may make a cgroup below our own, and it has cgroup.kill (Linux 5.14)."""
    own = next((line[4:].strip() for line in open("/proc/self/cgroup") if line.startswith("0::/")),
               None)
    if own is None or cgroup_root() is None:
        return False
    probe = cgroup_root() / own.lstrip("/") / f"probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    usable = (probe / "cgroup.kill").exists()
    probe.rmdir()
    return usable


class Crun:
    """A crun in the background: `with Crun("--nproc-per-node=2", …) as crun`. At the end of the
    block crun is killed, even if the test fails."""

    def __init__(self, *args, env=None):
        self.folder = tempfile.TemporaryDirectory(prefix="crun-test-")
        self.path = pathlib.Path(self.folder.name)
        self.err_path = self.path / "crun.stderr"
        # In crun's arguments, as in torchrun's, $$ stands for one $. So the $$ of a shell script,
        # the shell's pid, must be written as $$$$.
        words = [str(a).replace("$$", "$$$$") for a in args]
        with open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [str(CRUN), *words], stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                start_new_session=True,
                env=environment(**{"PIDS": str(self.path), "TMPDIR": str(self.path),
                                   **(env or {})}))
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print("---- crun said ----", self.said(), "----", sep="\n")
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in self.told():
            if is_alive(pid):
                with contextlib.suppress(ProcessLookupError):  # it may end between these two calls
                    os.kill(pid, signal.SIGKILL)
        self.folder.cleanup()

    def said(self):
        return self.err_path.read_text(errors="replace")

    def pid_of(self, who):
        """Waits until a worker has written a pid to $PIDS/<who>, and returns this pid."""
        path = self.path / who

        def told():
            if self.process.poll() is not None and not path.exists():
                raise AssertionError(f"crun ended with {self.process.returncode} before {who} came")
            return path.exists() and path.read_text().endswith("\n") and int(path.read_text())

        return until(told, who)

    def told(self):
        return [int(p.read_text()) for p in self.path.glob("*.pid") if p.read_text().endswith("\n")]

    def warden(self):
        return until(lambda: next((c for c in children(self.pid) if name(c) == "crun-warden"),
                                  None),
                     "a warden")

    def wait(self):
        return self.process.wait(timeout=PATIENCE)


# A worker that ignores every polite signal and starts children: in its Unix process group, in a
# Unix session of their own, and as orphans with closed streams. Each writes its pid to $PIDS.
HOSTILE = r"""
trap '' TERM INT HUP QUIT
me=$PIDS/$LOCAL_RANK
sh -c 'echo $$ >"$0.group.pid"; exec sleep 1000' $me &
setsid sh -c 'echo $$ >"$0.session.pid"; exec sleep 1000' $me &
setsid sh -c '(sh -c "echo \$PPID" >"$0.double.pid"; exec sleep 1000 <&- >&- 2>&-) &' $me &
if [ -n "$CLEARED" ]; then
    setsid sh -c '(sh -c "echo \$PPID" >"$0.cleared.pid"
                   exec env -i sleep 1000 <&- >&- 2>&-) &' $me &
fi
echo $$ >$me.leader.pid
while :; do sleep 1; done
"""
HOSTILE_KINDS = ("group", "session", "double", "leader")


def start_hostile(*options, workers=2, cleared=False, env=None):
    """Starts a crun with hostile workers, and waits until all of them and their children run.
    Returns the crun and all these pids."""
    extra = {"CLEARED": "1"} if cleared else {}
    crun = Crun(*options, f"--nproc-per-node={workers}", "--no-python", "/bin/sh", "-c", HOSTILE,
                env={**extra, **(env or {})})
    kinds = HOSTILE_KINDS + (("cleared",) if cleared else ())
    try:
        return crun, [crun.pid_of(f"{rank}.{kind}.pid") for rank in range(workers)
                      for kind in kinds]
    except BaseException as error:
        crun.__exit__(type(error), error, None)
        raise


def assert_gone(pids, what):
    for pid in pids:
        until(lambda p=pid: not is_alive(p), f"the death of {what} {pid} ({name(pid)})")
