#!/usr/bin/env python3
"""crun --preload: workers that are started after a failure are forks of a process that has imported
the modules, and are otherwise like workers that were executed."""
import json
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, clean_env, read_text, run, run_tests, script, start  # noqa: E402
from crun_test import wait_for  # noqa: E402

# Dies until the fork server is ready, so that the last start is a fork of it. A worker that was
# executed notes what it sees in executed.<rank>, one that was forked in forked.<rank>. A fork goes
# on when all ranks of its attempt are forks: beside a worker that was executed, because the fork
# server was slow, it waits for its end.
WORKER = """
import json, os, random, re, signal, sys, threading
folder = os.environ["FOLDER"]
is_forked = "slow_module" in sys.modules
seen = {
    "argv": sys.argv, "name": __name__, "file": __file__, "spec": str(__spec__),
    "path": sys.path[0], "folder": os.getcwd(), "leads": os.getsid(0) == os.getpid(),
    "parent": os.getppid(), "cpus": sorted(os.sched_getaffinity(0)),
    "files": sorted(os.listdir("/proc/self/fd"))[:3], "globals": sorted(globals()),
    "environment": {k: re.sub("/attempt_[0-9.]+/", "/attempt/", v) for k, v in os.environ.items()
                    if k not in ("CRUN_AGENT", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT",
                                 "TORCHELASTIC_ERROR_FILE", "CRUN_ROUND")},
    "signals": [str(signal.getsignal(s)) for s in (signal.SIGTERM, signal.SIGINT)],
    "threads": threading.active_count(), "stdin": sys.stdin.read(1) if is_forked else "",
}
name = "forked" if is_forked else "executed"
path = f"{folder}/{name}.{os.environ['RANK']}"
with open(path + ".new", "w") as file:
    json.dump(dict(seen, random=random.random()), file)
os.rename(path + ".new", path)
started = f"{folder}/started.{os.environ['TORCHELASTIC_RESTART_COUNT']}."
with open(f"{path}.new", "w") as file:
    file.write(name)
os.rename(f"{path}.new", f"{started}{os.environ['RANK']}")
def all_are_forks():
    for rank in range(int(os.environ["WORLD_SIZE"])):
        try:
            with open(f"{started}{rank}") as file:
                if file.read() != "forked": return False
        except FileNotFoundError:
            return False
    return True
while is_forked and not all_are_forks():
    threading.Event().wait(0.01)
sys.stdout.write(f"one line of {name}\\n")  # one call: print() makes two when unbuffered
if not is_forked:
    all_ = [f"executed.{rank}" for rank in range(int(os.environ["WORLD_SIZE"]))]
    while not all(os.path.exists(f"{folder}/{name}") for name in [*all_, "imported"]):
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1:] == ["fails"]:
    raise ValueError("told by a fork")
"""

MODULE = "import os; open(os.environ['FOLDER'] + '/imported', 'w').close()\n"


def launch(tmp, *words, options=(), module=MODULE):
    """Returns crun's result, and what the workers saw: {name: [of rank 0, of rank 1]}."""
    (tmp / "slow_module.py").write_text(module)
    path = script(tmp, "worker.py", WORKER)
    done = run([CRUN, "--nproc-per-node=2", "--max-restarts=1000", "--preload=slow_module,json",
                *options, path, *words],
               env=clean_env(FOLDER=tmp, PYTHONPATH=tmp, PYTHONDONTWRITEBYTECODE=1,
                             PYTHON_EXEC=sys.executable))
    return done, {name: [json.loads(read_text(p)) for p in sorted(tmp.glob(f"{name}.?"))]
                  for name in ("executed", "forked")}


def test_a_fork_sees_what_an_executed_worker_sees(tmp):
    done, seen = launch(tmp, "a", "b c")
    assert done.returncode == 0, done
    assert len(seen["executed"]) == len(seen["forked"]) == 2, done
    assert done.stdout.count("one line of forked\n") == 2, done
    chances = {seen["forked"][rank].pop("random") for rank in (0, 1)}
    assert len(chances) == 2, "both forks draw the same random numbers"
    for executed, forked in zip(seen["executed"], seen["forked"]):
        executed.pop("random")
        differ = {k: (executed[k], forked[k]) for k in executed if executed[k] != forked[k]}
        assert not differ, differ


