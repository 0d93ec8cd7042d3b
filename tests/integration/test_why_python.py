#!/usr/bin/env python3
# timeout: 240
"""crun-agent why shows the Python stack of a real Python program without py-spy, by the program's
faulthandler; and no signal is sent to a program that has not registered faulthandler for it."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, ROOT, clean_env, crun, run, run_tests, script, start, wait_for

HEAD = """#!/usr/bin/python3
import faulthandler, os, pathlib, signal, site, sys, threading, time
rank = int(os.environ["RANK"])
"""
TAIL = """
def load_batch():
    time.sleep(600)
def main():
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    pathlib.Path(os.environ["READY"], str(rank)).touch()
    load_batch() if rank == 1 else time.sleep(600)
main()
"""
# the .pth files of the wheel, as the interpreter reads them when they are in site-packages
HOOK = f"site.addsitedir({str(ROOT / 'python')!r})\n"


def look(tmp, code, *options, count=2, **env):
    """Starts `count` workers, and returns the rows of crun-agent why, whether all workers lived on,
    and the job's stderr."""
    name = f"python-{os.getpid()}-{tmp.name}"
    ready = tmp / "ready"
    ready.mkdir()
    env = clean_env(OMP_NUM_THREADS=1, READY=ready, PATH="/usr/bin:/bin", **env)
    job = start([CRUN, f"--nproc-per-node={count}", f"--rdzv-id={name}", *options,
                 script(tmp, "w", HEAD + code + TAIL)], env=env)
    try:
        wait_for(lambda: len(list(ready.iterdir())) == count, "the workers")

        def ask():
            done = run([BUILD / "bin" / "crun-agent", "why", "--job", name, "--json"], env=env)
            return [json.loads(line) for line in done.stdout.splitlines()]

        def all_sleep():
            """A worker is ready a moment before its main thread calls time.sleep()."""
            found = ask()
            return len(found) == count and all(
                "sleep" in r["kernel"] or "select" in r["kernel"] for r in found)
        wait_for(all_sleep, "the workers' main threads to sleep")
        rows = ask()
        lives = [r["pid"] for r in ask()] == [r["pid"] for r in rows] and job.poll() is None
        return {r["rank"]: r for r in rows}, lives
    finally:
        job.terminate()
        look.stderr = job.communicate()[1]


def test_the_wheels_hook(tmp):
    rows, lives = look(tmp, HOOK)
    assert lives and len(rows) == 2, (rows, look.stderr)
    assert rows[1]["python"].startswith("load_batch (w:"), rows
    assert " < main (w:" in rows[1]["python"] and "<module> (w:" in rows[1]["python"], rows
    assert rows[0]["python"].startswith("main (w:"), rows
    assert "Python stack" not in rows[1]["note"], rows


def test_the_hook_can_be_switched_off(tmp):
    rows, lives = look(tmp, HOOK, CRUN_PYTHON_STACKS="0")
    assert lives and {r["python"] for r in rows.values()} == {""}, rows
    assert "py-spy is not in PATH, nor is faulthandler registered" in rows[0]["note"], rows


def test_a_program_that_registers_faulthandler_itself(tmp):
    """SIGUSR1, with faulthandler's default file: stderr, here a log file."""
    rows, lives = look(tmp, "faulthandler.register(signal.SIGUSR1, all_threads=True)\n", "-r3",
                       f"--log-dir={tmp}/logs", CRUN_STACK_SIGNAL="10")
    assert lives and rows[1]["python"].startswith("load_batch (w:"), (rows, look.stderr)
    assert rows[0]["python"].startswith("main (w:"), rows


def test_a_stack_that_goes_to_the_console(tmp):
    rows, lives = look(tmp, "faulthandler.register(signal.SIGUSR1)\n", CRUN_STACK_SIGNAL="10")
    assert lives and "the worker has written it to its stderr" in rows[1]["note"], rows
    assert "in load_batch" in look.stderr, look.stderr


def test_programs_that_have_no_handler_live_on(tmp):
    """crun sends no signal to them: the default action of both signals would end the programs."""
    rows, lives = look(tmp, "fd = os.memfd_create('crun-python-stacks-40')\n",
                       CRUN_STACK_SIGNAL="10")
    assert lives and {r["python"] for r in rows.values()} == {""}, (rows, look.stderr)


def test_a_handler_of_the_programs_own_is_not_called(tmp):
    code = "signal.signal(signal.SIGUSR1, lambda *_: os.write(2, b'saved and left\\n'))\n"
    rows, lives = look(tmp, code)
    assert lives and {r["python"] for r in rows.values()} == {""}, rows
    assert "saved and left" not in look.stderr, look.stderr


def test_a_hang_shows_python_stacks(tmp):
    """--hang-timeout ends the round; its report names the Python function of the odd rank."""
    (tmp / "ready").mkdir()
    env = clean_env(OMP_NUM_THREADS=1, READY=tmp / "ready", PATH="/usr/bin:/bin")
    done = crun("--nproc-per-node=3", "--hang-timeout=1", script(tmp, "w", HEAD + HOOK + TAIL),
                env=env)
    assert done.returncode == 1 and "rank 1 on " in done.stderr, done
    assert "load_batch (w:" in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
