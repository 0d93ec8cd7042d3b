#!/usr/bin/env python3
# timeout: 300
"""Tests the console and the log files with readers of crun's stdout and stderr that are slow, stop
or close the pipe, with workers that write without pause, and with workers that close their stderr.
The job must go on in all cases, and no byte that could be written may be lost."""
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, PACE, TIMEOUT_S, alive, clean_env, crun  # noqa: E402
from crun_test import read_text, run_tests, script, start, wait_for  # noqa: E402
from nodes import Nodes  # noqa: E402

ENV = clean_env(OMP_NUM_THREADS=1)
PY = "#!/usr/bin/python3\nimport os, sys, time\nrank = int(os.environ['RANK'])\n"


def log_of(logs, rank, name="stdout.log"):
    found = list(pathlib.Path(logs).glob(f"*/attempt_0/{rank}/{name}"))
    assert len(found) == 1, found
    return found[0]


def test_slow_reader_loses_nothing(tmp):
    worker = script(tmp, "w", PY + "for i in range(40000): print(i, 'y' * 60)\n")
    launch = subprocess.Popen([CRUN, "--nproc-per-node=2", "-t", "1", f"--log-dir={tmp}/logs",
                               worker],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    os.set_blocking(launch.stdout.fileno(), True)
    got = b""
    while True:
        data = os.read(launch.stdout.fileno(), 4096)
        if not data:
            break
        got += data
        if len(got) < 300000:
            time.sleep(0.002)
    assert launch.wait(timeout=TIMEOUT_S) == 0
    for rank in range(2):
        want = [f"[default{rank}]:{i} {'y' * 60}" for i in range(40000)]
        assert [t for t in got.decode().splitlines() if t.startswith(f"[default{rank}]")] == want


def test_stopped_reader_does_not_delay_workers_with_files(tmp):
    """The log file is the buffer: while nobody reads the console, workers whose output also goes
    to a file run to their end, and afterwards every line comes to the console."""
    worker = script(tmp, "w", PY + "for i in range(60000): print(i, 'y' * 60)\n"
                                   "print('last words', 'z' * 70000, file=sys.stderr)\n"
                    + f"open(f'{tmp}/done{{rank}}', 'w')\n")
    launch = subprocess.Popen([CRUN, "--nproc-per-node=3", "-t", "3", f"--log-dir={tmp}/logs",
                               worker],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV)
    wait_for(lambda: len(list(tmp.glob("done*"))) == 3, "the workers' end, though nobody reads")
    got = launch.stdout.read().decode()
    assert launch.wait(timeout=TIMEOUT_S) == 0
    for rank in range(3):
        want = [f"[default{rank}]:{i} {'y' * 60}" for i in range(60000)]
        lines = [t for t in got.splitlines() if t.startswith(f"[default{rank}]")]
        assert [t for t in lines if "last" not in t] == want
        assert lines.count(f"[default{rank}]:last words {'z' * 70000}") == 1


def test_stopped_reader_and_a_restart(tmp):
    """The files of an attempt are read to their end, although the next attempt has begun."""
    worker = script(tmp, "w", PY + "n = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
                                   "for i in range(30000): print(n, i, 'y' * 60)\n"
                                   "sys.stdout.flush()\n"
                    + f"open(f'{tmp}/done{{n}}', 'w')\nsys.exit(n < 2)\n")
    launch = subprocess.Popen([CRUN, "-t", "1", "--max-restarts=2", f"--log-dir={tmp}/logs",
                               worker],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENV)
    wait_for(lambda: len(list(tmp.glob("done*"))) == 3, "the third attempt, though nobody reads")
    got = launch.stdout.read().decode()
    assert launch.wait(timeout=TIMEOUT_S) == 0
    for n in range(3):
        want = [f"[default0]:{n} {i} {'y' * 60}" for i in range(30000)]
        assert [t for t in got.splitlines() if t.startswith(f"[default0]:{n} ")] == want


def test_long_lines_stay_whole(tmp):
    """Lines of any length are not cut, and no other rank's output comes within one, also when the
    console is slow and when a line has no end."""
    worker = script(tmp, "w", PY + "for i in range(6): os.write(1 + i % 2, b'%d' % rank * 3000000"
                                   " + b'\\nshort\\n')\n"
                                   "os.write(1, b'%d' % rank * 1000000)\n")
    launch = subprocess.Popen([CRUN, "--nproc-per-node=3", "-t", "3", f"--log-dir={tmp}/logs",
                               worker],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV)
    got = launch.stdout.read().decode()
    assert launch.wait(timeout=TIMEOUT_S) == 0
    lines = sorted(got.splitlines())
    want = []
    for rank in range(3):
        head = f"[default{rank}]:"
        want += 6 * [head + str(rank) * 3000000, head + "short"] + [head + str(rank) * 1000000]
    assert lines == sorted(want), [(t[:20], len(t)) for t in lines]


def test_stalled_reader_stops_workers_without_files_but_not_the_stop(tmp):
    """stderr that goes to no file has no buffer but its pipe, as if the worker wrote to the console
    itself. A worker that waits for it can still be ended."""
    worker = script(tmp, "w", PY
                    + f"if rank == 0:\n    print(os.getpid(), file=open('{tmp}/pid', 'w'))\n"
                    + f"n = open(f'{tmp}/count{{rank}}', 'wb', buffering=0)\n"
                                   "while True: os.write(2, b'z' * 1000 + b'\\n'); n.write(b'x')\n")
    launch = start([CRUN, "--nproc-per-node=4", "-t", "1", f"--log-dir={tmp}/logs", worker],
                   env=ENV)
    wait_for(lambda: read_text(tmp / "pid").endswith("\n"), "the worker's pid")
    size = -1

    def stalled():
        nonlocal size
        now = sum(count.stat().st_size for count in tmp.glob("count*"))
        still, size = 0 < now == size, now
        time.sleep(0.2)
        return still
    wait_for(stalled, "everything to stand still")
    pid = int(read_text(tmp / "pid"))
    launch.terminate()
    wait_for(lambda: not alive(pid), "the workers' end, though nobody reads")
    # crun has heard the first signal. One that comes a second or more after that ends crun, which
    # then does not write the rest to the console. An earlier one counts only if all workers are
    # gone.
    time.sleep(1.1)
    launch.terminate()
    assert launch.wait(timeout=TIMEOUT_S) == 1
    launch.stdout.close()
    launch.stderr.close()


class FullPipe:
    """A named pipe for the stderr of a process. After `fill()` not one more byte fits into it."""

    def __init__(self, tmp):
        self.path = tmp / "stderr.pipe"
        os.mkfifo(self.path)
        self.reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(self.reader, True)
        self.text = ""

    def fill(self):
        for size in (4096, 1):
            try:
                while True:
                    os.write(self.writer, b"-" * (size - 1) + b"\n")
            except BlockingIOError:
                pass
        os.close(self.writer)

    def read_until(self, words):
        while words not in self.text:
            data = os.read(self.reader, 1 << 16)
            assert data, f"stderr ended before '{words}':\n{self.text}"
            self.text += data.decode()

    def read_all(self):
        while data := os.read(self.reader, 1 << 16):
            self.text += data.decode()
        os.close(self.reader)
        return [line for line in self.text.splitlines() if line.strip("-")]


def run_behind_full_stderr(tmp):
    """Starts crun, with one worker that only sleeps, and fills the pipe that is crun's stderr.
    Returns (the pipe, the launcher, the worker's pid)."""
    worker = script(tmp, "w", PY
                    + f"print(os.getpid(), file=open('{tmp}/pid', 'w'))\ntime.sleep(1000)\n")
    pipe = FullPipe(tmp)
    with open(pipe.path, "w") as err:
        launch = start([CRUN, f"--log-dir={tmp}/logs", worker], env=ENV, stderr=err)
    wait_for(lambda: read_text(tmp / "pid").endswith("\n"), "the worker's pid")
    pipe.fill()
    return pipe, launch, int(read_text(tmp / "pid"))


def test_full_stderr_does_not_stop_the_stop(tmp):
    pipe, launch, pid = run_behind_full_stderr(tmp)
    launch.terminate()  # crun's line "Received 15 death signal" does not fit into the pipe
    wait_for(lambda: not alive(pid), "the worker's end, though nobody reads")
    assert launch.poll() is None, "what it has to say is lost"
    lines = pipe.read_all()
    assert launch.wait(timeout=TIMEOUT_S) == 1
    assert len(lines) == 2 and "Received 15 death signal" in lines[0], lines
    wanted = f"SignalException: Process {launch.pid} got signal: 15 (SIGTERM)"
    assert lines[1].endswith(wanted), lines
    launch.stdout.close()


def test_full_stderr_can_be_left_by_signals(tmp):
    pipe, launch, pid = run_behind_full_stderr(tmp)

    def ended():
        launch.terminate()
        return launch.poll() is not None
    wait_for(ended, "the end")
    assert not alive(pid)
    os.close(pipe.reader)
    launch.stdout.close()


def test_full_stderr_does_not_stop_the_heartbeat(tmp):
    lease_s = 5 * PACE
    conf = f"last_call_timeout=0.3,keep_alive_interval={lease_s / 5},keep_alive_max_attempt=5"
    pipe = FullPipe(tmp)
    with Nodes(tmp, "--nnodes=1:2", conf=conf) as nodes:
        a = nodes.start_host("a")
        b = nodes.start("b", prefix=("/bin/sh", "-c", f'exec "$@" >{pipe.path} 2>&1', "sh"))
        workers = nodes.round(2)
        pipe.read_until("rendezvous of job")
        pipe.fill()
        full_until = time.monotonic() + 2 * lease_s  # a silent node is lost after a lease
        while time.monotonic() < full_until:
            b.signal(signal.SIGUSR2)  # crun prints a line at each SIGUSR2
            time.sleep(0.1)
            assert all(w.alive for w in workers), "a node was lost"
        for w in workers:
            w.signal(signal.SIGUSR2)
        lines = pipe.read_all()
        assert a.wait() == 0 and b.wait() == 0
        assert "was lost" not in a.text, a.text
        assert all(" crun[" in line for line in lines), lines
        assert sum("SIGUSR2: 0 of 1 workers are asked" in line for line in lines) > 1, lines


def test_reader_that_goes_away(tmp):
    worker = script(tmp, "w", PY + "for i in range(20000): print(i)\n"
                                   "print('the end', file=sys.stderr)\n")
    launch = start([CRUN, "--nproc-per-node=2", "-t", "1", f"--log-dir={tmp}/logs", worker],
                   env=ENV)
    launch.stdout.close()
    err = launch.stderr.read()
    launch.stderr.close()
    assert launch.wait(timeout=TIMEOUT_S) == 0, err
    assert err.count("the end") == 2, err
    for rank in range(2):
        assert log_of(tmp / "logs", rank).read_text() == "".join(f"{i}\n" for i in range(20000))


def test_both_readers_go_away(tmp):
    worker = script(tmp, "w", PY
                    + "for i in range(3000): print(i, flush=True); print(i, file=sys.stderr)\n"
                                   f"open('{tmp}/ended', 'w').close()\n")
    launch = start([CRUN, "-t", "3", f"--log-dir={tmp}/logs", worker], env=ENV)
    launch.stdout.close()
    launch.stderr.close()
    assert launch.wait(timeout=TIMEOUT_S) == 0
    assert (tmp / "ended").exists()
    assert log_of(tmp / "logs", 0, "stderr.log").read_text().endswith("\n2999\n")


def test_hundred_megabytes(tmp):
    worker = script(tmp, "w", "#!/bin/sh\nhead -c 100000000 /dev/zero | tr '\\0' 'q' >&2\nexit 1\n")
    with open(tmp / "err", "wb") as err:
        launch = subprocess.run([CRUN, "-r", "1", f"--log-dir={tmp}/logs", worker], env=ENV,
                                stderr=err,
                                timeout=TIMEOUT_S)
    assert launch.returncode == 1
    with open(tmp / "err", "rb") as err:
        assert err.read(100000000).count(b"q") == 100000000
        report = err.read().decode()
    assert "failed first: exit code 1" in report and len(report) < 10000, report[:2000]


def test_flood_by_tee_and_a_death(tmp):
    worker = script(tmp, "w", PY
                    + "if rank == 7:\n    time.sleep(0.5)\n    print('dying', file=sys.stderr)\n"
                      "    sys.exit(3)\n"
                      "while True: os.write(1, b'flood ' * 100 + b'\\n')\n")
    with open(tmp / "out", "wb") as out:
        done = subprocess.run([CRUN, "--nproc-per-node=8", "-t", "3", f"--log-dir={tmp}/logs",
                               worker],
                              env=ENV, stdout=out, stderr=subprocess.PIPE, text=True,
                              timeout=TIMEOUT_S)
    assert done.returncode == 1 and "rank 7" in done.stderr, done.stderr
    assert "    | dying\n" in done.stderr, done.stderr
    assert "stopped by crun: rank 0-6 (SIGTERM)" in done.stderr, done.stderr


def test_worker_that_closes_its_stderr(tmp):
    worker = script(tmp, "w", PY
                    + "print('last', file=sys.stderr, flush=True)\nos.close(1); os.close(2)\n"
                                   "time.sleep(0.3)\nos._exit(4)\n")
    for args in ([], ["-t", "3"]):
        done = crun(*args, f"--log-dir={tmp}/logs", worker, env=ENV)
        assert done.returncode == 1 and "exit code 4" in done.stderr, done
        assert "    | last\n" in done.stderr, done


def test_launcher_without_output(tmp):
    worker = script(tmp, "w", PY + f"print(rank); print(rank, file=sys.stderr)\n"
                                   f"open('{tmp}/ended', 'w').close()\n")
    done = subprocess.run(["/bin/sh", "-c",
                           f"exec {CRUN} -t 3 --log-dir={tmp}/logs {worker} >&- 2>&- <&-"],
                          env=ENV, timeout=TIMEOUT_S)
    assert done.returncode == 0 and (tmp / "ended").exists()
    assert log_of(tmp / "logs", 0).read_text() == "0\n"


def test_non_utf8_last_words(tmp):
    worker = script(tmp, "w",
                    "#!/bin/sh\nprintf 'caf\\351 \\377\\376 \\033]0;x\\007\\n' >&2\nexit 2\n")
    done = subprocess.run([CRUN, f"--log-dir={tmp}/logs", worker], env=ENV, capture_output=True,
                          timeout=TIMEOUT_S)
    assert b"    | caf\\xe9 \\xff\\xfe \\x1b]0;x\\x07\n" in done.stderr, done.stderr
    # The console gets the worker's bytes unchanged.
    assert done.stderr.startswith(b"caf\xe9 \xff\xfe \x1b]0;x\x07\n"), done.stderr


if __name__ == "__main__":
    run_tests(globals())
