#!/usr/bin/env python3
"""The same job in plain PyTorch, DDP on gloo, by the same crun line with nothing changed but the
program."""
# timeout: 400
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import ROOT, clean_env, crun, run_tests, skip, torch_python

PROGRAM = str(ROOT / "examples" / "train_digits.py")
PYTHON = torch_python()
if PYTHON is None:
    skip("no Python with torch (Debian: python3-torch)")


def train(*args):
    return crun("--standalone", "--nproc-per-node=4", "--max-restarts=1", PROGRAM, *args,
                timeout=300,
                env=clean_env(PYTHON_EXEC=PYTHON))


def check(done):
    assert done.returncode == 0, done
    accuracy = re.findall(r"held-out accuracy ([0-9.]+) %", done.stdout)
    assert len(accuracy) == 1 and float(accuracy[0]) > 95, done


def test_training(tmp):
    done = train()
    check(done)
    assert "resumed" not in done.stdout, done


def test_crash_and_resume(tmp):
    done = train("--checkpoint", f"{tmp}/checkpoint", "--crash-at", "120")
    check(done)
    assert "resumed at step 100" in done.stdout, done


if __name__ == "__main__":
    run_tests(globals())
