#!/usr/bin/env python3
# timeout: 240
"""What a user sees: the one line of a wait on a terminal, progress bars of several workers, and
equal lines of several workers shown once (--fold)."""
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
from crun_test import CRUN, clean_env, crun, run_tests, script, start, wait_for
from free_port import free_port


class Terminal:
    """A pseudo terminal of 100 columns, and what a program has written to it."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.bytes = b""
        self.reader = threading.Thread(target=self.read)

    def run(self, *command, **more):
        process = subprocess.Popen([CRUN, *map(str, command)], stdin=subprocess.DEVNULL,
                                   stdout=self.theirs, stderr=self.theirs,
                                   env=clean_env(TERM="xterm", OMP_NUM_THREADS=1, **more))
        os.close(self.theirs)
        self.reader.start()
        return process

    def read(self):
        while True:
            try:
                data = os.read(self.ours, 65536)
            except OSError:  # all processes have closed the terminal
                return
            if not data:
                return
            self.bytes += data

    def end(self):
        self.reader.join()
        os.close(self.ours)

    @property
    def rows(self):
        """The rows that a user would see, if the terminal had room for all of them."""
        rows, column = [""], 0
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", self.bytes.decode()):
            if part == "\r":
                column = 0
            elif part == "\n":
                rows.append("")
            elif part == "\x1b[K":
                rows[-1] = rows[-1][:column]
            elif part[0] != "\x1b":
                rows[-1] = rows[-1][:column] + part + rows[-1][column + 1:]
                column += 1
        return [row.rstrip() for row in rows if row.strip()]


WAIT = re.compile(rb"crun: waiting \((\d+) s so far, \d+ s left\) for more nodes: 1 of 2 are")


def test_a_wait_is_one_line_that_is_rewritten(tmp):
    node = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            "--rdzv-id=wait", f"--log-dir={tmp}/logs", script(tmp, "w", "#!/bin/sh\necho worker\n")]
    terminal = Terminal()
    first = terminal.run("--rdzv-conf=is_host=1", *node)
    wait_for(lambda: len(set(WAIT.findall(terminal.bytes))) >= 3, "the seconds to be counted")
    assert b"\n" not in terminal.bytes, terminal.bytes
    second = start([CRUN, "--rdzv-conf=is_host=0", *node])
    assert first.wait() == 0 and second.wait() == 0, (terminal.bytes, second.communicate())
    terminal.end()
    assert terminal.rows == ["worker"], terminal.bytes


def test_a_log_line_stands_above_the_wait(tmp):
    """The warning of a second wait does not cut the line, and an end takes it away."""
    terminal = Terminal()
    node = terminal.run("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=join_timeout=8,is_host=1",
                        f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--log-dir=/dev/null", "true")
    assert node.wait() == 1
    terminal.end()
    assert WAIT.search(terminal.bytes), terminal.bytes
    assert not any(row.startswith("crun: waiting") for row in terminal.rows), terminal.rows
    assert any("1 of at least 2 nodes came" in row for row in terminal.rows), terminal.rows


BARS = """#!/usr/bin/python3
import os, sys, time
rank = os.environ["LOCAL_RANK"]
for percent in range(0, 101, 2):
    sys.stderr.write(f"\\r{rank}: {percent:3d} % " + "#" * (percent // 4))
    sys.stderr.flush()
    if percent == 50:
        print(f"rank {rank} is half-way", flush=True)
    time.sleep(0.005)
sys.stderr.write("\\n")
"""


def test_bars_of_several_workers_share_a_terminal(tmp):
    terminal = Terminal()
    job = terminal.run("--nproc-per-node=4", "--log-dir=/dev/null", script(tmp, "w", BARS))
    assert job.wait() == 0, terminal.bytes
    terminal.end()
    want = [f"{r}: 100 % {'#' * 25}" for r in range(4)]
    halves = [f"{r}: {50:3d} % {'#' * 12}rank {r} is half-way" for r in range(4)]
    assert sorted(terminal.rows) == sorted(want + halves), terminal.rows


def test_teed_bars_on_a_terminal(tmp):
    terminal = Terminal()
    job = terminal.run("--nproc-per-node=4", "-t", "3", f"--log-dir={tmp}/logs",
                       script(tmp, "w", BARS))
    assert job.wait() == 0, terminal.bytes
    terminal.end()
    want = [f"[default{r}]:{r}: 100 % {'#' * 25}" for r in range(4)]
    want += [f"[default{r}]:rank {r} is half-way" for r in range(4)]
    assert sorted(terminal.rows) == sorted(want), terminal.rows


def test_teed_bars_in_a_file_are_few_lines(tmp):
    done = crun("--nproc-per-node=4", "-t", "3", f"--log-dir={tmp}/logs", script(tmp, "w", BARS))
    assert done.returncode == 0, done
    for rank in range(4):
        lines = [x for x in done.stderr.splitlines() if x.startswith(f"[default{rank}]:")]
        # 51 updates; a loaded machine may need more than UPDATE_MS (5 s) for them
        assert 1 <= len(lines) < 40, done.stderr
        assert lines[-1].endswith(f"{rank}: 100 % {'#' * 25}"), lines
    for path in pathlib.Path(tmp / "logs").rglob("stderr.log"):
        assert path.read_bytes().count(b"\r") == 51, path


def test_a_line_end_of_two_bytes_in_two_reads(tmp):
    """A line whose "\\r" and "\\n" come apart is a line, and no update that may be left out."""
    worker = script(tmp, "w", "#!/usr/bin/python3\nimport os, time\n"
                    "for i in range(5):\n    os.write(1, b'line %d\\r' % i)\n"
                    "    time.sleep(0.05)\n    os.write(1, b'\\n')\n")
    done = crun("-t", "1", f"--log-dir={tmp}/logs", worker)
    assert done.stdout.splitlines() == [f"[default0]:line {i}" for i in range(5)], done
    terminal = Terminal()
    assert terminal.run("--nproc-per-node=2", "--log-dir=/dev/null", worker).wait() == 0
    terminal.end()
    assert sorted(terminal.rows) == sorted(2 * [f"line {i}" for i in range(5)]), terminal.rows


FOLDED = """#!/usr/bin/python3
import os, sys
rank = int(os.environ["LOCAL_RANK"])
print("loading the model")
print(f"my rank is {rank}")
print("even" if rank % 2 == 0 else "odd")
sys.stderr.write("a warning that all have\\n")
"""


def test_equal_lines_are_shown_once(tmp):
    done = crun("--nproc-per-node=4", "--fold", f"--log-dir={tmp}/logs", script(tmp, "w", FOLDED))
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    # a worker that is late by more than FOLD_MS gets lines of its own, so only sets are compared
    assert {x.split(":", 1)[1] for x in lines} == {
        "loading the model", "even", "odd", *(f"my rank is {r}" for r in range(4))}, lines
    seen = {}
    for line in lines:
        ranks, text = re.fullmatch(r"\[default([0-9,-]+)\]:(.*)", line).groups()
        for part in ranks.split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                seen.setdefault(rank, []).append(text)
    for rank in range(4):
        assert seen[rank] == ["loading the model", f"my rank is {rank}",
                              "odd" if rank % 2 else "even"], (rank, seen)
    assert "a warning that all have" in done.stderr, done
    assert len(list(pathlib.Path(tmp / "logs").rglob("stdout.log"))) == 4


def test_a_fold_that_cannot_be(tmp):
    done = crun("--fold", f"--log-dir={tmp}/logs", "--log-format=json", "true")
    assert done.returncode == 2, done
    assert "--fold: " in done.stderr and "--log-format=json" in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
