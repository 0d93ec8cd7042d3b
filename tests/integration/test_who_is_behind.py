#!/usr/bin/env python3
# timeout: 300
"""A rank stays away from an operation that others have entered. `crun-agent dump`, the warning of a
step timeout and the report on a failure name that rank, at once, on every backend and across
nodes."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, PACE, TIMEOUT_S, clean_env, run_tests, skip  # noqa: E402
from crun_test import start, wait_for  # noqa: E402
from workers import host_nccl  # noqa: E402

AGENT = str(BUILD / "bin" / "crun-agent")
WORKER = str(BUILD / "tests" / "workers" / "crunrt_worker")
NEVER = 600000
IN_VAIN_MS = int(1000 * PACE)  # time enough for all ranks but the late one to enter


class Job:
    """Nodes of one job under a crun-agent. `waiting`: how many workers enter the operation."""

    def __init__(self, tmp, late, timeout_ms=NEVER, nodes=1, workers=4, options=(), **env):
        self.agent = start([AGENT, "serve", "--listen=127.0.0.1:0"], stdout=subprocess.PIPE,
                           env=clean_env())
        self.address = self.agent.stdout.readline().strip()
        self.outputs, self.nodes = [], []
        for i in range(nodes):
            self.outputs.append(tmp / f"node{i}")
            self.nodes.append(start(
                [CRUN, f"--nnodes={nodes}", f"--nproc-per-node={workers}", "--rdzv-backend=c10d",
                 f"--rdzv-endpoint={self.address}", "--rdzv-id=job", "--rdzv-conf=is_host=0",
                 *options, WORKER, "behind", str(late), str(timeout_ms)],
                env=clean_env(OMP_NUM_THREADS=1, **env), stdout=self.outputs[i].open("w"),
                stderr=subprocess.STDOUT))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*self.nodes, self.agent]:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in [*self.nodes, self.agent]:
            process.wait(timeout=TIMEOUT_S)

    def text(self):
        return "".join(output.read_text() for output in self.outputs)

    def wait_until_entered(self, ranks):
        wait_for(lambda: self.text().count("enters") == ranks and "away" in self.text(),
                 f"{ranks} workers in the operation")

    def dump(self, expected):
        """Waits until the line that names the rank is the expected one. A worker prints that it
        enters just before it does, so the first answers can come before that."""
        line = ""

        def is_named():
            nonlocal line
            begin = time.monotonic()
            told = subprocess.run([AGENT, "dump", self.address, "--job", "job"],
                                  capture_output=True, text=True, check=True)
            line = told.stdout.partition("\n")[2].strip()  # empty if no rank was named
            self.took_ms = (time.monotonic() - begin) * 1000
            return re.search(expected, line)
        wait_for(is_named, f"'{expected}'; the last line was '{line}'")
        return line


def expect_report(pattern, tmp, **how):
    """Runs the job to its end, which is a failure, and returns the match in what it says. The
    report on a failure waits 0.2 s at most for what the nodes say about their workers (HELD_MS),
    and a busy machine may take longer. So the job has three chances."""
    for chance in range(3):
        (tmp / str(chance)).mkdir()
        with Job(tmp / str(chance), **how) as job:
            assert [node.wait(timeout=TIMEOUT_S) for node in job.nodes] == [1] * len(job.nodes)
            text = job.text()
        found = re.search(pattern, text)
        if found:
            return found
    raise AssertionError(f"no '{pattern}' in:\n{text}")


def test_dump_names_the_rank_across_nodes(tmp):
    with Job(tmp, late=3, nodes=2, workers=2) as job:
        job.wait_until_entered(3)
        line = job.dump(r"^rank 3 has not entered barrier #3 of group 'world', in which 3 ranks "
                        r"wait, rank [012] for \d+\.\d s$")
        print(f"  named in {job.took_ms:.0f} ms: {line}")
        wait_for(lambda: job.text().count("rank 3 has not entered") >= 2, "both nodes' warnings")


def test_dump_names_the_peer_of_a_receive(tmp):
    with Job(tmp, late=2, TEST_MESSAGE=1) as job:
        job.wait_until_entered(1)
        job.dump("^rank 2 has not entered recv #0 of group 'world', in which 1 rank waits, rank 0 ")


def test_the_nccl_backend(tmp):
    if not (BUILD / "tests/host_nccl/libnccl.so.2").exists():
        skip("the host NCCL was not built (no CUDA or NCCL headers)")
    with Job(tmp, late=1, **host_nccl(HOST_CUDA_PAGEABLE="1")) as job:
        job.wait_until_entered(3)
        job.dump("^rank 1 has not entered barrier #3 of group 'world'")


def test_the_signal_to_crun_names_the_rank_too(tmp):
    with Job(tmp, late=0) as job:
        job.wait_until_entered(3)
        job.dump("^rank 0 has not entered barrier #3")
        before = job.text().count("rank 0 has not entered")
        job.nodes[0].send_signal(signal.SIGUSR2)
        wait_for(lambda: job.text().count("rank 0 has not entered") > before, "the warning")


def test_a_step_timeout_names_the_rank(tmp):
    """All ranks make no step any more. Only one of them is not waiting for another."""
    limit = 1.5 * PACE
    found = expect_report("who was waited for: rank 1 has not entered barrier #3 of group 'world', "
                          r"in which 3 ranks wait, rank [023] for (\d+\.\d) s", tmp, late=1,
                          options=[f"--step-timeout={limit:g}"])
    assert limit / 2 < float(found.group(1)) < limit + TIMEOUT_S, found


def test_a_worker_that_waited_in_vain_is_not_the_only_one_named(tmp):
    expect_report("who was waited for: rank 2 has not entered barrier #3 of group 'world'", tmp,
                  late=2, timeout_ms=IN_VAIN_MS, nodes=2, workers=2)


def test_the_next_round_begins_without_old_entries(tmp):
    """Of four rounds, two at least say who was waited for (see expect_report())."""
    with Job(tmp, late=1, timeout_ms=IN_VAIN_MS, options=["--max-restarts=3"]) as job:
        assert job.nodes[0].wait(timeout=TIMEOUT_S) == 1
        lines = re.findall(r"warning: (rank \d has not entered .*)", job.text())
        assert len(lines) >= 2 and all(line.startswith("rank 1 ") for line in lines), lines


if __name__ == "__main__":
    if not os.path.exists(WORKER):
        skip("crunrt_worker was not built")
    run_tests(globals())
