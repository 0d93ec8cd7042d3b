"""Starts a store and N workers with the environment contract, without a launcher.

    with Store() as store:
        results = run_workers(store, 4, ["crunrt_worker", "collectives"])
        expect_all(results, 0, "collectives right")

A worker is waited for with a deadline; past it everything is killed and the test fails with all
that the workers wrote.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("BUILD", "build")
# Of the groups: gloo, or nccl on the host NCCL.
BACKEND = os.environ.get("CRUN_TEST_BACKEND", "gloo")
DEADLINE_S = float(os.environ.get("CRUN_TEST_DEADLINE", "120"))


class Store:
    """A crun-store on a free port of loopback."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [f"{BUILD}/bin/crun-store", "serve", "--host", "127.0.0.1", "--port", "0"],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if ":" not in line:
            raise SystemExit(f"FAIL: crun-store printed {line!r} instead of its address")
        self.port = int(line.strip().rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Worker:
    def __init__(self, argv, environment):
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.out, stderr=subprocess.STDOUT)

    def text(self):
        self.out.seek(0)
        return self.out.read()

    @property
    def code(self):
        return self.process.returncode


def host_nccl(**extra):
    """The environment in which the nccl backend runs on the host NCCL, which is no NCCL."""
    folder = os.path.abspath(f"{BUILD}/tests/host_nccl")
    # As with NCCL, the thread of a failed init is never joined: ncclCommAbort() is not called for
    # a communicator that was not made. ThreadSanitizer would report that thread as leaked.
    extra.setdefault("TSAN_OPTIONS",
                     f"{os.environ.get('TSAN_OPTIONS', '')} report_thread_leaks=0")
    return dict(CRUNRT_NCCL_LIBRARY=f"{folder}/libnccl.so.2",
                CRUNRT_CUDART_LIBRARY=f"{folder}/libcudart.so", CRUNRT_ALLOW_FAKE_NCCL="1",
                CRUNRT_BACKEND="nccl", **extra)


def program(name):
    return f"{BUILD}/tests/workers/{name}"


def contract(store, rank, world, **extra):
    """The environment of one worker; None removes a variable."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TORCHELASTIC_", "SLURM_", "PMI_", "OMPI_"))}
    env.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
               LOCAL_WORLD_SIZE=str(world),
               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port if store else 1),
               TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    if BACKEND == "nccl":  # the programs' buffers are host memory; the death of a peer is noticed
        env.update(host_nccl(HOST_CUDA_PAGEABLE="1", HOST_NCCL_NET="socket"))
    env.update({k: v for k, v in extra.items() if v is not None})
    for k in [k for k, v in extra.items() if v is None]:
        env.pop(k, None)
    return env


def start_workers(store, count, argv, world=None, **extra):
    argv = [program(argv[0])] + argv[1:] if "/" not in argv[0] else argv
    return [Worker(argv, contract(store, r, world or count, **extra)) for r in range(count)]


def wait_for(workers, among=None):
    """Waits for `among` (default: all), then kills whoever is left."""
    deadline = time.monotonic() + DEADLINE_S
    late = []
    for w in workers if among is None else [workers[i] for i in among]:
        try:
            w.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late.append(w)
    for w in workers:
        if w.process.poll() is None:
            w.process.send_signal(signal.SIGKILL)
            w.process.wait()
    if late:
        fail(workers, f"{len(late)} workers did not end within {DEADLINE_S:g} s")
    return workers


def run_workers(store, count, argv, world=None, **extra):
    return wait_for(start_workers(store, count, argv, world, **extra))


def fail(workers, why):
    print(f"FAIL: {why}")
    for rank, w in enumerate(workers):
        print(f"---- rank {rank}, exit {w.code}\n{w.text()}", end="")
    sys.exit(1)


def expect(workers, rank, code, *texts):
    text = workers[rank].text()
    if workers[rank].code != code:
        fail(workers, f"rank {rank} ended with {workers[rank].code}, expected {code}")
    for part in texts:
        if part not in text:
            fail(workers, f"rank {rank} did not say {part!r}")


def expect_all(workers, code, *texts):
    for rank in range(len(workers)):
        expect(workers, rank, code, *texts)


def need_backend():
    """Skips the test where the backend of the groups was not built."""
    if not os.path.exists(f"{BUILD}/lib/crunrt/{BACKEND}.so"):
        skip(f"the {BACKEND} backend was not built")


def known(finding, check, *args):
    """Runs a check that fails today on nccl, because of a finding of tests/host_nccl/findings. If
    it passes, the test fails, so that the mark is removed."""
    if BACKEND != "nccl":
        check(*args)
        return
    global DEADLINE_S
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        DEADLINE_S = 4
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        code = 1
        try:
            check(*args)
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        print(f"FAIL: {finding}: {check.__name__}{args} passes now; take its mark away")
        sys.exit(1)
    print(f"known: {finding}: {check.__name__}{args} fails today on nccl")


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)
