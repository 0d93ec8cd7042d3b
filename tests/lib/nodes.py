"""Several crun on this machine (or in network namespaces) as the nodes of one job.

    with Nodes(tmp, "--nnodes=2:3") as nodes:
        a, b = nodes.start("a"), nodes.start("b", "--nproc-per-node=2")
        first = nodes.round(workers=3)          # waits until three workers of one round are there
        first[0].signal(signal.SIGUSR1)         # that worker fails; SIGUSR2: it ends well
        assert a.wait() == 0

A worker writes what it was given to one file and then waits for a signal. Everything that was
started is killed at the end; what the launchers printed is shown when a test fails.
"""
import json
import os
import pathlib
import signal
import socket
import subprocess

from crun_test import BUILD, CRUN, TIMEOUT_S, alive, clean_env, kill, read_text, wait_for
from free_port import free_port

AGENT = BUILD / "bin" / "crun-agent"
WORKER = pathlib.Path(__file__).resolve().parent / "node_worker.py"
PYTHON = "/usr/bin/python3"


class Worker:
    def __init__(self, data):
        self.env, self.pid = data["env"], data["pid"]
        self.rank, self.world = int(self.env["RANK"]), int(self.env["WORLD_SIZE"])
        self.restarts = int(self.env["TORCHELASTIC_RESTART_COUNT"])
        self.address = (self.env["MASTER_ADDR"], int(self.env["MASTER_PORT"]))
        self.node = self.env["TEST_NODE"]

    def signal(self, number):
        os.kill(self.pid, number)

    @property
    def alive(self):
        return alive(self.pid)


class Node:
    def __init__(self, nodes, name, argv, env, prefix):
        self.name = name
        self.path = nodes.tmp / f"{name}.{len(nodes.nodes)}"
        self.out = open(f"{self.path}.out", "w")
        self.process = subprocess.Popen([*prefix, *map(str, argv)], stdin=subprocess.DEVNULL,
                                        stdout=self.out,
                                        stderr=subprocess.STDOUT, env=env)

    @property
    def text(self):
        return read_text(f"{self.path}.out")

    def wait(self, timeout=TIMEOUT_S):
        return self.process.wait(timeout)

    def signal(self, number):
        self.process.send_signal(number)


def end_well(workers):
    for w in workers:
        w.signal(Nodes.WELL)


class Nodes:
    WELL = signal.SIGUSR2  # ends a worker well

    def __init__(self, tmp, *args, endpoint=None, conf="last_call_timeout=0.3", backend="c10d",
                 given=None):
        """If `given` is not None, these options are used in place of those about where the nodes
        meet."""
        self.tmp = pathlib.Path(tmp)
        self.endpoint = endpoint or f"127.0.0.1:{free_port()}"
        where = [f"--rdzv-backend={backend}", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=job"]
        where += [f"--rdzv-conf={conf}"] if conf else []
        self.args = [*(where if given is None else given), *args]
        self.nodes = []
        self.seen = set()

    def start(self, name, *options, program=WORKER, args=(), prefix=(), crun=CRUN, **env):
        more = {"TEST_NODE": name, "TEST_DIR": self.tmp, "LOGLEVEL": "info", "PYTHON_EXEC": PYTHON,
                "PYTHONDONTWRITEBYTECODE": "1", **env}
        node = Node(self, name, [crun, *self.args, *options, program, *args], clean_env(**more),
                    prefix)
        self.nodes.append(node)
        return node

    def start_host(self, name, *args, **how):
        """Starts a node and waits until it listens at the endpoint, so that it hosts."""
        node = self.start(name, *args, **how)
        host, port = self.endpoint.rsplit(":", 1)

        def listens():
            try:
                socket.create_connection((host, int(port)), TIMEOUT_S).close()
                return True
            except OSError:
                return False
        wait_for(listens, f"{name} to listen at {self.endpoint}")
        return node

    def start_host_in(self, host, name, *args, **how):
        """Starts a node in the network namespace `host`, and waits until it listens."""
        node = self.start(name, *args, prefix=host.run, **how)
        port = self.endpoint.rsplit(":", 1)[1]

        def listens():
            found = subprocess.run([*host.run, "ss", "-H", "-t", "-l", "sport", "=", port],
                                   capture_output=True, text=True)
            return found.stdout != ""
        wait_for(listens, f"{name} to listen at {self.endpoint}")
        return node

    def workers(self):
        found = []
        for path in self.tmp.glob("*.worker"):
            found.append(Worker(json.loads(path.read_text())))
        return found

    def round(self, workers, timeout=TIMEOUT_S):
        """Waits until a new round has `workers` living workers. Returns them, sorted by rank."""
        def look():
            groups = {}
            for w in self.workers():
                if w.address + (w.restarts, w.world) not in self.seen and w.alive:
                    groups.setdefault(w.address + (w.restarts, w.world), []).append(w)
            for key, group in groups.items():
                if len(group) == workers == group[0].world:
                    self.seen.add(key)
                    return sorted(group, key=lambda w: w.rank)
            return None
        return wait_for(look, f"a round of {workers} workers", timeout)

    def members(self):
        """The nodes of the job, as crun-agent status --json shows them; [] if nobody answers."""
        done = subprocess.run([AGENT, "status", "--json", self.endpoint], stdout=subprocess.PIPE,
                              text=True, timeout=TIMEOUT_S)
        jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
        return jobs[0]["members"] if jobs else []

    def unfit(self):
        return [m for m in self.members() if m["state"] == "UNFIT"]

    def connects(self, worker):
        """Checks that the worker can connect to its MASTER_ADDR and MASTER_PORT."""
        path = self.tmp / f"{worker.pid}.connects"
        worker.signal(signal.SIGHUP)
        wait_for(path.exists, f"worker {worker.pid} to connect to {worker.address}")
        assert path.read_text() == "ok", (worker.address, path.read_text())

    def gone(self, workers):
        wait_for(lambda: not any(w.alive for w in workers), "workers to be gone")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for n in self.nodes:
            kill(n.process)
            n.out.close()
        if kind is not None:
            for n in self.nodes:
                print(f"--- {n.name}: exit {n.process.returncode}\n{n.text}")


class Daemon:
    """A crun-agent that serves on loopback."""

    def __init__(self, port, *options):
        self.address = f"127.0.0.1:{port}"
        self.process = subprocess.Popen([BUILD / "bin" / "crun-agent", "serve",
                                         f"--listen={self.address}", *options],
                                        stdout=subprocess.PIPE, text=True, env=clean_env())
        assert self.process.stdout.readline().strip() == self.address

    def phase(self):
        """Returns the phase of the only job, or None if there is no job."""
        done = subprocess.run([BUILD / "bin" / "crun-agent", "status", self.address],
                              capture_output=True, text=True, env=clean_env())
        words = [w.rstrip(",") for w in done.stdout.split()]
        return next((w for w in words if w in ("FORMING", "RUNNING", "REBUILDING", "ENDED")), None)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)
