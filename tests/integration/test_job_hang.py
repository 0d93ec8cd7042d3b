#!/usr/bin/env python3
# timeout: 240
"""Tests that a job of several nodes hangs only when all of its nodes do, and that the odd rank is
found across nodes: --hang-timeout and --hang-rule with three launchers on this machine."""
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import (BUILD, CRUN, PACE, TIMEOUT_S, clean_env, kill, read_text, run_tests,
                       script, start, wait_for)
from free_port import free_port

STUCK = BUILD / "tests" / "workers" / "stuck"
NODES = 3
NEVER = "100000"  # seconds


class Job:
    """A job of three nodes; the first one hosts, so that it has group rank 0."""

    def __init__(self, tmp, workers, *command):
        self.tmp, port = tmp, free_port()
        self.errors = [tmp / f"stderr{i}" for i in range(NODES)]
        self.nodes = []
        for i in range(NODES):
            self.nodes.append(start(
                [CRUN, "--no-python", f"--nnodes={NODES}", f"--nproc-per-node={workers}",
                 "--rdzv-id=hang", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                 f"--rdzv-conf=is_host={int(i == 0)}", f"--log-dir=logs{i}",
                 f"--event-log=events{i}", *command], cwd=tmp,
                env=clean_env(OMP_NUM_THREADS=1), stdout=open(tmp / f"stdout{i}", "w"),
                stderr=open(self.errors[i], "w")))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            kill(node)

    def wait(self):
        """Returns the exit codes and the texts of stderr."""
        codes = [node.wait(timeout=TIMEOUT_S) for node in self.nodes]
        return codes, [read_text(path) for path in self.errors]

    def causes(self, i):
        events = [json.loads(line) for line in (self.tmp / f"events{i}").read_text().splitlines()]
        return [e["cause"] for e in events if e["event"] == "round_broken"]

    def verdicts(self):
        return [json.loads(next(self.tmp.glob(f"logs{i}/*/verdict.json")).read_text())
                for i in range(NODES)]


def test_the_odd_rank_is_found_across_nodes(tmp):
    """One worker on each node: no node alone could say which rank is the odd one. The round ends
    once on all nodes, and is charged once."""
    limit = f"{1.5 * PACE:g}"
    with Job(tmp, 1, f"--hang-timeout={limit}", "--max-restarts=1", "--exit-codes=distinct",
             STUCK, "1", "load_batch") as job:
        codes, errors = job.wait()
        verdicts = job.verdicts()
        what = (f"the workers of 3 nodes hang (for {limit} s no output, and no use of the "
                "processor): ")
        assert codes == [85] * NODES, (codes, errors)
        for i in range(NODES):
            assert errors[i].count("restart 1 of 1") == 1, errors[i]
            first = verdicts[i]["first_failure"]
            assert first["kind"] == "hang" and first["rank"] == 1, first
            assert first["what"].startswith(what + "rank 1 on "), first
            assert "differs from the other 2 ranks: it is in load_batch" in first["what"], first
            lines = verdicts[i]["inspection"]
            assert lines[0].startswith("  rank 1 on "), lines
            assert any(line.startswith("  ranks 0, 2 (2 ranks): stuck ") for line in lines), lines
            assert verdicts[i]["restarts"] == {"used": 1, "max": 1}, verdicts[i]
        hosts = [i for i in range(NODES) if f"crun: {what}rank 1 on " in errors[i]]
        assert len(hosts) == 1, errors  # the node of rank 1 prints the report
        assert job.causes(hosts[0]) == ["hang", "hang"], errors
        assert all(f"failed on another node: {what}rank 1" in errors[i]
                   for i in range(NODES) if i not in hosts), errors


def test_nodes_that_wait_for_a_busy_one(tmp):
    """Rank 2 computes, and all other ranks wait for it. The job does not hang, because one of its
    nodes is active."""
    program = script(tmp, "worker.sh", f"#!/bin/sh\n[ $RANK = 2 ] || exec sleep {NEVER}\n"
                                       f"touch {tmp}/busy\nwhile [ ! -e {tmp}/end ]; do :; done\n"
                                       f"exec sleep {NEVER}\n")
    with Job(tmp, 1, f"--hang-timeout={1.2 * PACE:g}", program) as job:
        wait_for(lambda: (tmp / "busy").exists(), "rank 2 to compute")
        for node in job.nodes:  # for twice the hang timeout no node ends
            try:
                node.wait(timeout=0.8 * PACE)
                raise AssertionError(job.wait())
            except subprocess.TimeoutExpired:
                pass
        assert not any("hang (" in read_text(path) for path in job.errors)
        (tmp / "end").write_text("")
        codes, errors = job.wait()
        assert codes == [1] * NODES and "the workers of 3 nodes hang (" in errors[0], errors


