#!/usr/bin/env python3
# timeout: 300
"""A job on several hosts whose starter, deputies or ssh processes are killed: no process is left on
the hosts that have lost their starter, and an elastic job goes on on the others. How long that
takes depends on the machine, and make bench-hosts measures it; the last test here shows that the
processes end because of events, and that none waits for a time. The hosts are network namespaces.
The stand-in for ssh leaves the deputy alone when it is killed, so that only the end of its stdin
tells the deputy."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

from crun_test import CRUN, TIMEOUT_S, clean_env, read_text, run_tests, skip, start, wait_for
from hosts import namespace_rsh, processes_of
from netns import Net

WORKER = ["--no-python", "sh", "-c", 'echo "$RANK" > "$MARKS/$GROUP_RANK.$WORLD_SIZE"; '
          "setsid sleep 1000 & exec sleep 1000"]


class Job:
    """A job of four hosts in a tree: the starter starts hosts 1 and 3, which start 2 and 4."""

    def __init__(self, net, tmp, *options, **env):
        self.hosts, self.marks = net.hosts, tmp
        self.err = open(tmp / "err", "w")
        rsh = namespace_rsh(tmp, net.hosts)
        hosts = ",".join(h.addr for h in net.hosts)
        self.p = start([CRUN, "--rsh", rsh, "--fan-out=2", "-x", f"MARKS={tmp}", *options,
                        "--hosts", hosts, *WORKER], stdout=subprocess.DEVNULL, stderr=self.err,
                       env=clean_env(**env))
        self.wait_for_world(4)

    def wait_for_world(self, size):
        wait_for(lambda: len(list(self.marks.glob(f"?.{size}"))) == size,
                 f"a world of {size}; {read_text(self.marks / 'err')}")

    def pids(self, *words):
        """The oldest process on each host whose command line begins with the words, by host
        number. (The warden of a launcher is younger and has the launcher's command line.)"""
        found = {}
        for i, host in enumerate(self.hosts, 1):
            for pid in processes_of([host]):
                try:
                    line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
                if line[:len(words)] == list(words):
                    found[i] = min(int(pid), found.get(i, int(pid)))
        return found

    def expect_none(self, hosts):
        wait_for(lambda: not processes_of(hosts), "the end of all processes")

    def rsh(self):
        """The stand-ins for ssh that the starter has started."""
        children = pathlib.Path(f"/proc/{self.p.pid}/task/{self.p.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def end(self):
        self.p.kill()
        self.p.wait()
        wait_for(lambda: not processes_of(self.hosts), "the end of all processes")


def test_the_starter_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp)
        job.p.kill()
        job.p.wait()
        job.expect_none(net.hosts)


def test_a_deputy_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp)
        deputies = job.pids(CRUN, "--deputy")
        assert sorted(deputies) == [1, 2, 3, 4], deputies
        os.kill(deputies[1], signal.SIGKILL)
        job.expect_none(net.hosts[:2])
        assert job.p.wait(timeout=TIMEOUT_S) == 1, read_text(tmp / "err")
        text = read_text(tmp / "err")
        assert "lost the connection to '10.77.0.1'" in text, text
        wait_for(lambda: not processes_of(net.hosts), "the end of all processes")


def test_a_deputy_that_others_do_not_need_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp, "--nnodes=2:4", "--max-restarts=3",
                  "--rdzv-conf=last_call_timeout=0.2,keep_alive_interval=1")
        os.kill(job.pids(CRUN, "--deputy")[3], signal.SIGKILL)
        job.expect_none(net.hosts[2:])
        job.wait_for_world(2)
        job.end()


def test_ssh_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp)
        os.kill(job.rsh()[0], signal.SIGKILL)
        wait_for(lambda: len(set(job.pids(CRUN, "--deputy"))) <= 2, "the end of two deputies")
        gone = [h for i, h in enumerate(net.hosts, 1) if i not in job.pids(CRUN, "--deputy")]
        assert len(gone) >= 2, gone
        job.expect_none(gone)
        assert job.p.wait(timeout=TIMEOUT_S) == 1, read_text(tmp / "err")
        wait_for(lambda: not processes_of(net.hosts), "the end of all processes")


