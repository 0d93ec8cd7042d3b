#!/usr/bin/env python3
# timeout: 240
"""Tests crun-agent why: of 16 ranks that hang, the one that is elsewhere is named, with the place.

SEEDS=N runs N random cases (make check-why: 200). A case draws the odd rank and where it is."""
import ctypes
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import (BUILD, CRUN, PACE, SCALE, clean_env, crun, run, run_tests, script, skip,
                       start, wait_for)
from free_port import free_port

CRUN_AGENT = BUILD / "bin" / "crun-agent"
STUCK = BUILD / "tests" / "workers" / "stuck"
PLACES = ["broadcast", "load_batch", "compute", "stop_itself"]
LIMIT_S = 5 * SCALE
RANKS = 16
NUMBERS = itertools.count()


def new_id():
    return f"why-{os.getpid()}-{next(NUMBERS)}"


def rows(job):
    """What crun-agent why shows of a job, or of all jobs of this host if `job` is None."""
    chosen = ["--job", job] if job is not None else []
    done = run([CRUN_AGENT, "why", *chosen, "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []


class Job:
    """A job of `ranks` workers that hang."""

    def __init__(self, job, *command, ranks=RANKS):
        self.id, self.ranks = job, ranks
        self.process = start([CRUN, "--no-python", f"--nproc-per-node={ranks}", f"--rdzv-id={job}",
                              *command], env=clean_env(OMP_NUM_THREADS=1))

    def wait_in_place(self, place_of):
        """Waits until the stack of each rank has the function place_of(rank)."""
        def arrived():
            found = rows(self.id)
            return len(found) == self.ranks and all(
                place_of(r["rank"]) in r["native"].split(" < ") for r in found)
        wait_for(arrived, "all ranks to be in place")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGCONT)
        self.process.communicate(timeout=60 * SCALE)


def check_case(seed):
    draw = random.Random(seed)
    odd, place = draw.randrange(RANKS), draw.choice(PLACES)
    with Job(new_id(), STUCK, str(odd), place) as job:
        job.wait_in_place(lambda rank: place if rank == odd else "all_reduce")
        began = time.monotonic()
        done = run([CRUN_AGENT, "why", "--job", job.id])
        took = time.monotonic() - began
        first = done.stdout.splitlines()[0]
        assert done.returncode == 0 and first.startswith(f"rank {odd} on "), (seed, done)
        assert f"differs from the other {RANKS - 1} ranks: it is in {place}" in first, (seed, done)
        assert "all_reduce" in done.stdout and f"({RANKS - 1} ranks)" in done.stdout, (seed, done)
        assert took < LIMIT_S, f"seed {seed}: {took:.1f} s"
        return took


def test_the_odd_rank_is_named(tmp):
    count = int(os.environ.get("SEEDS", "4"))
    first = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"SEED={first} SEEDS={count}")
    slowest = max(check_case(seed) for seed in range(first, first + count))
    print(f"{count} of {count} right; the slowest answer took {slowest:.2f} s")


def test_the_operation_of_crunrts_workers(tmp):
    """Rank 2 did not enter the barrier in which the others wait, in Gloo's code at two places."""
    if not (BUILD / "lib" / "crunrt" / "gloo.so").exists():
        print("left out: this build has no Gloo")
        return
    worker = BUILD / "tests" / "workers" / "crunrt_worker"
    with Job(new_id(), worker, "behind", "2", "600000", ranks=4) as job:
        job.wait_in_place(lambda rank: "pause" if rank == 2 else "crunrt_group_run")
        done = run([CRUN_AGENT, "why", "--job", job.id])
        first = done.stdout.splitlines()[0]
        assert first.startswith("rank 2 on ") and "differs from the other 3 ranks" in first, done
        assert "operation: none; the last one was barrier 2 of group 'world'" in first, done
        found = {r["rank"]: r["operation"] for r in rows(job.id)}
        assert {found[r] for r in (0, 1, 3)} == {"barrier 3 of group 'world'"}, found


def test_equal_ranks_are_shown_once(tmp):
    with Job(new_id(), STUCK, "-1", "all_reduce", ranks=4) as job:
        job.wait_in_place(lambda rank: "all_reduce")
        lines = run([CRUN_AGENT, "why", "--job", job.id]).stdout.splitlines()
        assert lines[0] == "all 4 ranks are at the same place", lines
        assert lines[1].startswith("  ranks 0-3 (4 ranks): stuck sleeps in"), lines
        assert "all_reduce < main" in lines[2], lines


def test_a_shell_is_not_the_worker(tmp):
    """The worker is a shell that waits for a program: the row is about the program."""
    script = f"{STUCK} -1 all_reduce; exit $?"
    with Job(new_id(), "sh", "-c", script, ranks=2) as job:
        job.wait_in_place(lambda rank: "all_reduce")
        assert {r["program"] for r in rows(job.id)} == {"stuck"}


