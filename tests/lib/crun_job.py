"""Runs crun to its end and offers the result as an object. DUMP is a worker that writes down the
arguments and the environment that it was given.

    job = Job("--nproc-per-node=2", DUMP, "arg")
    job.status, job.out, job.err, job.workers[1].env["RANK"], job.workers[1].argv
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from crun_test import CRUN, DEBIAN_PYTHON, SCALE, clean_env

TIMEOUT_S = 180 * SCALE

# A worker; each process writes its arguments and environment to a file of its own in $DUMP_DIR.
DUMP = str(pathlib.Path(__file__).resolve().parent / "dump_worker.py")

# Variables that crun uses for the workers' environment; clean_env() does not remove these.
_INPUTS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
           "NCCL_ASYNC_ERROR_HANDLING", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")


def environment(**changes):
    settings = {name: None for name in _INPUTS}
    return clean_env(**{**settings, "PYTHON_EXEC": DEBIAN_PYTHON, "PYTHONDONTWRITEBYTECODE": "1",
                        **changes})


class Worker:
    def __init__(self, data):
        self.env, self.argv, self.cwd = data["env"], data["argv"], data["cwd"]
        self.stdin, self.command_line = data["stdin"], data["command_line"]
        self.rank = int(self.env.get("RANK", -1))
        self.attempt = int(self.env.get("TORCHELASTIC_RESTART_COUNT", 0))


def read_dumps(folder):
    workers = [Worker(json.loads(p.read_text())) for p in pathlib.Path(folder).glob("*.json")]
    return sorted(workers, key=lambda w: (w.attempt, w.rank))


class Job:
    """One finished launch. `launcher` is the command line of the launcher (default: crun), to
    which the arguments are appended."""

    def __init__(self, *args, env=None, cwd=None, stdin="", launcher=None):
        with tempfile.TemporaryDirectory(prefix="crun-dump-") as dumps, \
                tempfile.TemporaryDirectory(prefix="crun-tmp-") as tmp:
            env = environment(**{"DUMP_DIR": dumps, "TMPDIR": tmp, **(env or {})})
            done = subprocess.run([*(launcher or [CRUN]), *map(str, args)], env=env, cwd=cwd,
                                  input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, errors="replace", timeout=TIMEOUT_S)
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
            self.workers = read_dumps(dumps)
            self.left_in_tmp = sorted(p.name for p in pathlib.Path(tmp).iterdir())


def require_crun():
    if not os.path.exists(CRUN):
        sys.exit(f"{CRUN} is missing; build it first")
