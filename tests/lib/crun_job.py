"""Running crun in tests, and a worker that tells what it was given.

    job = Job("--nproc-per-node=2", DUMP, "arg")
    job.status, job.out, job.err, job.workers[1].env["RANK"], job.workers[1].argv
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
CRUN = BUILD / "bin" / "crun"
PYTHON = "/usr/bin/python3"
TIMEOUT = 180  # seconds; the machine may be busy

# Writes what it sees to $DUMP_DIR, one file a process.
DUMP = str(pathlib.Path(__file__).resolve().parent / "dump_worker.py")

# What a launcher of ours must not inherit from the test run.
_OURS = ("PET_", "TORCHELASTIC_", "TORCH_ELASTIC_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
         "TORCH_NCCL_", "NCCL_", "LOGLEVEL", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "PYTHON_EXEC")


def environment(**changes):
    env = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    env["PYTHON_EXEC"] = PYTHON
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


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
    """One finished launch; `launcher` is what stands in front of the arguments."""

    def __init__(self, *args, env=None, cwd=None, stdin="", launcher=None):
        with tempfile.TemporaryDirectory(prefix="crun-dump-") as dumps, \
                tempfile.TemporaryDirectory(prefix="crun-tmp-") as tmp:
            env = environment(**{"DUMP_DIR": dumps, "TMPDIR": tmp, **(env or {})})
            done = subprocess.run([*(launcher or [str(CRUN)]), *map(str, args)], env=env, cwd=cwd,
                                  input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, errors="replace", timeout=TIMEOUT)
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
            self.workers = read_dumps(dumps)
            self.left_in_tmp = sorted(p.name for p in pathlib.Path(tmp).iterdir())


def require_crun():
    if not CRUN.exists():
        sys.exit(f"{CRUN} is missing; build it first")
