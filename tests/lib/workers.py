"""Starts a store and N workers without a launcher, with the environment that crun would give them.

    with Store() as store:
        results = run_workers(store, 4, ["crunrt_worker", "collectives"])
        expect_all(results, 0, "collectives right")

If a worker has not ended at the deadline, all workers are killed, and the test fails and shows what
they wrote.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("BUILD", "build")
# The backend of the process groups: gloo, or nccl with the host NCCL (see host_nccl()).
BACKEND = os.environ.get("CRUN_TEST_BACKEND", "gloo")
DEADLINE_S = float(os.environ.get("CRUN_TEST_DEADLINE", "120")) * \
    float(os.environ.get("CK_TIMEOUT_MULTIPLIER", "1"))


class Store:
    """A `crun-store serve` on a free port of the loopback address."""

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
    """Returns the variables with which the nccl and rccl backends use the host NCCL, a stand-in for
    NCCL that needs no GPU."""
    folder = os.path.abspath(f"{BUILD}/tests/host_nccl")
    # If an init fails, there is no communicator for which ncclCommAbort() could be called, so, as
    # in NCCL, its thread is never joined. ThreadSanitizer would report this thread as leaked.
    extra.setdefault("TSAN_OPTIONS",
                     f"{os.environ.get('TSAN_OPTIONS', '')} report_thread_leaks=0")
    return dict(CRUNRT_NCCL_LIBRARY=f"{folder}/libnccl.so.2",
                CRUNRT_CUDA_LIBRARY=f"{folder}/libcuda.so.1",
                CRUNRT_RCCL_LIBRARY=f"{folder}/libnccl.so.2",
                CRUNRT_HIP_LIBRARY=f"{folder}/libamdhip64.so", CRUNRT_ALLOW_FAKE_NCCL="1",
                CRUNRT_BACKEND=BACKEND if BACKEND == "rccl" else "nccl", **extra)


def program(name):
    return f"{BUILD}/tests/workers/{name}"


def contract(store, rank, world, **extra):
    """Returns the environment of one worker. In `extra`, the value None removes a variable."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TORCHELASTIC_", "SLURM_", "PMI_", "OMPI_"))}
    env.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
               LOCAL_WORLD_SIZE=str(world),
               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port if store else 1),
               TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    if BACKEND in ("nccl", "rccl"):  # buffers are in host memory; a rank's death is detected
        env.update(host_nccl(HOST_CUDA_PAGEABLE="1", HOST_NCCL_NET="socket"))
    env.update({k: v for k, v in extra.items() if v is not None})
    for k in [k for k, v in extra.items() if v is None]:
        env.pop(k, None)
    return env


def start_workers(store, count, argv, world=None, **extra):
    argv = [program(argv[0])] + argv[1:] if "/" not in argv[0] else argv
    return [Worker(argv, contract(store, r, world or count, **extra)) for r in range(count)]


def wait_for(workers, among=None):
    """Waits for the workers numbered `among` (default: all), then kills all that still live."""
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
    """Skips the test if the backend of the process groups was not built."""
    if not os.path.exists(f"{BUILD}/lib/crunrt/{BACKEND}.so"):
        skip(f"the {BACKEND} backend was not built")


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)
