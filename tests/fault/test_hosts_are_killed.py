#!/usr/bin/env python3
# timeout: 300
"""A job on several hosts whose starter, deputies or ssh processes are killed: a second later, no
process is left on the hosts that have lost their starter, and an elastic job goes on on the others.
The hosts are network namespaces. The stand-in for ssh leaves the deputy alone when it is killed, so
that only the end of its stdin tells the deputy."""
import os
import pathlib
import signal
import subprocess
import time

from crun_test import CRUN, SCALE, clean_env, read_text, run_tests, start, wait_for
from hosts import namespace_rsh, processes_of
from netns import Net

WORKER = ["--no-python", "sh", "-c", 'echo "$RANK" > "$MARKS/$GROUP_RANK.$WORLD_SIZE"; '
          "setsid sleep 1000 & exec sleep 1000"]


class Job:
    """A job of four hosts in a tree: the starter starts hosts 1 and 3, which start 2 and 4."""

    def __init__(self, net, tmp, *options):
        self.hosts, self.marks = net.hosts, tmp
        self.err = open(tmp / "err", "w")
        rsh = namespace_rsh(tmp, net.hosts)
        hosts = ",".join(h.addr for h in net.hosts)
        self.p = start([CRUN, "--rsh", rsh, "--fan-out=2", "-x", f"MARKS={tmp}", *options,
                        "--hosts", hosts, *WORKER], stdout=subprocess.DEVNULL, stderr=self.err,
                       env=clean_env())
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

    def expect_none(self, hosts, since):
        left = [h for h in self.hosts if hosts is None or h in hosts]
        wait_for(lambda: not processes_of(left), "the end of all processes", timeout=30)
        took = time.monotonic() - since
        assert took < SCALE, f"{took:.2f} s"

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
        began = time.monotonic()
        job.p.kill()
        job.p.wait()
        job.expect_none(None, began)


def test_a_deputy_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp)
        deputies = job.pids(CRUN, "--deputy")
        assert sorted(deputies) == [1, 2, 3, 4], deputies
        began = time.monotonic()
        os.kill(deputies[1], signal.SIGKILL)
        job.expect_none(net.hosts[:2], began)
        assert job.p.wait(timeout=60) == 1, read_text(tmp / "err")
        text = read_text(tmp / "err")
        assert "lost the connection to '10.77.0.1'" in text, text
        wait_for(lambda: not processes_of(net.hosts), "the end of all processes")


def test_a_deputy_that_others_do_not_need_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp, "--nnodes=2:4", "--max-restarts=3",
                  "--rdzv-conf=last_call_timeout=0.2,keep_alive_interval=1")
        began = time.monotonic()
        os.kill(job.pids(CRUN, "--deputy")[3], signal.SIGKILL)
        job.expect_none(net.hosts[2:], began)
        job.wait_for_world(2)
        job.end()


def test_ssh_is_killed(tmp):
    with Net(4) as net:
        job = Job(net, tmp)
        began = time.monotonic()
        os.kill(job.rsh()[0], signal.SIGKILL)
        wait_for(lambda: len(set(job.pids(CRUN, "--deputy"))) <= 2, "the end of two deputies")
        gone = [h for i, h in enumerate(net.hosts, 1) if i not in job.pids(CRUN, "--deputy")]
        assert len(gone) >= 2, gone
        job.expect_none(gone, began)
        assert job.p.wait(timeout=60) == 1, read_text(tmp / "err")
        wait_for(lambda: not processes_of(net.hosts), "the end of all processes")


def test_a_launcher_is_killed(tmp):
    """The warden ends the workers of this host, and the other launchers end, too."""
    with Net(4) as net:
        job = Job(net, tmp)
        began = time.monotonic()
        os.kill(job.pids(CRUN, "--scheduler=none")[2], signal.SIGKILL)
        wait_for(lambda: not job.pids("sleep", "1000").get(2), "the end of the workers")
        assert time.monotonic() - began < 5 * SCALE
        job.end()


if __name__ == "__main__":
    run_tests(globals())
