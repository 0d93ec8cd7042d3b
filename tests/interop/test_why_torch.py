#!/usr/bin/env python3
# timeout: 300
"""crun-agent why names the rank that does not take part in a collective of stock torch: the program
uses torch's worker_main(), and nothing of crun."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, clean_env, run, run_tests, skip, start, wait_for

PYTHON = os.environ.get("CRUN_TEST_MODERN_PYTHON", "")
WORKER = """
import os, time, torch, torch.distributed as dist
from torch.distributed.elastic.control_plane import worker_main

@worker_main()
def main():
    dist.init_process_group("gloo")
    tensor = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        load_batch()
    dist.all_reduce(tensor)

def load_batch():
    time.sleep(3600)

main()
"""


def test_the_rank_that_loads_data(tmp):
    (tmp / "train.py").write_text(WORKER)
    name = f"torch-why-{os.getpid()}"
    env = clean_env(OMP_NUM_THREADS=1, PYTHON_EXEC=PYTHON, PATH="/usr/bin:/bin")
    job = start([CRUN, "--nproc-per-node=3", f"--rdzv-id={name}", f"--log-dir={tmp}/logs",
                 tmp / "train.py"], env=env)
    why = [BUILD / "bin" / "crun-agent", "why", "--job", name]

    def rows():
        done = run([*why, "--json"], env=env)
        return {r["rank"]: r for r in map(json.loads, done.stdout.splitlines())}

    def is_stuck():
        """The parts of a row are read one after another, so the first rows that name load_batch may
        still name an operation before it."""
        found = rows()
        is_there = len(found) == 3 and "load_batch" in found[1]["python"]
        ends = is_there and found[1]["operation"].startswith("none") and \
            all("all_reduce 4" in found[rank]["operation"] for rank in (0, 2))
        return found if ends else None
    try:
        found = wait_for(is_stuck, "rank 1 to load data")
        assert found[1]["operation"].startswith("none; the last one was gloo:all_reduce 3"), found
        for rank in (0, 2):
            assert found[rank]["operation"] == "gloo:all_reduce 4 of group 'default_pg'", found
        text = run(why, env=env).stdout
        assert text.startswith("rank 1 on "), text
        assert "differs from the other 2 ranks" in text.splitlines()[0], text
    finally:
        job.terminate()
        job.communicate()


if __name__ == "__main__":
    if PYTHON == "" or subprocess.run([PYTHON, "-c", "from torch.distributed.elastic.control_plane "
                                       "import worker_main"], capture_output=True).returncode != 0:
        skip("CRUN_TEST_MODERN_PYTHON names no Python with a torch that has worker_main()")
    run_tests(globals())