def test_a_rule_about_a_line_of_one_rank(tmp):
    """Only rank 2 writes the line. While the line comes, the job does not hang. When the line stays
    out, the message says when it came last, and from which rank."""
    program = script(tmp, "worker.sh", f"#!/bin/sh\n[ $RANK = 2 ] || exec sleep {NEVER}\n"
                                       "for i in 1 2 3 4 5 8; do echo loss=$i; sleep 0.1; done\n"
                                       f"exec sleep {NEVER}\n")
    limit = f"{3 * PACE:g}"
    with Job(tmp, 1, f"--hang-rule=600:{limit}:loss=", program) as job:
        codes, errors = job.wait()
        assert codes == [1] * NODES, (codes, errors)
        what = job.verdicts()[0]["first_failure"]["what"]
        assert what.startswith("the workers of 3 nodes hang (no line has matched --hang-rule "
                               f"'600:{limit}:loss=' for "), what
        last = f"and one was expected every {limit} s; the last one came from rank 2): "
        assert last in what, what
        outputs = [read_text(tmp / f"stdout{i}") for i in range(NODES)]
        assert any("loss=8" in output for output in outputs), outputs


def test_a_first_line_that_comes_on_another_node(tmp):
    """The first line must come on some node, not on each."""
    program = script(tmp, "worker.sh", f"#!/bin/sh\n[ $RANK = 1 ] && echo begins\n"
                                       f"while [ ! -e {tmp}/end ]; do sleep 0.05; done\n")
    with Job(tmp, 1, f"--hang-rule={4 * PACE:g}::begins", program) as job:
        wait_for(lambda: any("begins" in read_text(tmp / f"stdout{i}") for i in range(NODES)),
                 "the line")
        for node in job.nodes:
            try:
                node.wait(timeout=1.4 * PACE)
                raise AssertionError(job.wait())
            except subprocess.TimeoutExpired:
                pass
        (tmp / "end").write_text("")
        codes, errors = job.wait()
        assert codes == [0] * NODES, (codes, errors)


def test_an_agent_that_does_not_answer(tmp):
    """The agent of one node is stopped before it can report that its workers are quiet, as those of
    all nodes are. So nothing is decided until this agent goes on."""
    with Job(tmp, 1, f"--hang-timeout={2.5 * PACE:g}",
             "--rdzv-conf=keep_alive_interval=60", STUCK, "1", "load_batch") as job:
        wait_for(lambda: all(read_text(tmp / f"stdout{i}") for i in range(NODES)), "all ranks")
        job.nodes[2].send_signal(signal.SIGSTOP)
        try:
            job.nodes[0].wait(timeout=4 * PACE)
            raise AssertionError(job.wait())
        except subprocess.TimeoutExpired:
            pass
        job.nodes[2].send_signal(signal.SIGCONT)
        codes, errors = job.wait()
        assert codes == [1] * NODES and any("differs from the other 2" in e for e in errors), errors


def test_a_quiet_job_without_the_option(tmp):
    """crun says once that nothing happens, and ends nothing; after more output it says it again.
    CRUN_HANG_NOTICE=0 and --hang-timeout=0 turn it off."""
    program = script(tmp, "worker.sh", "#!/bin/sh\nread x < more\necho more >&2\nread x < end\n")
    line, jobs = "no worker of host '", []
    try:
        for i, (value, options) in enumerate((("1", []), ("0", []), ("1", ["--hang-timeout=0"]))):
            folder = tmp / str(i)
            folder.mkdir()
            os.mkfifo(folder / "more")
            os.mkfifo(folder / "end")
            jobs.append(start([CRUN, "--no-python", "--rdzv-id=quiet", *options, program],
                              stderr=open(tmp / f"stderr{i}", "w"), cwd=folder,
                              env=clean_env(CRUN_HANG_NOTICE=value)))
        errors = tmp / "stderr0"
        wait_for(lambda: line in read_text(errors), "the line")
        assert "'crun-agent why --job quiet' shows where" in read_text(errors), read_text(errors)
        (tmp / "0" / "more").write_text("x\n")
        wait_for(lambda: read_text(errors).count(line) == 2, "the second line")
        assert all(job.poll() is None for job in jobs)
        for i in (1, 2):
            (tmp / str(i) / "more").write_text("x\n")
        for i, job in enumerate(jobs):
            (tmp / str(i) / "end").write_text("x\n")
            assert job.wait(timeout=TIMEOUT_S) == 0, read_text(tmp / f"stderr{i}")
        found = [read_text(tmp / f"stderr{i}").count(line) for i in range(len(jobs))]
        assert found == [2, 0, 0], found
    finally:
        for job in jobs:
            kill(job)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_tests(globals())
