#!/usr/bin/env python3
"""Every small example does what its first lines say, under crun."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, CRUN, CRUN_STORE, clean_env, crun, run, run_tests, skip

EXAMPLES = BUILD / "examples"
if not os.path.exists(f"{BUILD}/lib/crunrt/gloo.so"):
    skip("the gloo backend was not built (libgloo-dev)")


def lines(done):
    assert done.returncode == 0, done
    return sorted(done.stdout.splitlines())


def start(name, ranks=4):
    return crun("--standalone", f"--nproc-per-node={ranks}", EXAMPLES / name)


def test_hello(tmp):
    out = lines(start("hello"))
    ranks = [re.fullmatch(r"hello from rank (\d) of 4, number (\d) to arrive", line)
             for line in out]
    assert sorted(m[1] for m in ranks) == list("0123"), out
    assert sorted(m[2] for m in ranks) == list("1234"), out


def test_all_reduce(tmp):
    assert lines(start("all_reduce")) == [f"rank {r} of 4: the sum of all ranks is 6"
                                          for r in range(4)]


def test_ping(tmp):
    out = lines(start("ping"))
    assert [line for line in out if "left" in line] == [f"rank {r} got {(r + 3) % 4} from its left"
                                                        for r in range(4)]
    balls = [line for line in out if "ball" in line]
    assert balls == ["rank 0 has the ball: 2", "rank 0 has the ball: 4", "rank 1 has the ball: 1",
                     "rank 1 has the ball: 3"], out


def test_subgroups(tmp):
    assert lines(start("subgroups", 5)) == [
        "rank 0 is number 0 of the 3 evens; their sum is 6",
        "rank 1 is number 0 of the 2 odds; their sum is 4",
        "rank 2 is number 1 of the 3 evens; their sum is 6",
        "rank 3 is number 1 of the 2 odds; their sum is 4",
        "rank 4 is number 2 of the 3 evens; their sum is 6"]


def test_collectives(tmp):
    out = lines(start("collectives", 3))
    assert [line for line in out if line.startswith("rank 2")] == [
        "rank 2: all_gather 0 1 2", "rank 2: all_gather_counts 0 10 11 20 21 22",
        "rank 2: all_reduce 2", "rank 2: all_to_all 2 12 22", "rank 2: broadcast 2",
        "rank 2: reduce_scatter 36", "rank 2: scatter 2"], out
    assert {"rank 0: gather 0 1 2", "rank 0: reduce 3",
            "rank 0: gather_counts 0 10 11 20 21 22"} < set(out), out


def test_spawn(tmp):
    assert lines(run([EXAMPLES / "spawn"])) == ["4 workers, the mean is 15"]


def test_all_reduce_gpu(tmp):
    """On a machine with GPUs it works; elsewhere it fails with the CUDA code and falls back to
    nothing."""
    if not (EXAMPLES / "all_reduce_gpu").exists():
        return  # built where CUDA and NCCL are
    done = start("all_reduce_gpu", 1)
    if done.returncode == 0:
        assert "rank 0 of 1: 1048576 sums right on GPU 0" in done.stdout, done
    else:
        assert re.search(r"CUDA error (34|35|100) \(cuda|load .lib(nccl|cuda)", done.stderr), done


def test_replicas(tmp):
    server = subprocess.Popen([CRUN_STORE, "serve", "--host", "127.0.0.1", "--port", "0"],
                              stdout=subprocess.PIPE,
                              text=True)
    try:
        address = server.stdout.readline().strip()
        jobs = [subprocess.Popen([CRUN, "--standalone", "--nproc-per-node=2",
                                  EXAMPLES / "replicas"],
                                 stdout=subprocess.PIPE, text=True,
                                 env=clean_env(REPLICA_ID=i, REPLICAS=2, STORE=address,
                                               STORE_PREFIX="run7"))
                for i in range(2)]
        out = sorted(line for job in jobs for line in job.communicate(timeout=100)[0].splitlines())
        assert all(job.returncode == 0 for job in jobs), out
        assert out == [f"replica {i} rank {r}: 3 here, 6 over all replicas" for i in range(2)
                       for r in range(2)], out
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    run_tests(globals())
