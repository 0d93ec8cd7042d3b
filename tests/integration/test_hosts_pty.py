#!/usr/bin/env python3
# timeout: 120
"""Tests --pty with `crun --hosts` and with `crun --on`: the workers of the first host have a
terminal of the size of the user's terminal, also after that size has changed, and ^C, ^D and keys
pass through it. The user's terminal is a real pseudo terminal."""
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, TIMEOUT_S, clean_env, crun, kill, run_tests, wait_for  # noqa: E402
from hosts import local_rsh  # noqa: E402
from job_daemon import Cluster  # noqa: E402

# Prints the sizes of the three standard descriptors, at the start and after each SIGWINCH.
SIZES = """
import os, signal, sys
def show(what):
    sizes = ["%dx%d" % tuple(os.get_terminal_size(fd)) for fd in range(3)]
    print(what, *sizes, os.environ.get("TERM"), os.environ.get("COLUMNS"), flush=True)
signal.signal(signal.SIGWINCH, lambda *_: show("now"))
show("start")
for line in sys.stdin:
    print("got", line.strip(), flush=True)
print("end of input", flush=True)
"""


class User:
    """A user at a terminal of 24 rows and 100 columns, in which a command runs."""

    def __init__(self, *argv, env):
        self.ours, theirs = pty.openpty()
        self.bytes = b""
        self.resize(24, 100)
        self.mode = termios.tcgetattr(theirs)
        self.theirs = theirs

        def prepare():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([str(a) for a in argv], stdin=theirs, stdout=theirs,
                                        stderr=theirs, env=env, preexec_fn=prepare)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while data := os.read(self.ours, 65536):
                self.bytes += data
        except OSError:
            pass

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, text):
        os.write(self.ours, text.encode())

    def sees(self, text):
        wait_for(lambda: text.encode() in self.bytes, f"{text!r}; so far: {self.bytes!r}")

    def ends_with(self, status):
        got = self.process.wait(timeout=TIMEOUT_S)
        assert got == status, (got, self.bytes)
        assert termios.tcgetattr(self.theirs) == self.mode, "the terminal is not as it was"

    def close(self):
        kill(self.process)
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def ways(tmp):
    """The two ways to the hosts: the options and the environment of each."""
    rsh = local_rsh(tmp)
    env = {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    yield ["--rsh", rsh, "--hosts", "127.0.0.2,127.0.0.3"], clean_env(**env)
    folder = tmp / "daemons"
    folder.mkdir()
    with Cluster(folder) as cluster:
        yield ["--on", "127.0.0.1"], {**cluster.first.env(), **env}


def test_the_size_passes_at_the_start_and_later(tmp):
    program = tmp / "sizes.py"
    program.write_text(SIZES)
    for options, env in ways(tmp):
        # the other host shows that its lines still come with a prefix
        user = User(CRUN, "--pty", *options, "--no-python", "sh", "-c",
                    f'if [ $RANK = 0 ]; then exec {sys.executable} {program}; fi; echo other; '
                    'exec sleep 1000', env=env)
        try:
            user.sees("start 100x24 100x24 100x24 xterm-256color None")
            user.resize(40, 133)
            user.sees("now 133x40 133x40 133x40")
            user.resize(50, 77)
            user.sees("now 77x50 77x50 77x50")
            if "--hosts" in options:
                user.sees("[127.0.0.3] other")
            user.types("hello\r")
            user.sees("got hello")
            user.types("\x04")
            user.sees("end of input")
        finally:
            user.close()


def test_ctrl_c_goes_through_the_terminal(tmp):
    for options, env in ways(tmp):
        user = User(CRUN, "--pty", *options, "--no-python", "sh", "-c",
                    "echo ready $RANK; exec cat", env=env)
        try:
            user.sees("ready 0")  # only this worker has the terminal
            user.types("\x03")
            user.ends_with(1)
        finally:
            user.close()
        assert b"SIGINT" in user.bytes or b"signal: 2" in user.bytes, user.bytes


def test_the_terminal_is_as_before_after_a_job(tmp):
    for options, env in ways(tmp):
        user = User(CRUN, "--pty", *options, "--no-python", "sh", "-c",
                    'test $RANK = 1 || { test -t 0 && test -t 1 && test -t 2 && echo "a$(tty)b"; }',
                    env=env)
        try:
            user.ends_with(0)
        finally:
            user.close()
        assert re.search(rb"a/dev/pts/\d+b\r\n", user.bytes), user.bytes


def test_a_local_worker_learns_the_new_size(tmp):
    program = tmp / "sizes.py"
    program.write_text(SIZES)
    user = User(CRUN, "--no-python", sys.executable, program, env=clean_env(TERM="xterm"))
    try:
        user.sees("start 100x24 100x24 100x24")
        user.resize(40, 133)
        user.sees("now 133x40 133x40 133x40")
        user.types("\x04")
        user.ends_with(0)
    finally:
        user.close()


def test_without_a_terminal_it_is_an_error(tmp):
    rsh = local_rsh(tmp)
    done = crun("--pty", "--rsh", rsh, "--hosts", "127.0.0.2", "--no-python", "true")
    assert done.returncode == 1 and "--pty needs a terminal" in done.stderr, done
    done = crun("--pty", "--no-python", "true")
    assert done.returncode == 2 and "--pty is for a job on several hosts" in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