def test_all_nodes_answer_one_operator(tmp):
    """Three nodes with three workers each, under a crun that hosts: rank 7 is elsewhere. Each node
    sends what is equal once."""
    job, port = new_id(), free_port()
    nodes = [start([CRUN, "--no-python", "--nnodes=3", "--nproc-per-node=3", f"--rdzv-id={job}",
                    "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                    f"--rdzv-conf=is_host={int(i == 0)}", STUCK, "7", "load_batch"],
                   env=clean_env(OMP_NUM_THREADS=1)) for i in range(3)]
    ask = [CRUN_AGENT, "why", f"127.0.0.1:{port}", "--job", job]
    try:
        wait_for(lambda: re.match("rank 7 on .* it is in load_batch", run(ask).stdout),
                 "all ranks to be in place")
        began = time.monotonic()
        done = run(ask)
        took = time.monotonic() - began
        lines = done.stdout.splitlines()
        assert "differs from the other 8 ranks: it is in load_batch, there in" in lines[0], done
        assert any(line.startswith("  ranks 0-6, 8 (8 ranks): stuck ") for line in lines), done
        assert took < LIMIT_S, took
        rows = [json.loads(line) for line in run([*ask, "--json"]).stdout.splitlines()]
        assert sorted(r["rank"] for r in rows) == list(range(9)), rows
        nodes[2].send_signal(signal.SIGSTOP)  # one agent does not answer: the others' rows come
        done = run([*ask, "--json"])
        assert "1 of 3 nodes did not answer in time" in done.stderr, done
        assert len(done.stdout.splitlines()) == 6, done
        nodes[2].send_signal(signal.SIGCONT)
        done = run([*ask[:-1], "no-such-job"])
        assert done.returncode == 1 and "there is no job 'no-such-job'" in done.stderr, done
        done = run([*ask, "--node", "no-such-host"])
        assert done.returncode == 1 and "no such node" in done.stderr, done
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            node.communicate(timeout=60 * SCALE)


def test_a_hung_job_is_ended_and_says_where(tmp):
    """--hang-timeout ends the round; the report names the odd rank, and a restart follows."""
    began = time.monotonic()
    done = crun("--no-python", "--nproc-per-node=4", "--hang-timeout=1", "--max-restarts=1",
                "-r3", "--log-dir=logs", "--event-log=events", STUCK, "2", "load_batch", cwd=tmp)
    events = [json.loads(line) for line in (tmp / "events").read_text().splitlines()]
    broken = [e for e in events if e["event"] == "round_broken"]
    assert [e["cause"] for e in broken] == ["hang", "hang"], events
    assert all(1 <= e["detect_s"] < 10 * SCALE for e in broken), broken
    took = time.monotonic() - began
    assert done.returncode == 1, done
    word = "hang (for 1 s no output, and no use of the processor): rank 2 on "
    lines = done.stderr.splitlines()
    assert sum(word in line and "restart 1 of 1" in line for line in lines) == 1, done
    report = [n for n, line in enumerate(lines) if line.startswith("crun: the workers on ")][0]
    assert word in lines[report] and "it is in load_batch, there in" in lines[report], done
    assert lines[report + 1].startswith("  rank 2 on "), done
    assert any(line.startswith("  ranks 0-1, 3 (3 ranks): ") for line in lines[report:]), done
    assert done.stderr.count("  ranks 0-1, 3 (3 ranks): ") == 2, done
    assert took < 20 * SCALE, took


def test_workers_that_wait_in_a_loop(tmp):
    """All ranks use the processor: only --hang-when=silent sees that they hang."""
    limit = 2 * PACE  # the workers have to be in place before
    options = ["--no-python", "--nproc-per-node=2", f"--hang-timeout={limit:g}"]
    done = crun(*options, "--hang-when=silent", STUCK, "0", "compute", cwd=tmp)
    assert done.returncode == 1, done
    assert f"hang (for {limit:g} s no output): the 2 ranks are at 2 places" in done.stderr, done
    assert "compute < main" in done.stderr, done
    job = start([CRUN, *options, STUCK, "0", "compute"], env=clean_env(OMP_NUM_THREADS=1), cwd=tmp)
    try:
        job.wait(timeout=2 * limit)
        raise AssertionError(job.communicate())
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60 * SCALE)


def check_is_left_alone(tmp, *arguments):
    """Runs a job for 2.5 times its hang timeout. The job ends by itself. The hang timeout is six
    pauses long, because a busy machine makes a pause longer."""
    done = crun("--no-python", "--nproc-per-node=2", "--hang-timeout=3", *arguments, cwd=tmp)
    assert done.returncode == 0 and "hang" not in done.stderr, done


def test_output_keeps_a_job_alive(tmp):
    say = "for i in $(seq 15); do echo $i >&2; sleep 0.5; done"
    check_is_left_alone(tmp, "sh", "-c", say)
    check_is_left_alone(tmp, "-r3", "--log-dir=logs", "sh", "-c", say)


def test_one_busy_worker_keeps_a_job_alive(tmp):
    """Local rank 0 computes in a child process, the other worker waits for it."""
    code = "import time; end = time.time() + 7.5\nwhile time.time() < end: pass"
    busy = f"{sys.executable} -c '{code}'"
    path = script(tmp, "busy.sh", f"#!/bin/sh\nif [ $RANK = 0 ]; then {busy}; exit 0; fi\n"
                                  "exec sleep 7.5\n")
    check_is_left_alone(tmp, path)


def test_a_job_that_is_not_here(tmp):
    done = run([CRUN_AGENT, "why", "--job", "there is no such job"])
    assert done.returncode == 1 and "no worker of the job there is no such job" in done.stderr


if __name__ == "__main__":
    try:
        ctypes.CDLL("libdw.so.1")
    except OSError:
        skip("libdw.so.1 is not installed, so there are no native stacks")
    run_tests(globals())
