#!/usr/bin/env python3
# timeout: 400
"""Stopping and starting again: budgets, grace, whole process groups (contract 27 to 29, 36, 38, 40,
70)."""
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, PACE, SCALE, TIMEOUT_S, alive, clean_env, crun, read_text, run_tests, \
    script, signal, start, wait_for  # noqa: E402

ENV = clean_env(OMP_NUM_THREADS=1)
PY = "#!/usr/bin/python3\nimport os, signal, subprocess, sys, time\n" \
     "rank = int(os.environ['RANK'])\n" \
     "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"


def worker(tmp, text):
    return script(tmp, "job.py", PY + text)


def pids(tmp, count):
    """The pids that the workers wrote to pid.<rank>."""
    def written():
        found = [read_text(tmp / f"pid.{i}") for i in range(count)]
        return [int(t) for t in found] if all(t.endswith("\n") for t in found) else None
    return wait_for(written, "the workers' pids")


def note(tmp):
    return (f"with open('{tmp}/new.%d' % rank, 'w') as f: print(os.getpid(), file=f)\n"
            f"os.rename('{tmp}/new.%d' % rank, '{tmp}/pid.%d' % rank)\n")


def test_restart_then_success(tmp):
    done = crun("--nproc-per-node=2", "--max-restarts=1",
                worker(tmp, "print(f'attempt {attempt} rank {rank}', flush=True)\n"
                            "if attempt == 0 and rank == 1: sys.exit(3)\n"
                            "if attempt == 0: time.sleep(100)\n"), env=ENV)
    assert done.returncode == 0, done
    assert "attempt 1 rank 0" in done.stdout and "attempt 1 rank 1" in done.stdout, done
    assert re.search(r"rank 1 .* failed first: exit code 3; restart 1 of 1", done.stderr), done


def test_budget_spent(tmp):
    done = crun("--nproc-per-node=2", "--max-restarts=2",
                worker(tmp, "if rank == 1: sys.exit(10 + attempt)\ntime.sleep(100)\n"), env=ENV)
    assert done.returncode == 1, done
    assert "  exitcode  : 12 (pid:" in done.stderr and "restarts: 2 of 2 used" in done.stderr, done


def test_early_success_waits(tmp):
    done = crun("--nproc-per-node=3", "--max-restarts=1",
                worker(tmp, "if rank == 0: sys.exit(0)\n"
                            f"time.sleep(0.3)\nopen('{tmp}/' + str(rank), 'w').close()\n"), env=ENV)
    assert done.returncode == 0 and (tmp / "1").exists() and (tmp / "2").exists(), done


def test_siblings_get_sigterm_then_sigkill(tmp):
    done = crun("--nproc-per-node=3", worker(tmp, f"""
ready = '{tmp}/ready'
def caught(number, frame):
    open('{tmp}/caught.%d' % rank, 'w').close()
    if rank == 1: sys.exit(0)
signal.signal(signal.SIGTERM, caught)
open(ready + str(rank), 'w').close()
while not all(os.path.exists(ready + str(i)) for i in range(3)): time.sleep(0.01)
if rank == 0: os._exit(5)
end = time.monotonic() + 300
while time.monotonic() < end: time.sleep(0.1)
"""), env=ENV, timeout=170 * SCALE)
    assert done.returncode == 1, done
    assert (tmp / "caught.1").exists() and (tmp / "caught.2").exists()
    assert "stopped by crun: rank 1 (SIGTERM); rank 2 (SIGKILL)" in done.stderr, done


def test_every_handled_signal_ends_the_job(tmp):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        for i in range(2):
            (tmp / f"pid.{i}").unlink(missing_ok=True)
            (tmp / f"got.{i}").unlink(missing_ok=True)
        launch = start([CRUN, "--nproc-per-node=2", worker(tmp, f"""
def caught(number, frame):
    with open('{tmp}/got.%d' % rank, 'w') as f: f.write(str(number))
    os._exit(1)
for s in (1, 2, 3, 15): signal.signal(s, caught)
{note(tmp)}
while True: time.sleep(0.05)  # pause() would miss a signal that comes just before it
""")], env=ENV)
        workers = pids(tmp, 2)
        launch.send_signal(number)
        out, err = launch.communicate(timeout=TIMEOUT_S)
        assert launch.returncode == 1, err
        assert f"got signal: {int(number)}" in err, err
        assert [read_text(tmp / f"got.{i}") for i in range(2)] == [str(int(number))] * 2
        assert not any(alive(p) for p in workers)


def test_shutdown_timeout(tmp):
    for args, env in ((["--shutdown-timeout=1"], ENV),
                      ([], dict(ENV, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="1"))):
        (tmp / "pid.0").unlink(missing_ok=True)
        launch = start([CRUN, *args, worker(tmp, "signal.signal(15, signal.SIG_IGN)\n" + note(tmp) +
                                            "while True: time.sleep(1)\n")], env=env)
        stubborn = pids(tmp, 1)
        begin = time.monotonic()
        launch.terminate()
        _, err = launch.communicate(timeout=TIMEOUT_S)
        assert launch.returncode == 1 and not alive(stubborn[0]), err
        assert time.monotonic() - begin >= 0.9  # it had its second


