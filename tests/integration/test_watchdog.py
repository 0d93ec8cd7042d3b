#!/usr/bin/env python3
"""Tests the timer watchdog (contract 65): workers set timers through a pipe, and the watchdog sends
a signal to a worker whose timer has expired."""
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import PACE, clean_env, crun, run_tests, script, start  # noqa: E402

PY = """#!/usr/bin/python3
import json, os, signal as signals, stat, sys, time
rank = int(os.environ['RANK'])
path = os.environ['TORCHELASTIC_TIMER_FILE']
assert stat.S_ISFIFO(os.stat(path).st_mode)
def send(seconds, scope='s', signal=9, **more):
    when = time.time() + seconds if seconds >= 0 else -1
    line = json.dumps({'version': 1, 'pid': os.getpid(), 'scope_id': scope, 'expiration_time': when,
                       'signal': signal, **more}) + '\\n'
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, line.encode())
    os.close(fd)
def until_expired():
    "Waits until crun has dealt with all timers of less than 0.3 s."
    signals.pthread_sigmask(signals.SIG_BLOCK, [signals.SIGUSR1])
    send(0.3, 'the last one', signals.SIGUSR1)
    signals.sigwait([signals.SIGUSR1])
"""


def launch(tmp, text, *args, workers=2, **env):
    settings = dict(OMP_NUM_THREADS=1, TORCHELASTIC_ENABLE_FILE_TIMER=1,
                    TORCHELASTIC_TIMER_FILE=tmp / "timers")
    done = crun(f"--nproc-per-node={workers}", f"--log-dir={tmp}/logs", *args,
                script(tmp, "w", PY + text),
                env=clean_env(**{**settings, **env}))
    assert not (tmp / "timers").exists(), done  # removed at the end
    return done


def test_an_expired_timer_kills(tmp):
    done = launch(tmp, "if rank == 1: send(0.2)\ntime.sleep(100)\n")
    assert done.returncode == 1 and "  exitcode  : -9 " in done.stderr, done
    assert "rank 1" in done.stderr and "sent by crun's timer watchdog" in done.stderr, done
    assert "the timer 's' of process" in done.stderr, done


def test_the_signal_is_the_workers_choice(tmp):
    done = launch(tmp, "send(0.2, signal=12)\ntime.sleep(100)\n", workers=1)
    assert done.returncode == 1 and "  exitcode  : -12 " in done.stderr, done


LIMIT_S = 2 * PACE  # time enough to take a timer back


def test_a_timer_taken_back_or_moved(tmp):
    done = launch(tmp,
                  f"send({LIMIT_S})\nsend(1000, 'other')\nsend(-1)\n"
                  f"send({LIMIT_S}, 'other')\nsend(2000, 'other')\ntime.sleep({LIMIT_S} + 1)\n")
    assert done.returncode == 0 and "the timer" not in done.stderr, done


def test_a_process_of_somebody_else_gets_no_signal(tmp):
    with start(["sleep", "60"]) as other:
        done = launch(tmp, f"send(0.1, pid={other.pid})\nsend(0.1, pid=1)\nuntil_expired()\n",
                      workers=1)
        alive = other.poll() is None
        other.kill()
    assert done.returncode == 0 and alive, done
    said = f"process {other.pid} is not a process of this job, so it gets no signal"
    assert said in done.stderr, done


def test_a_child_of_a_worker_gets_its_signal(tmp):
    done = launch(tmp, "import subprocess\n"
                       "child = subprocess.Popen(['sh', '-c', 'sleep 60'])\n"
                       "send(0.1, pid=child.pid, signal=15)\n"
                       "assert child.wait() == -15\n", workers=1)
    assert done.returncode == 0, done


def test_lines_about_nonsense_are_limited(tmp):
    began = time.monotonic()
    done = launch(tmp, "with open(path, 'w') as f:\n"
                       "    for i in range(2000): f.write('nonsense\\n')\n"
                       "send(0.1, signal=0)\nuntil_expired()\n", workers=1)
    took = time.monotonic() - began
    assert done.returncode == 0, done
    # 2000 lines about nonsense and one about each of two timers, of which 20 are logged in 10 s
    counted = sum(int(n) for n in re.findall(
        r"(\d+) more lines about the workers' timers were not logged", done.stderr))
    logged = done.stderr.count("is not a request") + done.stderr.count("has expired")
    assert counted + logged == 2002 and 20 <= logged <= 20 * (1 + took / 10), (logged, done)


def test_without_a_signal_it_is_only_said(tmp):
    done = launch(tmp, "send(0.1, signal=0)\nuntil_expired()\n", workers=1)
    assert done.returncode == 0 and "the timer 's'" in done.stderr, done


def test_restart_and_nonsense_in_the_pipe(tmp):
    done = launch(tmp, "with open(path, 'w') as f:\n"
                       "    f.write('nonsense\\n{}\\n[1]\\n' + 'x' * 20000 + '\\n')\n"
                       "send(0.1, pid=1)\nsend(0.1, pid='x')\nsend(0.1, pid=-1)\n"
                       "send(0.1, pid=os.getppid())\n"
                       "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
                       "    send(0.2)\n    time.sleep(100)\ntime.sleep(0.5)\n",
                  "--max-restarts=1", workers=1)
    assert done.returncode == 0, done
    assert "is not a request" in done.stderr and "restart 1 of 1" in done.stderr, done


def test_a_place_of_its_own(tmp):
    worker = script(tmp, "w", PY + "print(path)\n")
    env = clean_env(TORCHELASTIC_ENABLE_FILE_TIMER=1, TORCHELASTIC_TIMER_FILE=None, TMPDIR=tmp)
    done = crun(worker, env=env)
    assert done.returncode == 0 and done.stdout.startswith(f"{tmp}/watchdog_timer_"), done
    assert not os.path.exists(done.stdout.strip())


def test_off_it_only_passes_the_name_on(tmp):
    worker = script(tmp, "w", "#!/bin/sh\necho $TORCHELASTIC_TIMER_FILE\n")
    done = crun(worker, env=clean_env(TORCHELASTIC_TIMER_FILE=tmp / "x",
                                      TORCHELASTIC_ENABLE_FILE_TIMER="true"))
    assert done.stdout == f"{tmp}/x\n" and not (tmp / "x").exists(), done


if __name__ == "__main__":
    run_tests(globals())
