#!/usr/bin/env python3
# timeout: 400
"""torchrun's observable contract, one assertion a test, against build/bin/crun.

Differences that docs/usage.md states: a wrong value is status 2 here (torchrun: 1 or 2), a map of
redirects may name local ranks above 9, and a `$` template also reaches executables."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_job import DUMP, Job, environment, read_dumps  # noqa: E402
from crun_test import CRUN, DEBIAN_PYTHON  # noqa: E402
from free_port import free_port  # noqa: E402

UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


class Contract(unittest.TestCase):
    maxDiff = None

    def ok(self, *args, **kw):
        job = Job(*args, **kw)
        self.assertEqual(job.status, 0, job.err)
        return job

    def wrong(self, needle, *args, status=2, **kw):
        job = Job(*args, **kw)
        self.assertEqual(job.status, status, job.err)
        self.assertIn(needle, job.err)
        self.assertEqual(job.err.count("\n"), 1, job.err)
        self.assertEqual(job.workers, [])
        self.assertEqual(job.left_in_tmp, [])
        return job

    # ---- the command line ----

    def test_01_success(self):
        self.ok("--no-python", "true")

    def test_02_a_failing_worker(self):
        self.assertEqual(Job(DUMP, env={"DUMP_THEN": "exit:3"}).status, 1)

    def test_03_no_program(self):
        self.wrong("usage", "--standalone")

    def test_04_unknown_option(self):
        self.wrong("unrecognized arguments", "--bogus", DUMP)

    def test_05_arguments_of_the_program(self):
        args = ["--nproc-per-node=9", "-r", "3", "--standalone", "-h", "", "a b", "--x=$HOME"]
        self.assertEqual(self.ok(DUMP, *args).workers[0].argv, args)

    def test_06_spellings(self):
        for option in ("--nproc-per-node", "--nproc_per_node", "--nproc-per", "--nproc_per"):
            self.assertEqual(len(self.ok(f"{option}=2", DUMP).workers), 2)

    def test_07_variables(self):
        env = {"PET_NPROC_PER_NODE": "2"}
        self.assertEqual(len(self.ok(DUMP, env=env).workers), 2)
        self.assertEqual(len(self.ok("--nproc-per-node=1", DUMP, env=env).workers), 1)

    def test_08_standalone_variable(self):
        port = str(free_port())
        on = self.ok(f"--master-port={port}", DUMP, env={"PET_STANDALONE": "1"}).workers[0].env
        self.assertRegex(on["TORCHELASTIC_RUN_ID"], UUID)
        self.assertNotEqual(on["MASTER_PORT"], port)
        off = self.ok(f"--master-port={port}", DUMP, env={"PET_STANDALONE": "0"}).workers[0].env
        self.assertEqual((off["TORCHELASTIC_RUN_ID"], off["MASTER_PORT"]), ("none", port))
        self.wrong("PET_STANDALONE", DUMP, env={"PET_STANDALONE": "true"})

    def test_09_node_counts(self):
        for value in ("2:1", "0", "1:2:3", "abc"):
            self.wrong(f"'{value}'", f"--nnodes={value}", DUMP)

    def test_10_worker_counts(self):
        for value in ("foo", "0", "-1"):
            self.wrong(f"'{value}'", f"--nproc-per-node={value}", DUMP)

    def test_11_a_worker_a_cpu(self):
        self.assertEqual(len(self.ok("--nproc-per-node=cpu", DUMP).workers),
                         len(os.sched_getaffinity(0)))

    def test_12_restarts(self):
        for value in ("-1", "x"):
            self.wrong(f"'{value}'", f"--max-restarts={value}", DUMP)

    def test_13_module_without_python(self):
        self.wrong("Don't use both the '--no-python' flag and the '--module' flag at the same time",
                   "--no-python", "-m", "x")

    def test_14_python_is_unbuffered(self):
        worker = self.ok(DUMP, "a", "-b").workers[0]
        self.assertEqual(worker.command_line, [DEBIAN_PYTHON, "-u", DUMP, "a", "-b"])
        folder = str(pathlib.Path(DUMP).parent)
        worker = self.ok("-m", "dump_worker", "a", env={"PYTHONPATH": folder}).workers[0]
        self.assertEqual(worker.argv, ["a"])
        self.assertEqual(self.ok("-m", "foo.bar", "--x", env={"PYTHON_EXEC": "echo"}).out,
                         "-u -m foo.bar --x\n")

    def test_15_python_exec(self):
        self.assertEqual(self.ok(DUMP, "x", env={"PYTHON_EXEC": "/bin/echo"}).out, f"-u {DUMP} x\n")

    def test_16_argument_template(self):
        given = ["${local_rank}", "r$local_rank.", "$$", "$other", "a$$b$x${y}", "$local_ranks"]
        workers = self.ok("--nproc-per-node=2", DUMP, *given).workers
        for rank, worker in enumerate(workers):
            self.assertEqual(worker.argv, [str(rank), f"r{rank}.", "$", "$other", "a$b$x${y}",
                                           "$local_ranks"])

    # ---- the environment ----

    def test_17_variables_of_the_workers(self):
        workers = self.ok("--nproc-per-node=2", "--max-restarts=3", "--role=trainer", DUMP).workers
        self.assertEqual([w.rank for w in workers], [0, 1])
        for rank, worker in enumerate(workers):
            expected = {
                "LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "trainer", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2",
                "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "3",
                "OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
                "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            }
            self.assertEqual({k: worker.env.get(k) for k in expected}, expected)
            self.assertRegex(worker.env["TORCHELASTIC_ERROR_FILE"],
                             rf"^/.*/attempt_0/{rank}/error\.json$")
            self.assertRegex(worker.env["TORCHELASTIC_RUN_ID"], UUID)
            self.assertTrue(1 <= int(worker.env["MASTER_PORT"]) <= 65535)
            self.assertNotEqual(worker.env["MASTER_ADDR"], "")
        self.assertEqual(*(w.env["MASTER_PORT"] for w in workers))

    def test_18_threads(self):
        two = self.ok("--nproc-per-node=2", DUMP)
        self.assertEqual([w.env["OMP_NUM_THREADS"] for w in two.workers], ["1", "1"])
        self.assertEqual(two.err.count("OMP_NUM_THREADS is not set"), 1)
        one = self.ok(DUMP)
        self.assertNotIn("OMP_NUM_THREADS", one.workers[0].env)
        self.assertEqual(one.err, "")
        kept = self.ok("--nproc-per-node=2", DUMP, env={"OMP_NUM_THREADS": "7"})
        self.assertEqual(kept.workers[0].env["OMP_NUM_THREADS"], "7")
        self.assertEqual(kept.err, "")

    def test_19_nccl_error_handling(self):
        name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
        self.assertEqual(self.ok(DUMP).workers[0].env[name], "1")
        self.assertEqual(self.ok(DUMP, env={name: "0"}).workers[0].env[name], "0")

    def test_20_21_agent_store(self):
        workers = self.ok("--nproc-per-node=3", DUMP, env={"DUMP_THEN": "store"}).workers
        self.assertEqual([w.env["TORCHELASTIC_USE_AGENT_STORE"] for w in workers], ["True"] * 3)
        self.assertEqual(sorted(w.env["STORE_COUNT"] for w in workers), ["1", "2", "3"])

    def test_21_each_attempt_has_an_empty_store(self):
        script = ("import os, sys; sys.argv[0] = 'x'; import runpy\n"
                  f"runpy.run_path({DUMP!r}, run_name='__main__')\n"
                  "sys.exit(3 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "count.py")
            path.write_text(script)
            workers = self.ok("--max-restarts=1", path, env={"DUMP_THEN": "store"}).workers
        self.assertEqual([(w.attempt, w.env["STORE_COUNT"]) for w in workers], [(0, "1"), (1, "1")])

    def test_22_static_address_on_every_attempt(self):
        port = free_port()
        workers = self.ok("--max-restarts=1", "--master-addr=127.0.0.1", f"--master-port={port}",
                          DUMP,
                          env={"DUMP_THEN": "exit-once:1"}).workers
        self.assertEqual([(w.attempt, w.env["MASTER_ADDR"], w.env["MASTER_PORT"]) for w in workers],
                         [(0, "127.0.0.1", str(port)), (1, "127.0.0.1", str(port))])

    def test_23_static_port_in_use(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            self.wrong(str(port), f"--master-port={port}", DUMP, status=1)

    def test_24_two_standalone_jobs(self):
        command = [CRUN, "--standalone", "--nproc-per-node=2", DUMP]
        with tempfile.TemporaryDirectory() as dumps:
            env = environment(DUMP_DIR=dumps, DUMP_THEN="store", TMPDIR=dumps)
            jobs = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for _ in range(2)]
            for job in jobs:
                _, err = job.communicate(timeout=180)
                self.assertEqual(job.returncode, 0, err)
            counts = [json.loads(p.read_text())["env"]["STORE_COUNT"]
                      for p in pathlib.Path(dumps).glob("*.json")]
        self.assertEqual(sorted(counts), ["1", "1", "2", "2"])

    # ---- signals ----

    def signal_run(self, signum, *options):
        """Sends signum to crun when both workers have installed their handlers. Returns (exit
        status, the signals that the workers got, stderr)."""
        with tempfile.TemporaryDirectory() as dumps:
            env = environment(DUMP_DIR=dumps, DUMP_THEN="signals", TMPDIR=dumps)
            job = subprocess.Popen([CRUN, "--nproc-per-node=2", *options, DUMP], env=env,
                                   stderr=subprocess.PIPE)
            deadline = time.monotonic() + 120
            while len(list(pathlib.Path(dumps).glob("*.ready"))) < 2:
                self.assertIsNone(job.poll(), "ended early")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            job.send_signal(signum)
            _, err = job.communicate(timeout=180)
            got = [p.read_text() for p in pathlib.Path(dumps).glob("*.signal")]
            return job.returncode, got, err.decode()

    def test_36_handled_signals_reach_the_workers(self):
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            status, got, err = self.signal_run(signum)
            self.assertEqual(status, 1, err)
            self.assertEqual(got, [str(int(signum))] * 2, err)
            self.assertIn(f"Received {int(signum)} death signal, shutting down workers", err)
            self.assertRegex(err, rf"SignalException: Process \d+ got signal: {int(signum)}\b")

    def test_39_the_set_of_signals(self):
        status, got, err = self.signal_run(signal.SIGUSR1, "--signals-to-handle=SIGUSR1")
        self.assertEqual((status, got), (1, [str(int(signal.SIGUSR1))] * 2), err)
        status, _, _ = self.signal_run(signal.SIGTERM, "--signals-to-handle=SIGUSR1")
        self.assertEqual(status, -signal.SIGTERM)

    def test_39_nohup_is_respected(self):
        with tempfile.TemporaryDirectory() as dumps:
            env = environment(DUMP_DIR=dumps, DUMP_THEN="signals", TMPDIR=dumps)
            job = subprocess.Popen([CRUN, DUMP], env=env, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
            deadline = time.monotonic() + 120
            while not list(pathlib.Path(dumps).glob("*.ready")):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            job.send_signal(signal.SIGHUP)
            job.send_signal(signal.SIGTERM)
            _, err = job.communicate(timeout=180)
        self.assertEqual(job.returncode, 1)
        self.assertIn(b"got signal: 15", err)

    def test_37_a_signal_before_any_worker(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as tmp:
            job = subprocess.Popen([CRUN, "--nnodes=2", "--rdzv-backend=c10d",
                                    f"--rdzv-endpoint=127.0.0.1:{port}", DUMP],
                                   env=environment(DUMP_DIR=tmp, TMPDIR=tmp),
                                   stderr=subprocess.PIPE)
            deadline = time.monotonic() + 120
            while True:  # until it waits for the second node
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", port)) == 0:
                        break
                self.assertIsNone(job.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            job.send_signal(signal.SIGTERM)
            _, err = job.communicate(timeout=180)
            self.assertEqual(job.returncode, -signal.SIGTERM, err)
            self.assertEqual([p for p in pathlib.Path(tmp).glob("*.json")], [])

    # ---- several nodes, on this machine ----

    def nodes(self, *each, dumps):
        """Runs one crun a list of arguments; all must succeed. Returns the workers, by rank."""
        env = environment(DUMP_DIR=dumps, TMPDIR=dumps)
        jobs = [subprocess.Popen([CRUN, *args], env=env, stderr=subprocess.PIPE) for args in each]
        for job in jobs:
            _, err = job.communicate(timeout=180)
            self.assertEqual(job.returncode, 0, err)
        return read_dumps(dumps)

    def test_25_two_nodes_with_roles(self):
        for backend in ("c10d", "static"):
            port = free_port()
            where = [f"--rdzv-backend={backend}", f"--rdzv-endpoint=127.0.0.1:{port}", "--nnodes=2"]
            with tempfile.TemporaryDirectory() as dumps:
                workers = self.nodes(
                    [*where, "--node-rank=0", "--nproc-per-node=2", "--role=a", DUMP],
                    [*where, "--node-rank=1", "--nproc-per-node=3", "--role=b", DUMP], dumps=dumps)
            names = ("ROLE_NAME", "RANK", "WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
                     "GROUP_RANK")
            self.assertEqual([tuple(w.env[n] for n in names) for w in workers], [
                ("a", "0", "5", "0", "2", "0"), ("a", "1", "5", "1", "2", "0"),
                ("b", "2", "5", "0", "3", "1"), ("b", "3", "5", "1", "3", "1"),
                ("b", "4", "5", "2", "3", "1")], backend)

    def test_56_a_node_that_never_comes(self):
        job = Job("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                  "--rdzv-conf=join_timeout=1", DUMP)
        self.assertEqual(job.status, 1)
        self.assertEqual(job.workers, [])

    # ---- own errors, logs, rendezvous ----

    def test_46_own_error_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "error.json")
            self.wrong("--nnodes", "--nnodes=2:1", DUMP, env={"TORCHELASTIC_ERROR_FILE": str(path)})
            record = json.loads(path.read_text())["message"]
            self.assertIn("'2:1'", record["message"])
            self.assertIn("'2:1'", record["extraInfo"]["py_callstack"])
            self.assertLess(abs(int(record["extraInfo"]["timestamp"]) - time.time()), 3600)

    def test_48_redirect_maps(self):
        with tempfile.TemporaryDirectory() as logs:
            job = self.ok("--nproc-per-node=2", "-r", "0:1,1:2", f"--log-dir={logs}", DUMP,
                          env={"DUMP_THEN": "print", "OMP_NUM_THREADS": "1"})
            files = sorted(str(p.relative_to(logs)).split("/", 1)[1]
                           for p in pathlib.Path(logs).rglob("*.log"))
            self.assertEqual(files, ["attempt_0/0/stdout.log", "attempt_0/1/stderr.log"])
            self.assertEqual((job.out, job.err), ("to stdout\n", "to stderr\n"))
        self.wrong("'4'", "-r", "4", DUMP)
        self.ok("-r", "10:1", DUMP)  # torchrun cannot name this rank

    def test_51_line_prefix(self):
        text, flag = "[${rank}|$hostname] ", "--log-line-prefix-template=<${role_name}$local_rank> "
        env = {"DUMP_THEN": "print", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": text}
        with tempfile.TemporaryDirectory() as logs:
            job = self.ok("-t", "1", f"--log-dir={logs}", DUMP, env=env)
            self.assertEqual(job.out, f"[0|{socket.gethostname()}] to stdout\n")
            job = self.ok("-t", "1", f"--log-dir={logs}", flag, DUMP, env=env)
            self.assertEqual(job.out, "<default0> to stdout\n")

    def test_59_rdzv_conf(self):
        for value in ("a", "=1", "join_timeout=0", "join_timeout=x", "is_host=maybe"):
            self.wrong("--rdzv-conf", "--rdzv-backend=c10d", f"--rdzv-conf={value}", DUMP)

    def test_60_endpoints(self):
        for value in ("localhost:99999", "local host:1"):
            self.wrong("--rdzv-endpoint", "--rdzv-backend=c10d", f"--rdzv-endpoint={value}", DUMP)

    def test_61_unknown_backend(self):
        self.wrong("'foo'", "--rdzv-backend=foo", DUMP)

    def test_62_c10d_default_port(self):
        with socket.socket() as busy:
            try:
                busy.bind(("", 29400))
            except OSError:
                self.skipTest("port 29400 is in use")
        self.assertEqual(self.ok("--rdzv-backend=c10d", DUMP).workers[0].env["TORCHELASTIC_RUN_ID"],
                         "none")

    def test_66_identical_workers(self):
        same = self.ok("--nproc-per-node=2", DUMP, env={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"})
        self.assertEqual([w.env["RANK"] for w in same.workers], ["0", "1"])
        self.assertEqual([w.env["ROLE_RANK"] for w in same.workers], ["0", "1"])

    def test_67_virtual_local_rank(self):
        env = {"CUDA_VISIBLE_DEVICES": "4, 5"}
        workers = self.ok("--virtual-local-rank", "--nproc-per-node=2", DUMP, "$local_rank",
                          env=env).workers
        self.assertEqual([w.env["LOCAL_RANK"] for w in workers], ["0", "0"])
        self.assertEqual([w.env["CUDA_VISIBLE_DEVICES"] for w in workers], ["4", "5"])
        self.assertEqual([w.argv for w in workers], [["0"], ["1"]])
        self.wrong("2 entries for 3 workers", "--virtual-local-rank", "--nproc-per-node=3", DUMP,
                   env=env)
        workers = self.ok("--virtual-local-rank", "--nproc-per-node=2", DUMP).workers
        self.assertEqual([w.env["CUDA_VISIBLE_DEVICES"] for w in workers], ["0", "1"])

    def test_68_stdin_and_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            worker = self.ok(DUMP, cwd=folder, stdin="typed", env={"DUMP_THEN": "stdin"}).workers[0]
            self.assertEqual(worker.cwd, os.path.realpath(folder))
            self.assertEqual(worker.stdin, "typed")

    def test_69_plain_and_static(self):
        plain = self.ok(DUMP).workers[0].env
        self.assertRegex(plain["TORCHELASTIC_RUN_ID"], UUID)
        port = str(free_port())
        static = self.ok(f"--master-port={port}", DUMP).workers[0].env
        self.assertEqual((static["TORCHELASTIC_RUN_ID"], static["MASTER_PORT"]), ("none", port))


class Programs(unittest.TestCase):
    """What is executed, end to end (every kind of file is in the unit test)."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text, mode=0o644):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_executables_need_no_flag(self):
        script = self.write("tool", "#!/bin/sh\necho \"$RANK $1\"\n", 0o755)
        self.assertEqual(Job(script, "x").out, "0 x\n")
        self.assertEqual(Job("tool", "x", cwd=self.folder.name).out, "0 x\n")
        self.assertEqual(Job("echo", "from", "PATH").out, "from PATH\n")

    def test_run_path(self):
        script = self.write("train.py", "import sys\nprint(__name__, sys.argv)\n")
        self.assertEqual(Job("--run-path", script, "a").out, f"__main__ {[str(script), 'a']}\n")

    def test_run_path_records_exceptions(self):
        script = self.write("bad.py", "def f(): raise KeyError('gone')\nf()\n")
        logs = pathlib.Path(self.folder.name, "logs")
        job = Job("--run-path", f"--log-dir={logs}", script)
        self.assertEqual(job.status, 1)
        record = json.loads(next(logs.rglob("error.json")).read_text())["message"]
        self.assertEqual(record["message"], "KeyError: 'gone'")
        self.assertIn("in f", record["extraInfo"]["py_callstack"])
        self.assertTrue(record["extraInfo"]["timestamp"].isdigit())
        self.assertIn("KeyError: 'gone'", job.err)
        quiet = self.write("exit.py", "import sys\nsys.exit(7)\n")
        logs = pathlib.Path(self.folder.name, "logs2")
        self.assertEqual(Job("--run-path", f"--log-dir={logs}", quiet).status, 1)
        self.assertEqual(list(logs.rglob("error.json")), [])


LISTENERS = """
import os, sys
wanted = ":%04X" % int(os.environ["MASTER_PORT"])
folder = "/proc/%d/fd/" % os.getppid()
inodes = set()
for fd in os.listdir(folder):
    try:
        inodes.add(os.readlink(folder + fd).replace("socket:[", "").rstrip("]"))
    except FileNotFoundError:
        pass  # closed meanwhile
rows = [line.split() for name in ("tcp", "tcp6")
        for line in open("/proc/net/" + name).readlines()[1:]]
mine = sorted(row[1] for row in rows if row[3] == "0A" and row[9] in inodes)
sys.exit(0 if mine == ["0100007F" + wanted] else "listens on %s" % mine)
"""


class Standalone(unittest.TestCase):
    def test_listens_on_loopback_only(self):
        job = Job("--standalone", "--nproc-per-node", "1", "--no-python", sys.executable, "-c",
                  LISTENERS)
        self.assertEqual(job.status, 0, job.err)


if __name__ == "__main__":
    unittest.main()
