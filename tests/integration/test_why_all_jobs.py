#!/usr/bin/env python3
# exclusive
"""Tests crun-agent why without --job, which reports all jobs of the host. It looks into the
processes of every job, so it runs alone: a process of another test would not be what it is without
a tracer (LeakSanitizer, for one, fails in it)."""
import ctypes

from crun_test import run, run_tests, skip
from test_why import CRUN_AGENT, STUCK, Job, new_id, rows


def test_several_jobs(tmp):
    """Each job of the host is reported by itself: rank 1 of one job differs from the
    other ranks of that job, and not from those of the other job."""
    with Job(new_id(), STUCK, "1", "load_batch", ranks=3) as odd:
        with Job(new_id(), STUCK, "-1", "all_reduce", ranks=4) as even:
            odd.wait_in_place(lambda rank: "load_batch" if rank == 1 else "all_reduce")
            even.wait_in_place(lambda rank: "all_reduce")
            lines = run([CRUN_AGENT, "why"]).stdout.splitlines()
            found = rows(None)
    head = f"job {odd.id}: rank 1 on "
    assert any(line.startswith(head) and "differs from the other 2 ranks" in line
               for line in lines), lines
    assert f"job {even.id}: all 4 ranks are at the same place" in lines, lines
    jobs = [row["job"] for row in found]
    assert jobs == sorted(jobs), jobs
    assert jobs.count(odd.id) == 3 and jobs.count(even.id) == 4, jobs


if __name__ == "__main__":
    try:
        ctypes.CDLL("libdw.so.1")
    except OSError:
        skip("libdw.so.1 is not installed, so there are no native stacks")
    run_tests(globals())