def test_second_signal_starts_anew_and_leaves_nothing(tmp):
    launch = start([CRUN, f"--shutdown-timeout={5 * PACE:g}", worker(tmp, f"""
got = []
def caught(number, frame):
    got.append(number)
    with open('{tmp}/got', 'w') as f: f.write(repr(got))
for s in (2, 15): signal.signal(s, caught)
{note(tmp)}
while True: time.sleep(0.05)
""")], env=ENV)
    stubborn = pids(tmp, 1)
    launch.send_signal(signal.SIGINT)
    wait_for(lambda: read_text(tmp / "got") == "[2]", "the first signal")
    launch.send_signal(signal.SIGINT)
    wait_for(lambda: read_text(tmp / "got") == "[2, 15]", "SIGTERM after the second")
    _, err = launch.communicate(timeout=TIMEOUT_S)
    assert launch.returncode == 1 and not alive(stubborn[0]), err


def test_signal_while_a_restart_stops_workers(tmp):
    launch = start([CRUN, "--nproc-per-node=2", "--max-restarts=100", "--shutdown-timeout=1",
                    worker(tmp, "signal.signal(15, signal.SIG_IGN)\n" + note(tmp) +
                           f"while rank == 1 and not os.path.exists('{tmp}/pid.0'):\n"
                           "    time.sleep(0.01)\n"
                           "if rank == 1: os._exit(8)\n"
                           "while True: time.sleep(1)\n")], env=ENV)
    stubborn = pids(tmp, 2)
    wait_for(lambda: not alive(stubborn[1]), "rank 1 to fail")
    launch.terminate()
    _, err = launch.communicate(timeout=2 * TIMEOUT_S)
    assert launch.returncode == 1 and not alive(stubborn[0]), err
    assert "failed first: exit code 8" in err and "got signal: 15" in err, err


def test_grandchildren_are_stopped(tmp):
    launch = start([CRUN, worker(tmp, "child = subprocess.Popen(['sleep', '1000'])\n"
                                      f"open('{tmp}/child', 'w').write(f'{{child.pid}}\\n')\n"
                                      + note(tmp) +
                                 "time.sleep(1000)\n")], env=ENV)
    pids(tmp, 1)
    child = int(read_text(tmp / "child"))
    assert alive(child)
    launch.terminate()
    launch.communicate(timeout=TIMEOUT_S)
    assert not alive(child)


def test_a_background_process_with_our_pipe_does_not_hang_the_end(tmp):
    worker = script(tmp, "w",
                    f"#!/bin/sh\nsetsid sleep 1000 &\necho $! > {tmp}/child\necho done >&2\n")
    done = crun("--nproc-per-node=2", "-t", "3", f"--log-dir={tmp}/logs", "--leftovers=end", worker,
                env=ENV)
    assert done.returncode == 0 and done.stderr.count("done") == 2, done
    assert not alive(int(read_text(tmp / "child")))


def leave_processes(tmp, status, *args, **env):
    """Runs a worker that leaves three processes: one in its session, one in a session of its own,
    and one that a dead parent has left in a session of its own, as daemons are. Returns which of
    them live on after the job."""
    nap = "exec sleep 1000 >/dev/null 2>&1"
    worker = script(tmp, "w", "#!/bin/bash\n"
                    f"({nap}) & echo $! > {tmp}/same\n"
                    f"setsid sh -c 'echo $$ > {tmp}/own; {nap}' &\n"
                    f"setsid sh -c 'sh -c \"echo \\$\\$ > {tmp}/daemon; {nap}\" & exit' &\n"
                    f"while [ ! -s {tmp}/own -o ! -s {tmp}/daemon ]; do sleep 0.01; done\n"
                    f"exit {status}\n")
    done = crun(*args, worker, env=clean_env(**env))
    assert done.returncode == status, done
    pids = {name: int(read_text(tmp / name)) for name in ("same", "own", "daemon")}
    left = {name for name, pid in pids.items() if alive(pid)}
    for name in left:
        assert "/crun-" not in read_text(f"/proc/{pids[name]}/cgroup"), name
        os.kill(pids[name], signal.SIGKILL)
    for name in pids:
        (tmp / name).unlink()
    return left


def test_what_workers_that_ended_well_have_left(tmp):
    for env in ({}, {"CRUN_CGROUP": "0"}):
        assert leave_processes(tmp, 0, **env) == {"own", "daemon"}
        assert leave_processes(tmp, 0, "--leftovers=end", **env) == set()
        assert leave_processes(tmp, 0, "--leftovers=keep", **env) == {"same", "own", "daemon"}
        assert leave_processes(tmp, 1, "--leftovers=keep", **env) == set()  # the job has failed


if __name__ == "__main__":
    run_tests(globals())
