#!/usr/bin/env python3
# timeout: 600
"""The same command lines under real torchrun and under crun: the workers must see the same
arguments, folder, stdin and environment, the logs must have the same tree and bytes, and the exit
status must be the same. What may differ is listed here, once:

  status       a wrong command line is 2 under crun, 1 or 2 under torchrun
  environment  names that the installed torch (1.13 in Debian 12) did not have yet, or that were
               dropped since; crun's mark on its processes
  standalone   crun serves a store (USE_AGENT_STORE=True, numeric address); 1.13 left that to rank
  0"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LIB = pathlib.Path(__file__).resolve().parent.parent / "lib"
sys.path.insert(0, str(LIB))
from crun_job import DUMP, Job  # noqa: E402
from crun_test import CRUN, skip, torch_python  # noqa: E402
from free_port import free_port  # noqa: E402

PYTHON = torch_python() or skip("no Python here has torch (Debian: python3-torch)")
TORCHRUN = [PYTHON, str(LIB / "torchrun.py"), "--monitor_interval=0.1"]

NEWER = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCHELASTIC_SIGNALS_TO_HANDLE",
         "TORCHELASTIC_TIMER_FILE", "CUDA_MODULE_LOADING"}
# crun's mark on its processes, by which it finds what they leave behind; the worker runtime's way
# to crun; where torch puts the files through which crun-agent why looks into a worker
OURS = {"CRUN_NURSERY", "CRUN_AGENT", "TORCH_WORKER_SERVER_SOCKET", "TORCH_FR_DUMP_TEMP_FILE",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}
OLDER = {"NCCL_ASYNC_ERROR_HANDLING"}
PLACES = {"DUMP_DIR", "TMPDIR", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK"}


def comparable(worker):
    env = {k: v for k, v in worker.env.items() if k not in NEWER | OLDER | OURS | PLACES}
    env["TORCHELASTIC_ERROR_FILE"] = re.sub(r"^.*/([^/]+)_[^/]{8}/(attempt_\d+/\d+/error.json)$",
                                            r"\1_*/\2", env["TORCHELASTIC_ERROR_FILE"])
    return {"argv": worker.argv, "command_line": worker.command_line, "cwd": worker.cwd,
            "stdin": worker.stdin, "env": env}


def tree(folder):
    """{path below the job's folder: bytes}; empty folders too. torchrun has no verdict.json."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.name == "verdict.json":
            continue
        name = re.sub(r"^([^/]+)_[^/]{8}(/|$)", r"\1_*\2", str(path.relative_to(folder)))
        found[name] = path.read_bytes() if path.is_file() else None
    return found


class Parity(unittest.TestCase):
    maxDiff = None

    def both(self, *args, **kw):
        """Runs both; "{port}" and "{logs}" in arguments are filled in for each."""
        jobs, trees = [], []
        port = free_port()
        for launcher in (TORCHRUN, None):
            with tempfile.TemporaryDirectory(prefix="crun-logs-") as folder:
                given = [str(a).format(port=port, logs=folder) for a in args]
                jobs.append(Job(*given, launcher=launcher, **kw))
                trees.append(tree(folder))
        theirs, ours = jobs
        self.assertEqual(theirs.status, ours.status, f"{theirs.err}\n---\n{ours.err}")
        self.assertEqual([comparable(w) for w in theirs.workers],
                         [comparable(w) for w in ours.workers])
        self.assertEqual(trees[0], trees[1])
        return theirs, ours

    STATIC = ("--master_port={port}",)

    def test_workers(self):
        _, ours = self.both(*self.STATIC, "--nproc_per_node=3", "--role=trainer", DUMP, "a", "-b c",
                            "")
        self.assertEqual(len(ours.workers), 3)

    def test_one_worker(self):
        self.both(*self.STATIC, DUMP)

    def test_threads_are_kept(self):
        self.both(*self.STATIC, "--nproc_per_node=2", DUMP, env={"OMP_NUM_THREADS": "3"})

    def test_stdin_and_folder(self):
        self.both(*self.STATIC, DUMP, stdin="typed", cwd="/usr", env={"DUMP_THEN": "stdin"})

    def test_failure(self):
        theirs, _ = self.both(*self.STATIC, DUMP, env={"DUMP_THEN": "exit:3"})
        self.assertEqual(theirs.status, 1)

    def test_restart(self):
        theirs, ours = self.both(*self.STATIC, "--max_restarts=2", "--rdzv_id=job7", DUMP,
                                 env={"DUMP_THEN": "exit-once:5"})
        self.assertEqual((theirs.status, [w.attempt for w in ours.workers]), (0, [0, 1]))

    def test_restarts_run_out(self):
        _, ours = self.both(*self.STATIC, "--max_restarts=1", DUMP, env={"DUMP_THEN": "exit:5"})
        self.assertEqual([w.attempt for w in ours.workers], [0, 1])

    def test_module(self):
        self.both(*self.STATIC, "-m", "dump_worker", "x", env={"PYTHONPATH": str(LIB)})

    def test_no_python(self):
        self.both(*self.STATIC, "--no_python", DUMP, "x", "--master_port=1")

    def test_argument_template(self):
        self.both(*self.STATIC, "--nproc_per_node=2", DUMP, "$local_rank", "${{local_rank}}", "$$",
                  "$other", "a$$b$x${{y}}", "$", "${{", "$1", "100$")

    def test_double_dash(self):
        self.both(*self.STATIC, DUMP, "--", "-x")
        self.both(*self.STATIC, "--", DUMP, "--", "x")
        self.both(*self.STATIC, DUMP, "-q", "--", "y")

    def test_variables(self):
        env = {"PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "3", "PET_ROLE": "r",
               "PET_STANDALONE": "0"}
        self.both(*self.STATIC, DUMP, env=env)
        self.both(*self.STATIC, "--nproc_per_node=1", DUMP, env=env)

    def test_error_file_variable(self):
        self.both(*self.STATIC, "--log_dir={logs}", "--max_restarts=1", DUMP,
                  env={"DUMP_THEN": "exit-once:5"})

    def test_standalone(self):
        theirs = Job("--standalone", "--nproc_per_node=2", DUMP, launcher=TORCHRUN)
        ours = Job("--standalone", "--nproc_per_node=2", DUMP)
        self.assertEqual((theirs.status, ours.status), (0, 0), ours.err)
        changing = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE",
                    "TORCHELASTIC_USE_AGENT_STORE"} | NEWER | OLDER | OURS | PLACES
        for a, b in zip(theirs.workers, ours.workers):
            self.assertEqual({k: v for k, v in a.env.items() if k not in changing},
                             {k: v for k, v in b.env.items() if k not in changing})
            self.assertEqual(len(a.env["TORCHELASTIC_RUN_ID"]), len(b.env["TORCHELASTIC_RUN_ID"]))

    def test_redirects(self):
        theirs, ours = self.both(*self.STATIC, "--nproc_per_node=2", "--log_dir={logs}", "-r",
                                 "0:1,1:2",
                                 DUMP, env={"DUMP_THEN": "print", "OMP_NUM_THREADS": "1"})
        self.assertEqual((theirs.out, theirs.err), (ours.out, ours.err))

    def test_tee(self):
        theirs, ours = self.both(*self.STATIC, "--log_dir={logs}", "--tee=3", "--role=tr", DUMP,
                                 env={"DUMP_THEN": "print", "OMP_NUM_THREADS": "1"})
        self.assertEqual((theirs.out, theirs.err), (ours.out, ours.err))
        self.assertEqual(ours.out, "[tr0]:to stdout\n")

    def test_redirect_and_tee(self):
        self.both(*self.STATIC, "--nproc_per_node=2", "--log_dir={logs}", "-r", "3", "-t", "1:1",
                  DUMP,
                  env={"DUMP_THEN": "print", "OMP_NUM_THREADS": "1"})

    def test_every_option_is_known(self):
        listing = ("from torch.distributed.run import get_args_parser\n"
                   "for a in get_args_parser()._actions: print(*a.option_strings)")
        theirs = subprocess.run([PYTHON, "-c", listing], stdout=subprocess.PIPE, text=True,
                                check=True)
        names = {name.replace("_", "-") for name in theirs.stdout.split() if name.startswith("--")}
        ours = subprocess.run([CRUN, "--print-completion=bash"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        known = set(re.search(r'^ +options="(.*)"', ours, re.M).group(1).split())
        self.assertGreater(len(names), 20)
        self.assertEqual(names - known, set())

    def test_line_prefix(self):
        self.both(*self.STATIC, "--log_dir={logs}", "--tee=1", DUMP,
                  env={"DUMP_THEN": "print", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": ""})

    def test_the_words_that_tools_search_for(self):
        """Called torchrun, crun ends with torchrun's status and says torchrun's words."""
        with tempfile.TemporaryDirectory(prefix="crun-name-") as folder:
            link = pathlib.Path(folder, "torchrun")
            link.symlink_to(CRUN)
            for args, env, status, words in (
                    (["--help"], {}, 0, [r"[Uu]sage: torchrun"]),
                    (["--standalone"], {}, 2, [r"torchrun(\.py)?: error: the following arguments "
                                               r"are required"]),
                    (["--bogus", DUMP], {}, 2, [r"torchrun(\.py)?: error: unrecognized arguments"]),
                    ([DUMP], {"DUMP_THEN": "exit:3"}, 1, [
                        r"(?m)^torch\.distributed\.elastic\.multiprocessing\.errors\."
                        r"ChildFailedError: $", r"(?m)^\S+ FAILED$",
                        r"(?m)^Root Cause \(first observed failure\):\n\[0\]:$",
                        r"(?m)^  exitcode  : 3 \(pid: \d+\)"]),
                    (["--no_python", "sh", "-c", "kill -9 $$$$"], {}, 1, [
                        r"(?m)^  exitcode  : -9 \(pid: \d+\)",
                        r"(?m)^  traceback : Signal 9 \(SIGKILL\) received by PID \d+$"])):
                for launcher in (TORCHRUN, [str(link)]):
                    done = Job(*args, env=env, launcher=launcher)
                    self.assertEqual(done.status, status, (args, done.err))
                    for word in words:
                        self.assertRegex(done.out + done.err, word, (launcher, args))

    def test_wrong_command_lines(self):
        for args in (["--bogus", DUMP], ["--standalone"], ["--nnodes=2:1", DUMP],
                     ["--nnodes=x", DUMP],
                     ["--nproc_per_node=0", DUMP], ["--nproc_per_node=foo", DUMP],
                     ["--max_restarts=x", DUMP], ["--max_restarts=-1", DUMP],
                     ["--rdzv_backend=foo", DUMP], ["--no_python", "-m", "x"],
                     ["--rdzv_conf=a", "--rdzv_backend=c10d", DUMP], ["-r", "4", DUMP]):
            theirs, ours = Job(*args, launcher=TORCHRUN), Job(*args)
            self.assertIn(theirs.status, (1, 2), args)
            self.assertEqual(ours.status, 2, args)
            self.assertEqual((theirs.workers, ours.workers), ([], []), args)


if __name__ == "__main__":
    unittest.main()