def test_a_module_and_a_text_can_be_forked(tmp):
    for options in (["-m"], ["--run-path"]):
        folder = tmp / options[0].strip("-")
        folder.mkdir()
        (folder / "worker.py").write_text(WORKER)
        (folder / "slow_module.py").write_text(MODULE)
        program = "worker" if options == ["-m"] else folder / "worker.py"
        done = run([CRUN, "--max-restarts=1000", "--preload=slow_module", *options, program, "x"],
                   env=clean_env(FOLDER=folder, PYTHONPATH=folder, PYTHON_EXEC=sys.executable,
                                 PYTHONDONTWRITEBYTECODE=1))
        assert done.returncode == 0, done
        executed, forked = (json.loads(read_text(folder / f"{n}.0")) for n in ("executed",
                                                                               "forked"))
        for key in ("argv", "name", "file", "path", "environment"):
            assert executed[key] == forked[key], (key, executed[key], forked[key])


def test_the_failure_of_a_fork_is_reported(tmp):
    done, seen = launch(tmp, "fails", options=["--max-restarts=50", "--redirects=3",
                                               f"--log-dir={tmp}/logs"])
    assert done.returncode == 1 and seen["forked"], done
    assert "ValueError: told by a fork" in done.stderr, done
    assert "fork_server" not in done.stderr and '<string>' not in done.stderr, done
    errors = [read_text(p) for p in (tmp / "logs").rglob("stderr.log")]
    assert any("ValueError: told by a fork" in text for text in errors), errors


def test_modules_that_cannot_be_imported(tmp):
    (tmp / "imported").touch()
    done, seen = launch(tmp, options=["--max-restarts=3"], module="raise RuntimeError('no device')")
    assert done.returncode == 1 and not seen["forked"] and seen["executed"], done
    assert "cannot preload 'slow_module': RuntimeError: no device" in done.stderr, done


def test_a_program_that_is_not_python(tmp):
    worker = script(tmp, "w", "#!/bin/sh\nexit 0\n")
    done = run([CRUN, "--preload=json", worker], env=clean_env())
    assert done.returncode == 0 and "cannot preload modules" in done.stderr, done


WAITS = """
import os, sys, threading
open(os.environ["FOLDER"] + f"/pid.{os.getpid()}", "w").write(str("slow_module" in sys.modules))
threading.Event().wait(1000)
"""


def server_of(crun, workers):
    """The pid of the fork server of this crun, or None. Forks have its command line; `workers` are
    their pids."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
        except (OSError, IndexError):
            continue
        is_like = parent == str(crun) and words[-2:] == [b"slow_module", b""]
        if is_like and int(path.name) not in workers:
            return int(path.name)
    return None


def test_the_server_is_killed_and_another_one_serves(tmp):
    (tmp / "slow_module.py").write_text(MODULE)
    crun = start([CRUN, "--max-restarts=1000", "--preload=slow_module", script(tmp, "w.py", WAITS)],
                 env=clean_env(FOLDER=tmp, PYTHONPATH=tmp, PYTHON_EXEC=sys.executable))

    def workers(forked):
        return {int(p.suffix[1:]) for p in tmp.glob("pid.*") if read_text(p) == str(forked)}

    def kill_until_forked():
        """Kills workers until one is a fork that was not there before."""
        before = workers(True)
        while not workers(True) - before:
            known = workers(True) | workers(False)
            for pid in known:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            wait_for(lambda: workers(True) | workers(False) > known, "the next worker")

    try:
        wait_for(lambda: workers(False), "the first worker")
        wait_for(lambda: (tmp / "imported").exists(), "the fork server")
        kill_until_forked()
        server = server_of(crun.pid, workers(True))
        assert server is not None
        os.kill(server, signal.SIGKILL)
        kill_until_forked()
        another = server_of(crun.pid, workers(True))
        assert another not in (None, server)
        crun.send_signal(signal.SIGTERM)
        crun.communicate()
        wait_for(lambda: not pathlib.Path(f"/proc/{another}").exists(), "the server's end")
    finally:
        crun.kill()
        crun.wait()


if __name__ == "__main__":
    run_tests(globals())
