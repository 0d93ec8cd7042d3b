#!/usr/bin/env python3
"""The main job: training that loses a worker ends with exactly the weights of an undisturbed
run."""
# timeout: 300
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, SCALE, crun, run_tests, skip

PROGRAM = str(BUILD / "examples" / "train_digits")
WORKERS = ("--standalone", "--nproc-per-node=4")

if not os.path.exists(f"{BUILD}/lib/crunrt/gloo.so"):
    skip("the gloo backend was not built (libgloo-dev)")


def result(done):
    weights = re.findall(r"final weights ([0-9a-f]{16})$", done.stdout, re.M)
    accuracy = re.findall(r"held-out accuracy ([0-9.]+) %", done.stdout)
    assert len(weights) == 1 and len(accuracy) == 1, done
    assert float(accuracy[0]) > 95, done
    return weights[0]


def losses(done):
    return dict(re.findall(r"^step (\d+)  loss ([0-9.]+)$", done.stdout, re.M))


def test_crash_and_resume_give_the_same_weights(tmp):
    calm = crun(*WORKERS, PROGRAM, "--checkpoint", f"{tmp}/calm", timeout=200 * SCALE)
    assert calm.returncode == 0, calm
    crashed = crun(*WORKERS, "--max-restarts=1", PROGRAM, "--checkpoint", f"{tmp}/crash",
                   "--crash-at", "333",
                   timeout=200 * SCALE)
    assert crashed.returncode == 0, crashed
    assert "rank 1: crashing on purpose at step 333" in crashed.stderr, crashed
    assert "resumed at step 300" in crashed.stdout and "resumed" not in calm.stdout, crashed
    assert result(calm) == result(crashed), (calm, crashed)
    assert losses(calm) == losses(crashed) and float(losses(calm)["600"]) < 0.2, (calm, crashed)
    with open(f"{tmp}/calm", "rb") as a, open(f"{tmp}/crash", "rb") as b:
        assert a.read() == b.read(), "the last checkpoints differ"
    assert sorted(os.listdir(tmp)) == ["calm", "crash"], os.listdir(tmp)


def test_without_restarts_the_crash_is_reported(tmp):
    done = crun("--standalone", "--nproc-per-node=2", PROGRAM, "--steps", "60", "--crash-at", "30",
                timeout=200 * SCALE)
    assert done.returncode == 1, done
    assert "SIGKILL" in done.stderr and "resumed" not in done.stdout, done


def test_a_damaged_checkpoint_is_refused(tmp):
    path = f"{tmp}/checkpoint"
    done = crun("--standalone", "--nproc-per-node=2", PROGRAM, "--checkpoint", path, "--steps",
                "20", timeout=200 * SCALE)
    assert done.returncode == 0, done
    with open(path, "r+b") as f:
        f.seek(1000)
        byte = f.read(1)
        f.seek(1000)
        f.write(bytes([byte[0] ^ 1]))
    done = crun("--standalone", "--nproc-per-node=2", PROGRAM, "--checkpoint", path, "--steps",
                "40", timeout=200 * SCALE)
    assert done.returncode == 1, done
    assert "read the checkpoint '" in done.stderr and "': it is damaged" in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