def test_a_launcher_is_killed(tmp):
    """The warden ends the workers of this host, and the other launchers end, too."""
    with Net(4) as net:
        job = Job(net, tmp)
        os.kill(job.pids(CRUN, "--scheduler=none")[2], signal.SIGKILL)
        wait_for(lambda: not job.pids("sleep", "1000").get(2), "the end of the workers")
        job.end()


def executable(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:  # it has ended, as a shell that has started another program
        return None


def trace(job, pids, tmp):
    """Attaches strace to the processes, which writes what each waits for to tmp/trace.PID."""
    words = ["strace", "-ff", "-o", tmp / "trace", "-e", "trace=" + ",".join(WAITS)]
    for pid in pids:
        words += ["-p", str(pid)]
    p = start(words, stderr=open(tmp / "strace", "w"))

    def is_attached():
        text = read_text(tmp / "strace")
        if p.poll() is not None:
            job.end()
            skip("strace may not attach here: " + text)
        return text.count(" attached") >= len(pids)

    wait_for(is_attached, "strace to attach")
    return p


WAITS = ["poll", "ppoll", "epoll_wait", "epoll_pwait", "select", "pselect6", "nanosleep",
         "clock_nanosleep", "alarm", "setitimer", "timer_settime", "timerfd_settime"]
TIMED_OUT = re.compile(r"poll\(.*, (\d+)\) += 0 \(Timeout\)|"
                       r"epoll_p?wait\(.*?, (\d+)(?:, NULL, \d+)?\) += 0$")


def times(pid, tmp):
    """Returns the times in ms of all waits of the traced process that have ended because the time
    was over, and that no event could have ended. In warden.c, these waits are its pauses."""
    found = []
    for line in read_text(tmp / f"trace.{pid}").splitlines():
        assert not re.match(r"\w*(sleep|alarm|select|set\w*time)", line), line
        m = TIMED_OUT.match(line)
        is_pause = m and (not line.startswith("poll(") or line.startswith("poll(NULL"))
        if is_pause and int(m[1] or m[2]) > 0:
            found.append(int(m[1] or m[2]))
    return found


def test_the_end_waits_for_no_timer(tmp):
    """When the starter is killed, each deputy and each warden ends what it has started because of
    an event. A deputy waits for no time. A warden pauses between two scans of /proc while processes
    that it has killed are not dead yet: first for 1 ms, and never for longer than its earlier
    pauses together and 1 ms."""
    if shutil.which("strace") is None:
        skip("strace is not installed")
    # LeakSanitizer, a part of ASan, does not work in a traced process and ends it with an error.
    asan = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    with Net(4) as net:
        job = Job(net, tmp, ASAN_OPTIONS=asan)
        deputies = set(job.pids(CRUN, "--deputy").values())
        launchers = set(job.pids(CRUN, "--scheduler=none").values())


        def all_wardens():
            found = {pid for pid in map(int, processes_of(net.hosts))
                     if executable(pid) == CRUN} - deputies - launchers
            return found if len(found) == 8 else None
        assert (len(deputies), len(launchers)) == (4, 4), (deputies, launchers)
        wardens = wait_for(all_wardens, "two wardens on each host")
        strace = trace(job, sorted(deputies | wardens), tmp)
        job.p.kill()
        job.p.wait()
        job.expect_none(net.hosts)
        strace.wait()
        for pid in deputies:
            assert "+++ exited with 0 +++" in read_text(tmp / f"trace.{pid}"), pid
            assert times(pid, tmp) == [], pid
        for pid in wardens:
            passed = 0
            for ms in times(pid, tmp):
                assert ms <= passed + 1, (pid, ms, times(pid, tmp))
                passed += ms


if __name__ == "__main__":
    run_tests(globals())
